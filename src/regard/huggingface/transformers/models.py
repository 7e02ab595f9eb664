"""A transformers class for each kind of run.

Shapes: b rows, n tokens, m tokens of a source, p tokens that the state has seen, d the width of the
body. Padding may be on either side of a row, given by the attention mask.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from regard.errors import UserError
from regard.huggingface.transformers.generation import check_options
from regard.huggingface.transformers.loading import RunModel
from regard.huggingface.transformers.state import AttentionMask, DecodingCache, InputIds, Rows
from regard.models.builders import SequenceToSequence


class Generating(RunModel, GenerationMixin):
    """Base of models that generate, with Regard's decoding states as the cache."""

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """Generate tokens as transformers does, with the arguments of its `generate`.

        Raises:
            UserError: an option isn't supported for a run.
        """
        check_options(self, arguments, options)
        mixin: Any = super()
        return mixin.generate(*arguments, **options)

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> Any:
        """Add an empty cache to the arguments of the model, unless there is one.

        Raises:
            UserError: another cache is given.
        """
        given = model_kwargs.get("past_key_values")
        if given is not None and not isinstance(given, DecodingCache):
            raise UserError(
                f"past_key_values: a {type(given).__name__} isn't supported for a run, which keeps "
                "its own decoding states; leave it out"
            )
        if generation_config.use_cache and given is None:
            cache = DecodingCache(min(max_cache_length, self.context_length))
            model_kwargs["past_key_values"] = cache


class RegardForCausalLM(Generating):
    """A run that continues texts.

    >>> tokenizer = RegardTokenizer.from_pretrained("tiny")
    >>> model = RegardForCausalLM.from_pretrained("tiny")
    >>> inputs = tokenizer("Ada was born in", return_tensors="pt")
    >>> tokenizer.decode(model.generate(**inputs, max_new_tokens=1)[0], skip_special_tokens=True)
    'Ada was born in Rome'
    """

    auto_class = "AutoModelForCausalLM"

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        past_key_values: DecodingCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast:
        """Return logits of the token after each position, or after the last `logits_to_keep`.

        Token types are ignored.

        Raises:
            UserError: a row is longer than the context.
        """
        if use_cache and past_key_values is None:
            past_key_values = DecodingCache(self.context_length)
        if past_key_values is None:
            rows = Rows.of(input_ids, attention_mask)
            if rows.longest > self.context_length:
                raise UserError(
                    f"{rows.longest} tokens don't fit the model's context length of "
                    f"{self.context_length}; shorten the text"
                )
            hidden = rows.restore(self.model.body(rows.compact(input_ids), rows.lengths))
        else:
            if past_key_values.states is None:
                states = self.model.init_state(len(input_ids), past_key_values.capacity)
                past_key_values.states = states
            hidden = past_key_values.extend(self.model.body, input_ids, attention_mask)
        logits = self.model.head(hidden[:, -logits_to_keep:])
        cache: Any = past_key_values
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)


@dataclass
class EncodedSource(BaseModelOutput):
    """Encoded sources, the memory of the decoder."""

    memory: Any = None
    rows: int | None = None
    """Number of sources."""


class SourceEncoder(nn.Module):
    """The encoder of a sequence-to-sequence model, with the interface that `generate` expects."""

    main_input_name = "input_ids"

    def __init__(self, model: SequenceToSequence) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: InputIds, attention_mask: AttentionMask | None = None, **_: Any
    ) -> EncodedSource:
        """Encode sources."""
        rows = Rows.of(input_ids, attention_mask)
        memory = self.model.body.encode(rows.compact(input_ids), rows.lengths)
        return EncodedSource(memory=memory, rows=len(input_ids))


