"""Whole models: a body, which computes hidden states, and a head for an objective.

Shapes: b rows, n tokens, m tokens of a source.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.attention.base import without_autocast
from regard.attention.state import last_real
from regard.data import IGNORE
from regard.data.batch import Batch
from regard.device import require_memory
from regard.errors import UserError
from regard.models.config import (
    CausalConfig,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    FixedWindowConfig,
    ModelConfig,
    PerceiverConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
)
from regard.models.fixed_window import FixedWindowDecoder
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    ReconstructionHeadConfig,
    TokenClassificationHeadConfig,
    require_labels,
    unfit_head,
)
from regard.models.heads import (
    ClassificationHead,
    EmbeddingHead,
    MaskedLMHead,
    ReconstructionHead,
    ScaledHead,
    SoftcappedHead,
    cross_entropy,
    scored_places,
    token_loss,
)
from regard.models.perceiver import PerceiverDecoder
from regard.models.recurrent import RecurrentDecoder, RecurrentEncoder
from regard.models.seq2seq import EncoderDecoder, RecurrentEncoderDecoder
from regard.models.tensors import Hidden, Lengths, SourceIds, TokenIds, TokenMask
from regard.models.transformer import Decoder, Encoder

CausalBody: TypeAlias = Decoder | PerceiverDecoder | RecurrentDecoder | FixedWindowDecoder
Body: TypeAlias = CausalBody | Encoder | RecurrentEncoder
CompiledBody: TypeAlias = Callable[..., Tensor]
"""A compiled form of a model's body."""
LOGIT_BYTES = 2**27
"""Bytes of the float32 logits that an evaluation holds at once."""


class LanguageModel(nn.Module):
    """A causal body with a head that scores the next token."""

    def __init__(self, config: CausalConfig, vocabulary: int) -> None:
        super().__init__()
        self.body = make_causal_body(config, vocabulary)
        softcap = config.logit_softcap if isinstance(config, DecoderConfig) else None
        self.head = (
            nn.Linear(self.body.width, vocabulary, bias=False)
            if softcap is None
            else SoftcappedHead(self.body.width, vocabulary, softcap=softcap)
        )
        initialize(self)
        if config.tie_head:
            self.head.weight = self.body.embedding.weight

    def forward(self, input_ids: TokenIds) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token after each position."""
        logits: Tensor = self.head(self.body(input_ids))
        return logits

    def target_logits(
        self, input_ids: TokenIds, labels: Int[Tensor, "b n"], lengths: Lengths | None = None
    ) -> Iterator[tuple[Int[Tensor, " part"], Float[Tensor, "part vocabulary"]]]:
        """Yield the targets of rows of these lengths, in order, and their float32 logits.

        Without lengths, rows have no padding. Each part has at most LOGIT_BYTES of logits, or one
        target.
        """
        hidden, labels = self.body(input_ids, lengths).flatten(0, 1), labels.flatten()
        at_once = max(LOGIT_BYTES // (4 * self.head.out_features), 1)
        for places in scored_places(labels, int((labels != IGNORE).sum())).split(at_once):
            targets = labels[places]
            n = int((targets != IGNORE).sum())
            yield targets[:n], self.head(hidden[places])[:n].float()

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Cross entropy in nats, summed over the targets."""
        return token_loss(self.head, _hidden(self, batch, body), batch)

    def init_state(self, batch: int, capacity: int) -> Any:
        """Return empty decoding states for at most `capacity` tokens."""
        return self.body.init_state(batch, capacity)

    def extend(
        self, input_ids: TokenIds, states: Any, attention_mask: TokenMask | None = None
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]:
        """Return the logits of the token after each row's last real one, and the new states."""
        return _extend(self, input_ids, states, attention_mask)


