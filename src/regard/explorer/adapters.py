"""Adapters: the interface of models for the explorer, and the adapter of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.gating import Gating
from regard.decoding import generate_ids
from regard.decoding.generate import Prompts, encode_prompts
from regard.errors import UserError
from regard.explorer.attention_maps import (
    ANSWER,
    AttentionMap,
    PositionInfo,
    Prediction,
    gather_maps,
    kind_of,
    most_probable,
)
from regard.explorer.gradients import Gradient, text_loss, weight_gradients
from regard.explorer.intercept import capture_attention, intercept
from regard.models.attention_layers import CrossAttention, SelfAttention
from regard.models.builders import Classifier, LanguageModel, SequenceToSequence
from regard.models.head_config import ClassificationHeadConfig
from regard.models.layers import Layer
from regard.models.perceiver import PerceiverDecoder
from regard.models.transformer import Transformer
from regard.runs.run import Run

HUGGING_FACE = "hf:"
"""Prefix of Hugging Face model names; any other name is a run folder."""
QUESTION_MARKS = ("?", "？", "؟")
MAX_GENERATED = 24
"""Largest number of tokens that an encoder–decoder generates if no target is given."""

ModelInputs: TypeAlias = tuple[Sequence[Any], list[int], list[int], int | None]
"""A model's inputs, the ids of source and target, and the position of the second of two texts."""


class Adapter(Protocol):
    """A model whose attention can be shown."""

    @property
    def name(self) -> str:
        """Name on pages."""

    @property
    def device(self) -> torch.device:
        """Device of the model."""

    @property
    def max_tokens(self) -> int | None:
        """Largest number of tokens of a text, without special tokens; None if unlimited."""

    @property
    def regular_token_ids(self) -> Sequence[int]:
        """Ids of all tokens except the special ones."""

    def attention_maps(self, text: str, second: str | None = None) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to one text or two."""

    def prediction(self, text: str, second: str | None = None) -> Prediction | None:
        """Return the next tokens or labels that the model predicts; None if it predicts neither."""

    def token_text(self, token: int) -> str:
        """Return a token as text, a special one by its name."""

    def prompt(self, text: str, *, raw: bool = False) -> Prompts:
        """Return the prompt for generation after a text; `raw`: without the model's template."""

    def maps_of_generated(
        self, text: str, generated: Sequence[int], *, raw: bool = False
    ) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to a text and the tokens that continue it."""

    def map_of_ids(self, ids: Sequence[int]) -> tuple[AttentionMap, int]:
        """Return the attention of the first stack to tokens, and the first token's position."""

    def gradients(self, text: str) -> Sequence[Gradient]:
        """Return ∂L/∂A of the loss of a text for each layer of the first stack."""

    def untrained(self) -> "Adapter":
        """Return the same model before its training."""


def require_characters(*texts: str | None) -> None:
    """Raise if a text is empty."""
    if "" in texts:
        raise UserError("a text is empty; attention needs at least one token")


def require_fit(tokens: int, context_length: int | None, what: str) -> None:
    """Raise if a text has more tokens than the model's context."""
    if context_length is not None and tokens > context_length:
        raise UserError(
            f"{what} has {tokens} tokens, more than the model's context length of "
            f"{context_length}; shorten it"
        )


def require_tokens(ids: Sequence[int], vocabulary: int) -> None:
    """Raise if a token isn't in the model's vocabulary."""
    if max(ids, default=0) >= vocabulary:
        raise UserError("these tokens aren't in this model's vocabulary; generate again")