class RegardForSeq2SeqLM(Generating):
    """A run that generates a target conditioned on a source.

    >>> tokenizer = RegardTokenizer.from_pretrained("target")
    >>> model = RegardForSeq2SeqLM.from_pretrained("target")
    >>> inputs = tokenizer(["Ada was born in Rome."], return_tensors="pt")
    >>> model.generate(**inputs, min_new_tokens=3, max_new_tokens=3).shape  # with the start token
    torch.Size([1, 4])
    """

    auto_class = "AutoModelForSeq2SeqLM"

    def get_encoder(self, modality: str | None = None) -> SourceEncoder:
        """Return the encoder."""
        return SourceEncoder(self.model)

    def forward(
        self,
        input_ids: Int[Tensor, "b m"] | None = None,
        attention_mask: Int[Tensor, "b m"] | None = None,
        token_type_ids: Int[Tensor, "b m"] | None = None,
        decoder_input_ids: InputIds | None = None,
        decoder_attention_mask: AttentionMask | None = None,
        encoder_outputs: EncodedSource | None = None,
        past_key_values: DecodingCache | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
    ) -> Seq2SeqLMOutput:
        """Return logits of the target token after each position of `decoder_input_ids`.

        `encoder_outputs` are encoded sources, each for the same number of consecutive rows.
        Token types are ignored.

        Raises:
            UserError: a row is longer than the context, or there are no targets.
        """
        if decoder_input_ids is None:
            raise UserError("decoder_input_ids: missing; give the start of each target")
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        cache = DecodingCache(self.context_length) if past_key_values is None else past_key_values
        if cache.states is None:
            cache.states = self._init_state(encoder_outputs, len(decoder_input_ids), cache.capacity)
        hidden = cache.extend(self.model.body, decoder_input_ids, decoder_attention_mask)
        kept: Any = cache if use_cache or past_key_values is not None else None
        return Seq2SeqLMOutput(logits=self.model.head(hidden), past_key_values=kept)

    def _init_state(self, source: EncodedSource, rows: int, capacity: int) -> Any:
        """Return initial states of `rows` rows; beams share the memory of a source."""
        sources = source.rows or rows
        states = self.model.body.init_state(sources, capacity, source.memory)
        each = rows // sources
        return (
            states if each == 1 else states.reorder(torch.arange(rows, device=self.device) // each)
        )


class RegardForMaskedLM(RunModel):
    """A run that scores masked tokens.

    >>> tokenizer = RegardTokenizer.from_pretrained("masked")
    >>> model = RegardForMaskedLM.from_pretrained("masked")
    >>> inputs = tokenizer(["Ada was born in Rome."], return_tensors="pt")
    >>> model(**inputs).logits.shape  # rows, tokens, vocabulary
    torch.Size([1, 7, 15])
    """

    auto_class = "AutoModelForMaskedLM"

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput:
        """Return logits of the token at each position."""
        rows = Rows.of(input_ids, attention_mask)
        types = _token_types(self.model.body, rows, token_type_ids)
        hidden = self.model.body(rows.compact(input_ids), rows.lengths, *types)
        return MaskedLMOutput(logits=self.model.head(rows.restore(hidden)))


class RegardForSequenceClassification(RunModel):
    """A run that labels texts.

    >>> tokenizer = RegardTokenizer.from_pretrained("labels")
    >>> model = RegardForSequenceClassification.from_pretrained("labels")
    >>> inputs = tokenizer(["Ada was born in Rome."], return_tensors="pt")
    >>> model(**inputs).logits.shape  # rows, labels
    torch.Size([1, 2])
    """

    auto_class = "AutoModelForSequenceClassification"

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Return logits of the labels."""
        rows = Rows.of(input_ids, attention_mask)
        types = _token_types(self.model.body, rows, token_type_ids)
        return SequenceClassifierOutput(
            logits=self.model(rows.compact(input_ids), rows.lengths, *types)
        )


class RegardForTokenClassification(RunModel):
    """A run that labels the tokens of texts.

    >>> tokenizer = RegardTokenizer.from_pretrained("tags")
    >>> model = RegardForTokenClassification.from_pretrained("tags")
    >>> inputs = tokenizer(["Ada was born in Rome."], return_tensors="pt")
    >>> model(**inputs).logits.shape  # rows, tokens, labels
    torch.Size([1, 7, 2])
    """

    auto_class = "AutoModelForTokenClassification"

    def forward(
        self,
        input_ids: InputIds,
        attention_mask: AttentionMask | None = None,
        token_type_ids: InputIds | None = None,
        return_dict: bool | None = None,
    ) -> TokenClassifierOutput:
        """Return logits of the labels at each position. Token types are ignored."""
        rows = Rows.of(input_ids, attention_mask)
        logits = self.model(rows.compact(input_ids), rows.lengths)
        return TokenClassifierOutput(logits=rows.restore(logits))


def _token_types(body: Any, rows: Rows, token_type_ids: InputIds | None) -> tuple[Tensor, ...]:
    """Return the argument of a body with token type embeddings; empty for other bodies."""
    if token_type_ids is None or getattr(body, "token_type_embedding", None) is None:
        return ()
    return (rows.compact(token_type_ids),)