class SequenceToSequence(nn.Module):
    """A body conditioned on a source, with a head that scores the next token of a target."""

    def __init__(
        self, config: EncoderDecoderConfig | RecurrentEncoderDecoderConfig, vocabulary: int
    ) -> None:
        super().__init__()
        self.body: EncoderDecoder | RecurrentEncoderDecoder = (
            EncoderDecoder(config, vocabulary)
            if isinstance(config, EncoderDecoderConfig)
            else RecurrentEncoderDecoder(config, vocabulary)
        )
        transformer = config if isinstance(config, EncoderDecoderConfig) else EncoderDecoderConfig()
        kind = ScaledHead if transformer.scale_head else nn.Linear
        self.head = kind(self.body.width, vocabulary, bias=transformer.head_bias)
        initialize(self)
        if transformer.tie_head and isinstance(self.body, EncoderDecoder):
            self.head.weight = self.body.decoder.embedding.weight

    def forward(
        self, source: SourceIds, lengths: Lengths, input_ids: TokenIds
    ) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the next token of the target at each position."""
        logits: Tensor = self.head(self.body(source, lengths, input_ids))
        return logits

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Cross entropy in nats, summed over the targets."""
        body, source = self.body if body is None else body, batch.inputs["source"]
        target = batch.inputs["input_ids"]
        hidden = body(source.ids, source.lengths, target.ids, target.lengths)
        return token_loss(self.head, hidden, batch)

    def condition(self, source: SourceIds, lengths: Lengths) -> "ConditionedModel":
        """Return the model conditioned on sources, with the interface of a language model."""
        whole = bool((lengths == source.shape[1]).all())
        return ConditionedModel(self, self.body.encode(source, None if whole else lengths))


@dataclass(frozen=True, eq=False)
class ConditionedModel:
    """A model with its encoded sources, and the interface of a language model."""

    model: SequenceToSequence
    memory: Any

    def init_state(self, batch: int, capacity: int) -> Any:
        """Return empty decoding states for at most `capacity` tokens; a row for each source."""
        return self.model.body.init_state(batch, capacity, self.memory)

    def extend(
        self, input_ids: TokenIds, states: Any, attention_mask: TokenMask | None = None
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]:
        """Return the logits of the token after each row's last real one, and the new states."""
        return _extend(self.model, input_ids, states, attention_mask)


class MaskedLanguageModel(nn.Module):
    """An encoder with a head that predicts masked tokens."""

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.body = Encoder(config, vocabulary)
        self.head = MaskedLMHead(self.body.width, vocabulary, norm_eps=config.norm_eps)
        initialize(self)
        if config.tie_head:
            self.head.scores.weight = self.body.embedding.weight

    def forward(
        self,
        input_ids: TokenIds,
        lengths: Lengths | None = None,
        token_type_ids: TokenIds | None = None,
    ) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token at each position."""
        logits: Tensor = self.head(self.body(input_ids, lengths, token_type_ids))
        return logits

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Cross entropy in nats, summed over the targets."""
        return token_loss(self.head, _hidden(self, batch, body), batch)


class Classifier(nn.Module):
    """A body with a head that scores the labels of whole texts."""

    def __init__(self, body: Body, head: ClassificationHeadConfig, *, dropout: float) -> None:
        super().__init__()
        self.body = body
        # In a causal body, only the last token attends to the whole text.
        pool = head.pool if isinstance(body, Encoder | RecurrentEncoder) else "last"
        self.head = ClassificationHead(body.width, len(head.labels), pool=pool, dropout=dropout)
        initialize(self)

    def forward(
        self, input_ids: TokenIds, lengths: Lengths, token_type_ids: TokenIds | None = None
    ) -> Float[Tensor, "b labels"]:
        """Logits of the labels; token types are for a body with embeddings of them."""
        parts = () if token_type_ids is None else (token_type_ids,)
        scores: Tensor = self.head(self.body(input_ids, lengths, *parts), lengths)
        return scores

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Cross entropy in nats, summed over the rows."""
        hidden = _hidden(self, batch, body)
        return cross_entropy(self.head(hidden, batch.inputs["input_ids"].lengths), batch.labels)


class TokenClassifier(nn.Module):
    """A body with a head that scores the labels of each token."""

    def __init__(self, body: Body, head: TokenClassificationHeadConfig) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(body.width, len(head.labels))
        initialize(self)

    def forward(self, input_ids: TokenIds, lengths: Lengths) -> Float[Tensor, "b n labels"]:
        """Logits of the labels at each position."""
        scores: Tensor = self.head(self.body(input_ids, lengths))
        return scores

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Cross entropy in nats, summed over the targets."""
        return token_loss(self.head, _hidden(self, batch, body), batch)


