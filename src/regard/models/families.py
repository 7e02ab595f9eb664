"""Whole models: a body, which makes hidden states, and a head, which makes something of them.

Shapes: b rows, n tokens, m tokens of a source.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import UserError
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
)
from regard.models.config_heads import (
    ClassesConfig,
    EmbeddingConfig,
    HeadConfig,
    LanguageConfig,
    MaskedLanguageConfig,
    TokenClassesConfig,
)
from regard.models.config_recurrent import (
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    WindowConfig,
)
from regard.models.heads import ClassesHead, EmbeddingHead, MaskedLanguageHead
from regard.models.recurrent import RecurrentDecoder, RecurrentEncoder
from regard.models.recurrent_encoder_decoder import RecurrentEncoderDecoder
from regard.models.transformer import Decoder, Encoder, EncoderDecoder
from regard.models.window import WindowDecoder

CausalBody: TypeAlias = Decoder | RecurrentDecoder | WindowDecoder
Body: TypeAlias = CausalBody | Encoder | RecurrentEncoder
PairBody: TypeAlias = EncoderDecoder | RecurrentEncoderDecoder


class LanguageModel(nn.Module):
    """A causal body with a head that scores the next token."""

    def __init__(
        self, config: DecoderConfig | RecurrentConfig | WindowConfig, vocabulary: int
    ) -> None:
        super().__init__()
        self.body = make_causal_body(config, vocabulary)
        self.head = nn.Linear(self.body.width, vocabulary, bias=False)
        initialise(self)
        if config.tie_head:
            self.head.weight = self.body.embedding.weight

    def forward(self, ids: Int[Tensor, "b n"]) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token after each position."""
        logits: Tensor = self.head(self.body(ids))
        return logits

    def start(self, batch: int, capacity: int) -> Any:
        """The states before the first of at most `capacity` tokens."""
        return self.body.start(batch, capacity)

    def extend(
        self, ids: Int[Tensor, "b n"], states: Any, keep: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]:
        """Logits of the token after each row's last real one."""
        hidden, states = self.body.extend(ids, states, keep)
        return self.head(last_real(hidden, keep)), states

    def select(self, states: Any, rows: Int[Tensor, " rows"]) -> Any:
        """The states of some rows, in their order; the given ones are used up."""
        return self.body.select(states, rows)


class SequenceToSequence(nn.Module):
    """A body that writes a target while it looks at a source, with a head that scores tokens."""

    def __init__(
        self, config: EncoderDecoderConfig | RecurrentEncoderDecoderConfig, vocabulary: int
    ) -> None:
        super().__init__()
        self.body = make_pair_body(config, vocabulary)
        self.head = nn.Linear(self.body.width, vocabulary, bias=False)
        initialise(self)

    def forward(
        self,
        source: Int[Tensor, "b m"],
        lengths: Int[Tensor, " b"],
        ids: Int[Tensor, "b n"],
    ) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token of the target after each position."""
        logits: Tensor = self.head(self.body(source, lengths, ids))
        return logits

    def about(self, source: Int[Tensor, "b m"], lengths: Int[Tensor, " b"]) -> "Conditioned":
        """What writes targets for these sources, as a language model continues prompts."""
        return Conditioned(self, self.body.encode(source, lengths))


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A model that has read its sources."""

    model: SequenceToSequence
    memory: Any

    def start(self, batch: int, capacity: int) -> Any:
        """The states before the first of at most `capacity` tokens; a row for each source."""
        return self.model.body.start(batch, capacity, self.memory)

    def extend(
        self, ids: Int[Tensor, "b n"], states: Any, keep: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]:
        """Logits of the token after each row's last real one."""
        hidden, states = self.model.body.extend(ids, states, keep)
        return self.model.head(last_real(hidden, keep)), states

    def select(self, states: Any, rows: Int[Tensor, " rows"]) -> Any:
        """The states of some rows, in their order; the given ones are used up."""
        return self.model.body.select(states, rows)


