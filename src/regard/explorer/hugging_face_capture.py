"""The attention that a model of Hugging Face applied, taken while it runs on torch's fast kernel.

transformers calls a model's attention by name and lets others register theirs (AttentionInterface).
Ours computes what "sdpa" does, by its very function, and tells what that was given and gave.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from regard.attention import Mask, Softmax
from regard.attention.base import ScoreMod
from regard.errors import UserError
from regard.explorer.capture import Captured, checked

NAME = "sdpa_told"
"""With "sdpa" in the name, transformers refuses it for models that can't use that kernel."""
Note: TypeAlias = Callable[[Captured], Tensor]
"""Is told what each layer did, and gives the output that the model goes on with."""
_NOTE = "_regard_note"
"""What an attention layer calls with its inputs and its output, while it is looked at."""
_UNKNOWN_TO_SDPA = ("softcap", "s_aux")
"""What some models do to their scores; "sdpa" has no place for it."""


@torch.inference_mode()
def capture_hugging_face(model: PreTrainedModel, **inputs: Tensor) -> list[Captured]:
    """Run the model on its inputs and return the attention of each layer, first to last.

    Raises:
        MismatchError: weights · values isn't what the kernel gave: the picture would be wrong.
        UserError: the attention of such models can't be replaced by name.
    """
    with recorded_hugging_face(model) as captured:
        model(**inputs)
    return captured


@contextmanager
def recorded_hugging_face(model: PreTrainedModel) -> Iterator[list[Captured]]:
    """What the attention of a model does in the with block, in the order in which it does it.

    Raises:
        MismatchError: weights · values isn't what the kernel gave.
        UserError: the attention of such models can't be replaced by name.
    """
    captured: list[Captured] = []

    def note(one: Captured) -> Tensor:
        captured.append(one)
        return one.out

    with noted(model, note):
        yield captured


@contextmanager
def noted(model: PreTrainedModel, note: Note) -> Iterator[None]:
    """Each layer that attends tells what it did in the with block.

    Raises:
        MismatchError: weights · values isn't what the kernel gave.
        UserError: the attention of such models can't be replaced by name.
    """
    with _interface(model):
        for name, module in model.named_modules():
            vars(module)[_NOTE] = partial(_told, name, note)
        try:
            yield
        finally:
            for module in model.modules():
                vars(module).pop(_NOTE, None)


class ScaledSoftmax(Softmax):
    """Softmax attention whose scores are multiplied by a number of the model's own."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def scale(self, d: int) -> float:
        del d
        return self.factor


@dataclass(frozen=True, eq=False)
class GivenBias:
    """A bias that is there as a tensor."""

    values: Float[Tensor, "batch heads queries keys"]

    def dense(
        self, query_positions: Int[Tensor, "*rows queries"], key_positions: Int[Tensor, " keys"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        return self.values[..., query_positions[..., None], key_positions]

    def score_mod(self) -> ScoreMod:
        return lambda score, row, head, query, key: score + self.values[row, head, query, key]


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """What transformers calls for each layer."""
    for wish in _UNKNOWN_TO_SDPA:
        if settings.get(wish) is not None:
            raise UserError(f"{type(module).__name__} uses {wish}, which torch's kernel can't")
    out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    told = vars(module).get(_NOTE)
    if told is None:
        return out, None
    out = told(module, query, key, value, attention_mask, out.transpose(1, 2), settings)
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def _interface(model: PreTrainedModel) -> Iterator[None]:
    """The model calls `_attend` in the with block, and afterwards what it called before."""
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    before = [(one.config, one.config._attn_implementation) for one in models]
    refusal = (
        f"the attention of a {model.config.model_type} can't be watched: transformers doesn't let "
        "its kernel be replaced by name; choose a model that can use sdpa and AttentionInterface"
    )
    try:
        try:
            model.set_attn_implementation(NAME)
        except ValueError:
            raise UserError(refusal) from None
        if model.config._attn_implementation != NAME:
            raise UserError(refusal)
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name


def _told(
    name: str,
    note: Note,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    out: Tensor,
    settings: dict[str, Any],
) -> Tensor:
    """What the layer's output is, after what it did was checked and noted."""
    scaling, position_bias = settings.get("scaling"), settings.get("position_bias")
    factor = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    shape = (len(query), query.shape[1], query.shape[2], key.shape[2])
    mask = _mask(module, query, attention_mask, settings.get("is_causal"))
    bias = _bias(attention_mask, position_bias, shape)
    mechanism = ScaledSoftmax(factor).eval()
    return note(checked(name, mechanism, query, key, value, out, mask=mask, bias=bias))


def _mask(
    module: nn.Module, query: Tensor, attention_mask: Tensor | None, is_causal: bool | None
) -> Mask | None:
    """Who may look at whom, as transformers' `sdpa_attention_forward` understands its inputs."""
    if attention_mask is not None:
        return Mask.dense(_allowed(attention_mask))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return Mask.causal() if causal and query.shape[2] > 1 else None


def _allowed(attention_mask: Tensor) -> Bool[Tensor, "#batch #heads queries keys"]:
    """A mask is boolean, or is added to the scores: hugely negative where nobody may look."""
    if attention_mask.dtype == torch.bool:
        return attention_mask
    return attention_mask > torch.finfo(attention_mask.dtype).min / 2


def _bias(
    attention_mask: Tensor | None, position_bias: Tensor | None, shape: tuple[int, ...]
) -> GivenBias | None:
    """What is added to the scores beside the mask; models that have no bias may add zeros."""
    parts = [] if position_bias is None else [position_bias]
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        parts.append(attention_mask.masked_fill(~_allowed(attention_mask), 0.0))
    given = [part.expand(shape) for part in parts if part.any()]
    return GivenBias(torch.stack(given).sum(0)) if given else None