class Embedder(nn.Module):
    """A body with a head that computes a vector of a whole text."""

    def __init__(self, body: Body, head: EmbeddingHeadConfig) -> None:
        super().__init__()
        self.body = body
        sizes = body.width, head.width
        self.head = EmbeddingHead(*sizes, pool=head.pool, temperature=head.temperature)
        initialize(self)

    def forward(self, input_ids: TokenIds, lengths: Lengths) -> Float[Tensor, "b width"]:
        """Vectors of length 1."""
        vectors: Tensor = self.head(self.body(input_ids, lengths), lengths)
        return vectors

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Contrastive loss of questions and documents (van den Oord et al., 2018, eq. 4).

        Other occurrences of a question's document in the batch don't count as negatives.
        """
        documents = batch.inputs["documents"].ids
        return self.contrast(*self.vectors(batch, body), documents, batch.labels)

    def vectors(
        self, batch: Batch, body: CompiledBody | None = None
    ) -> tuple[Float[Tensor, "b width"], Float[Tensor, "b width"]]:
        """Return the vectors of questions and documents."""
        body = self.body if body is None else body
        fields = batch.inputs["questions"], batch.inputs["documents"]
        n = max(field.ids.shape[1] for field in fields)
        # One call: dropout would have the same masks in a second one.
        ids = torch.cat([F.pad(f.ids, (0, n - f.ids.shape[1]), value=f.pad) for f in fields])
        lengths = torch.cat([field.lengths for field in fields])
        questions, documents = self.head(body(ids, lengths), lengths).chunk(2)
        return questions, documents

    def contrast(
        self,
        questions: Float[Tensor, "b width"],
        documents: Float[Tensor, "b width"],
        document_ids: TokenIds,
        labels: Int[Tensor, " b"],
    ) -> Tensor:
        """Return the contrastive loss of vectors; equal documents are not negatives."""
        same = (document_ids[:, None] == document_ids[None]).all(-1)
        others = same & ~torch.eye(len(same), dtype=torch.bool, device=same.device)
        with without_autocast(questions):  # similarities would be rounded to bfloat16
            scores = questions @ documents.mT / self.head.temperature
        return cross_entropy(scores.masked_fill(others, float("-inf")), labels)


class Reconstructor(nn.Module):
    """A causal body with a head that scores all tokens of a row, given its last hidden state."""

    def __init__(self, config: DecoderConfig | RecurrentConfig, vocabulary: int) -> None:
        """Build body and head.

        Raises:
            UserError: the width is odd.
        """
        super().__init__()
        self.body = make_causal_body(config, vocabulary)
        if self.body.width % 2:
            raise UserError(
                f"head.kind=reconstruction: has sinusoidal positions, but model.d_model = "
                f"{self.body.width} is odd; choose an even model.d_model"
            )
        self.head = ReconstructionHead(self.body.width, vocabulary, length=config.context_length)
        initialize(self)

    def forward(self, input_ids: TokenIds, lengths: Lengths) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token at each position."""
        logits: Tensor = self.head(self.body(input_ids, lengths), lengths)
        return logits

    def loss(self, batch: Batch, body: CompiledBody | None = None) -> Tensor:
        """Cross entropy in nats, summed over the targets."""
        hidden = _hidden(self, batch, body)
        logits = self.head(hidden, batch.inputs["input_ids"].lengths)
        return cross_entropy(logits.flatten(0, 1), batch.labels.flatten())


Model: TypeAlias = (
    LanguageModel
    | SequenceToSequence
    | MaskedLanguageModel
    | Classifier
    | TokenClassifier
    | Embedder
    | Reconstructor
)
"""Any model: it has a `body`, a `head` and a `loss` of batches."""