@dataclass(frozen=True, eq=False)
class RunAdapter:
    """Adapter of a run; see `Adapter`."""

    run: Run

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.run.path.name

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.run.device

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of a text, or of a sequence-to-sequence model's source."""
        return self.run.max_text_tokens

    @property
    def regular_token_ids(self) -> Sequence[int]:
        """Ids of all tokens except the special ones."""
        return self.run.tokenizer.regular_ids

    def attention_maps(self, text: str, second: str | None = None) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to one text or two.

        Raises:
            UserError: a text can't be encoded or is too long, or the model has no attention.
        """
        return self._maps(*self._encode(text, second))

    @torch.inference_mode()
    def prediction(self, text: str, second: str | None = None) -> Prediction | None:
        """Return the most probable next tokens of a language model, or labels of a classifier.

        Raises:
            UserError: a text can't be encoded or is too long.
        """
        model, recipe = self.run.model, self.run.recipe
        if isinstance(model, LanguageModel):
            (ids, *_), row, *_ = self._encode(text, second)
            logits, _ = model.extend(ids, model.init_state(1, len(row)))
            kind = ANSWER if second is None and self._is_question(text) else "next token"
            return most_probable(kind, logits[0], self.token_text)
        if isinstance(model, Classifier) and isinstance(recipe.head, ClassificationHeadConfig):
            inputs, *_ = self._encode(text, second)
            return most_probable("label", model(*inputs)[0], recipe.head.labels.__getitem__)
        return None

    def token_text(self, token: int) -> str:
        """Return a token as text, a special one by its name."""
        return self.run.tokenizer.token_text(token)

    def prompt(self, text: str, *, raw: bool = False) -> Prompts:
        """Return the prompt for the answer or continuation of a text; `raw`: without a template.

        Raises:
            UserError: the run doesn't generate, or can't read the text.
        """
        return encode_prompts(self.run, [text], raw=raw)

    def maps_of_generated(
        self, text: str, generated: Sequence[int], *, raw: bool = False
    ) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to a text and the tokens that continue it.

        Raises:
            UserError: the run doesn't generate, can't read the text, or doesn't have these tokens.
        """
        require_tokens(generated, self.run.tokenizer.size)
        (start,) = self.prompt(text, raw=raw).starts
        # When the context is full, the model never reads the last token that it generated.
        ids = [*start, *generated][: self.run.recipe.model.context_length]
        source = self.run.encode(text)[0] if self._has_target else ids
        target = ids if self._has_target else []
        return self._maps(self._inputs(source, target), source, target)

    def map_of_ids(self, ids: Sequence[int]) -> tuple[AttentionMap, int]:
        """Return the attention of the first stack to tokens, and the first token's position.

        Raises:
            UserError: the model has no attention.
        """
        affixes = self.run.text_affixes
        source = affixes.around(ids)
        target = self.run.template.open_target() if self._has_target else []
        return self._maps(self._inputs(source, target), source, target)[0], len(affixes.prefix)

    def _maps(
        self,
        inputs: Sequence[Tensor],
        source: Sequence[int],
        target: Sequence[int],
        second: int | None = None,
    ) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to a model's inputs, which these ids form."""
        self._require_tokens_alone()
        body = self.run.model.body
        records = capture_attention(body, *inputs)
        if not records:
            raise UserError(f"{self.run.path}: this model has no attention")
        shown, target_shown = (list(map(self.token_text, ids)) for ids in (source, target))
        maps = gather_maps(records, shown, target_shown, second)
        return tuple(with_layer_context(one, body) for one in maps)

    def gradients(self, text: str) -> list[Gradient]:
        """Return ∂L/∂A of the loss of a text for each layer of the first stack.

        Raises:
            UserError: the text can't be encoded, or has no loss.
        """
        self._require_tokens_alone()
        model = self.run.model
        inputs, *_ = self._encode(text)
        loss = partial(text_loss, model, *inputs)
        found = weight_gradients(loss, partial(intercept, model.body))
        first, *_ = (kind_of(one.layer, self._has_target) for one in found)
        return [one for one in found if kind_of(one.layer, self._has_target) == first]

    def _require_tokens_alone(self) -> None:
        if isinstance(self.run.model.body, PerceiverDecoder):
            raise UserError(
                f"{self.run.path}: model.kind=perceiver attends to latents, which aren't tokens; "
                "choose a run of another kind"
            )

    def untrained(self) -> "RunAdapter":
        """Return the same run before its training."""
        return RunAdapter(untrained_run(self.run))

    @property
    def _has_target(self) -> bool:
        return isinstance(self.run.model, SequenceToSequence)

    def _is_question(self, text: str) -> bool:
        """Return whether a text is a question, and the run was trained to answer questions."""
        run = self.run
        answers = isinstance(run.model, LanguageModel) and run.recipe.task is None
        return answers and run.answers_questions and text.rstrip().endswith(QUESTION_MARKS)

    def _encode(self, text: str, second: str | None = None) -> ModelInputs:
        require_characters(text, second)
        return (self._encode_pair if self._has_target else self._encode_text)(text, second)

    def _encode_text(self, text: str, second: str | None) -> ModelInputs:
        """Encode one text or two as one sequence."""
        run = self.run
        if second is None and self._is_question(text):
            (ids,) = self.prompt(text).starts
            return self._inputs(ids), ids, [], None
        ids, types = run.encode(text, second)
        require_fit(len(ids), run.recipe.model.context_length, "the text")
        inputs = self._inputs(ids)
        if second is not None and run.recipe.uses_token_types:
            inputs.append(self._tensor(types))
        return inputs, ids, [], types.index(1) if second else None

    def _encode_pair(self, text: str, second: str | None) -> ModelInputs:
        """Encode a source and its target, given or generated."""
        model, context_length = self.run.model, self.run.recipe.model.context_length
        assert isinstance(model, SequenceToSequence)
        template = self.run.template
        source, _ = self.run.encode(text)
        require_fit(len(source), self.run.recipe.max_source_tokens, "the text")
        if second is None:
            (found,) = generate_ids(
                model.condition(*self._inputs(source)),
                [template.open_target()],
                max_new_tokens=min(MAX_GENERATED, context_length - 1),
                stop_ids=self.run.tokenizer.special.stop_ids,
                device=self.run.device,
            )
            target = template.open_target(found.ids)
        else:
            target = template.open_target(self.run.tokenizer.encode(second))
            require_fit(len(target), context_length, "the second text")
        return self._inputs(source, target), source, target, None

    def _inputs(self, source: Sequence[int], target: Sequence[int] = ()) -> list[Tensor]:
        """Return one row and its length, and the target row if there is a target."""
        length = torch.tensor([len(source)], device=self.run.device)
        return [self._tensor(source), length, *([self._tensor(target)] if target else [])]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self.run.device)