class MaskedLanguageModel(nn.Module):
    """An encoder with a head that scores the tokens behind the masks."""

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.body = Encoder(config, vocabulary)
        self.head = MaskedLanguageHead(self.body.width, vocabulary, norm_eps=config.norm_eps)
        initialise(self)
        if config.tie_head:
            self.head.scores.weight = self.body.embedding.weight

    def forward(
        self,
        ids: Int[Tensor, "b n"],
        lengths: Int[Tensor, " b"] | None = None,
        segments: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token that belongs at each position."""
        logits: Tensor = self.head(self.body(ids, lengths, segments))
        return logits


class Classifier(nn.Module):
    """A body with a head that scores the labels of whole texts."""

    def __init__(self, body: Body, head: ClassesConfig, *, dropout: float) -> None:
        super().__init__()
        self.body = body
        # The last token of a causal body is the only one that has seen all of the text.
        pool = head.pool if isinstance(body, Encoder | RecurrentEncoder) else "last"
        self.head = ClassesHead(body.width, len(head.labels), pool=pool, dropout=dropout)
        initialise(self)

    def forward(
        self,
        ids: Int[Tensor, "b n"],
        lengths: Int[Tensor, " b"],
        segments: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b labels"]:
        """Logits of the labels; segments are for a body that has embeddings of them."""
        parts = () if segments is None else (segments,)
        scores: Tensor = self.head(self.body(ids, lengths, *parts), lengths)
        return scores


class TokenClassifier(nn.Module):
    """A body with a head that scores the labels of each token."""

    def __init__(self, body: Body, head: TokenClassesConfig) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(body.width, len(head.labels))
        initialise(self)

    def forward(
        self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]
    ) -> Float[Tensor, "b n labels"]:
        """Logits of the labels at each position."""
        scores: Tensor = self.head(self.body(ids, lengths))
        return scores


class Embedder(nn.Module):
    """A body with a head that makes a vector of a whole text."""

    def __init__(self, body: Body, head: EmbeddingConfig) -> None:
        super().__init__()
        self.body = body
        self.head = EmbeddingHead(
            body.width, head.width, pool=head.pool, temperature=head.temperature
        )
        initialise(self)

    def forward(
        self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]
    ) -> Float[Tensor, "b width"]:
        """Vectors of length 1."""
        vectors: Tensor = self.head(self.body(ids, lengths), lengths)
        return vectors


Model: TypeAlias = (
    LanguageModel
    | SequenceToSequence
    | MaskedLanguageModel
    | Classifier
    | TokenClassifier
    | Embedder
)
"""Any of them: each has a `body` and a `head`."""


def make_model(config: ModelConfig, head: HeadConfig, vocabulary: int) -> Model:
    """A new model, with weights by torch's seed.

    Raises:
        UserError: the head doesn't fit the family, or has no labels to tell apart.
        UnsupportedError: the mechanism can't do what the family asks of it.
    """
    match config, head:
        case _, (ClassesConfig(labels=()) | TokenClassesConfig(labels=())):
            raise UserError(
                "head.labels: names none to tell apart: give them, or train on examples that do "
                "(`regard train classification FILE`)"
            )
        case ((DecoderConfig() | RecurrentConfig() | WindowConfig()), LanguageConfig()):
            return LanguageModel(config, vocabulary)
        case ((EncoderDecoderConfig() | RecurrentEncoderDecoderConfig()), LanguageConfig()):
            return SequenceToSequence(config, vocabulary)
        case EncoderConfig(), MaskedLanguageConfig():
            return MaskedLanguageModel(config, vocabulary)
        case ((DecoderConfig() | EncoderConfig() | RecurrentConfig()), ClassesConfig()):
            return Classifier(make_body(config, vocabulary), head, dropout=config.dropout)
        case ((DecoderConfig() | EncoderConfig() | RecurrentConfig()), TokenClassesConfig()):
            return TokenClassifier(make_body(config, vocabulary), head)
        case ((DecoderConfig() | EncoderConfig() | RecurrentConfig()), EmbeddingConfig()):
            return Embedder(make_body(config, vocabulary), head)
    family, kind = (str(c.__struct_config__.tag) for c in (config, head))
    fitting = [name for name, heads in HEADS.items() if kind in heads]
    raise UserError(
        f"head.kind={kind}: is no head for model.kind={family}, which takes "
        f"{' or '.join(HEADS[family])}; {kind} fits {' or '.join(fitting)}"
    )


HEADS = {
    "decoder": ("language", "classes", "token-classes", "embedding"),
    "encoder": ("masked-language", "classes", "token-classes", "embedding"),
    "encoder-decoder": ("language",),
    "rnn": ("language", "classes", "token-classes", "embedding"),
    "rnn-encoder-decoder": ("language",),
    "window": ("language",),
}
"""The heads that fit each family."""


def make_causal_body(
    config: DecoderConfig | RecurrentConfig | WindowConfig, vocabulary: int
) -> CausalBody:
    """What reads a text from its beginning, and can be asked after each token."""
    match config:
        case DecoderConfig():
            return Decoder(config, vocabulary)
        case RecurrentConfig():
            return RecurrentDecoder(config, vocabulary)
        case WindowConfig():
            return WindowDecoder(config, vocabulary)


def make_pair_body(
    config: EncoderDecoderConfig | RecurrentEncoderDecoderConfig, vocabulary: int
) -> PairBody:
    """What reads a source, and then a target from its beginning."""
    match config:
        case EncoderDecoderConfig():
            return EncoderDecoder(config, vocabulary)
        case RecurrentEncoderDecoderConfig():
            return RecurrentEncoderDecoder(config, vocabulary)


def make_body(config: DecoderConfig | EncoderConfig | RecurrentConfig, vocabulary: int) -> Body:
    """What reads a whole text."""
    match config:
        case EncoderConfig():
            return Encoder(config, vocabulary)
        case RecurrentConfig(bidirectional=True):
            return RecurrentEncoder(config, vocabulary)
        case _:
            return make_causal_body(config, vocabulary)


def last_real(
    hidden: Float[Tensor, "b n d"], keep: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b d"]:
    """The hidden state of each row's last token that is kept."""
    if keep is None:
        return hidden[:, -1]
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, keep.sum(1) - 1]


def initialise(module: nn.Module) -> None:
    """Weights N(0, 0.02), biases 0; a mechanism's own are its own affair."""
    if isinstance(module, Attention):
        return
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    for child in module.children():
        initialise(child)