def _hidden(model: Model, batch: Batch, body: CompiledBody | None) -> Hidden:
    """Return the hidden states of rows, given their lengths, token types and documents if any."""
    body = model.body if body is None else body
    tokens = batch.inputs["input_ids"]
    others = {name: field.ids for name, field in batch.inputs.items() if name != "input_ids"}
    hidden: Hidden = body(tokens.ids, tokens.lengths, **others)
    return hidden


def make_model(config: ModelConfig, head: HeadConfig, vocabulary: int) -> Model:
    """Build a model, with weights drawn by torch's seed.

    Raises:
        UserError: the head doesn't fit the family, or has fewer than two labels, or one twice.
        UnsupportedError: the mechanism lacks a feature that the family requires.
    """
    weights = config.least_weights + vocabulary * config.d_model
    require_memory(4 * weights, f"model ({config.summary}, {vocabulary:,} tokens)")
    if isinstance(head, ClassificationHeadConfig | TokenClassificationHeadConfig):
        require_labels(head.labels)
    match config, head:
        case (
            (DecoderConfig() | PerceiverConfig() | RecurrentConfig() | FixedWindowConfig()),
            LMHeadConfig(),
        ):
            return LanguageModel(config, vocabulary)
        case ((EncoderDecoderConfig() | RecurrentEncoderDecoderConfig()), LMHeadConfig()):
            return SequenceToSequence(config, vocabulary)
        case EncoderConfig(), MaskedLMHeadConfig():
            return MaskedLanguageModel(config, vocabulary)
        case ((DecoderConfig() | EncoderConfig() | RecurrentConfig()), ClassificationHeadConfig()):
            return Classifier(make_body(config, vocabulary), head, dropout=config.dropout)
        case (
            (DecoderConfig() | EncoderConfig() | RecurrentConfig()),
            TokenClassificationHeadConfig(),
        ):
            return TokenClassifier(make_body(config, vocabulary), head)
        case ((DecoderConfig() | EncoderConfig() | RecurrentConfig()), EmbeddingHeadConfig()):
            return Embedder(make_body(config, vocabulary), head)
        case ((DecoderConfig() | RecurrentConfig()), ReconstructionHeadConfig()):
            return Reconstructor(config, vocabulary)
    raise unfit_head(config, head)


def make_causal_body(config: CausalConfig, vocabulary: int) -> CausalBody:
    """Build a body in which each token depends on itself and earlier tokens."""
    match config:
        case DecoderConfig():
            return Decoder(config, vocabulary)
        case PerceiverConfig():
            return PerceiverDecoder(config, vocabulary)
        case RecurrentConfig():
            return RecurrentDecoder(config, vocabulary)
        case FixedWindowConfig():
            return FixedWindowDecoder(config, vocabulary)


def make_body(config: DecoderConfig | EncoderConfig | RecurrentConfig, vocabulary: int) -> Body:
    """Build a body for whole texts."""
    match config:
        case EncoderConfig():
            return Encoder(config, vocabulary)
        case RecurrentConfig(bidirectional=True):
            return RecurrentEncoder(config, vocabulary)
        case _:
            return make_causal_body(config, vocabulary)


def _extend(
    model: LanguageModel | SequenceToSequence,
    input_ids: Tensor,
    states: Any,
    attention_mask: Tensor | None,
) -> tuple[Tensor, Any]:
    """Return the logits of the token after each row's last real one, and the states."""
    decoder = model.body.decoder if isinstance(model.body, EncoderDecoder) else model.body
    if isinstance(decoder, Decoder):
        hidden, states = decoder.extend(input_ids, states, attention_mask, last=True)
    else:
        hidden, states = decoder.extend(input_ids, states, attention_mask)
        hidden = last_real(hidden, attention_mask)
    return model.head(hidden.squeeze(1)), states


def initialize(module: nn.Module) -> None:
    """Initialize weights as N(0, 0.02), biases as 0. Attention mechanisms initialize themselves."""
    if isinstance(module, Attention):
        return
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    for child in module.children():
        initialize(child)