def untrained_run(run: Run) -> Run:
    """Return the same run before its training."""
    name = f"{run.path.name}, untrained"
    fresh = Run.new(run.path.with_name(name), run.recipe, run.tokenizer, run.origin)
    fresh.model.to(run.device).eval()
    return fresh


@torch.no_grad()
def with_layer_context(one: AttentionMap, model: nn.Module) -> AttentionMap:
    """Return a map with the output projections and positions of the model that was captured."""
    layers = tuple(
        replace(layer, projection=_projection(model, layer.record.layer)) for layer in one.layers
    )
    return replace(one, layers=layers, position_info=_position_info(model, one))


def _projection(model: nn.Module, layer: str) -> Float[Tensor, "d_model heads_e"] | None:
    parent = model.get_submodule(layer.rpartition(".")[0])
    if not isinstance(parent, SelfAttention | CrossAttention):
        return None
    gating = parent.gating
    if gating is not None and type(gating).finish is not Gating.finish:  # v W_O isn't the output
        return None
    return parent.o_proj.weight.detach()


def _position_info(model: nn.Module, one: AttentionMap) -> PositionInfo:
    """Return the positions of the stack with a map's layers; a rotation only if they share it."""
    owner, found, rest = one.layers[0].record.layer.rpartition("layers.")
    stack = model.get_submodule(owner.rstrip(".")) if found else None
    if not (isinstance(stack, Transformer) and "self_attention" in rest):
        return PositionInfo()
    places = torch.arange(len(one.queries), device=stack.embedding.weight.device)
    paths = (layer.record.layer.rpartition("layers.")[2] for layer in one.layers)
    layers = {int(path.partition(".")[0]) for path in paths}
    parts = {cast(Layer, stack.layers[i]).self_attention.rotary_parts for i in layers}
    rotation, (kind, *others) = None, {stack.rotary_of[i] for i in layers}
    if kind is not None and not others and parts == {1}:
        cos, signed_sin = stack.rotary[kind](places[None], torch.float32)
        rotation = (cos[0, 0], signed_sin[0, 0])
    return PositionInfo(None if stack.absolute is None else stack.absolute(places), rotation)
