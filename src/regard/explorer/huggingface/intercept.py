"""Intercept the attention of a Hugging Face model while it runs on torch's fast kernel.

transformers looks up a model's attention by name and accepts registered functions
(AttentionInterface). The registered function computes "sdpa" with transformers' own function and
makes a record.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from regard.attention import Mask, Softmax
from regard.attention.types import KeyPositions, QueryPositions, ScoreMod
from regard.errors import UserError
from regard.explorer.huggingface.recurrences import intercept_recurrences, recurrent_layers
from regard.explorer.intercept import Handler, make_record

NAME = "sdpa_intercepted"
"""With "sdpa" in the name, transformers refuses it for models that don't support that kernel."""
_HANDLER = "_regard_handler"
"""The attribute of an intercepted layer: its name, and the handler of its record."""
_UNSUPPORTED = ("softcap", "s_aux")
"""Changes to the scores that "sdpa" doesn't support."""


@contextmanager
def intercept_huggingface(model: PreTrainedModel, handler: Handler) -> Iterator[None]:
    """Call the handler for each layer that attends in the with block.

    Raises:
        MismatchError: weights · values isn't the output of the kernel.
        UserError: the model's attention can't be replaced by name.
    """
    recurrent = recurrent_layers(model)
    with ExitStack() as changed:
        if recurrent:
            changed.enter_context(intercept_recurrences(recurrent, handler))
        if not recurrent or model._supports_sdpa:
            changed.enter_context(_registered(model))
        for name, module in model.named_modules():
            vars(module)[_HANDLER] = name, handler
        try:
            yield
        finally:
            for module in model.modules():
                vars(module).pop(_HANDLER, None)


class ScaledSoftmax(Softmax):
    """Softmax attention with the model's own scale."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def scale(self, d: int) -> float:
        return self.factor


@dataclass(frozen=True, eq=False)
class GivenBias:
    """A bias given as a tensor."""

    values: Float[Tensor, "batch heads queries keys"]

    def dense(
        self, query_positions: QueryPositions, key_positions: KeyPositions
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
    """Compute the attention of a layer: the function that transformers calls."""
    for option in _UNSUPPORTED:
        if settings.get(option) is not None:
            raise UserError(
                f"{type(module).__name__} uses {option}, which torch's kernel doesn't support"
            )
    out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    if _HANDLER not in vars(module):
        return out, None
    name, handler = vars(module)[_HANDLER]
    scaling = settings.get("scaling")
    factor = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    mechanism, out = ScaledSoftmax(factor).eval(), out.transpose(1, 2)
    mask = _mask(module, query, attention_mask, settings.get("is_causal"))
    shape = (*query.shape[:3], key.shape[2])
    bias = _bias(attention_mask, settings.get("position_bias"), shape)
    record = make_record(name, mechanism, (query, key, value), out, mask=mask, bias=bias)
    return handler(record).transpose(1, 2), None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def _registered(model: PreTrainedModel) -> Iterator[None]:
    """Make the model call `_attend` in the with block."""
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    before = [(one.config, one.config._attn_implementation) for one in models]
    message = (
        f"the attention of {model.config.model_type} models can't be intercepted: transformers "
        "doesn't allow another kernel; choose a model that supports sdpa and AttentionInterface"
    )
    try:
        try:
            model.set_attn_implementation(NAME)
        except ValueError:
            raise UserError(message) from None
        if model.config._attn_implementation != NAME:
            raise UserError(message)
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name


def _mask(
    module: nn.Module, query: Tensor, attention_mask: Tensor | None, is_causal: bool | None
) -> Mask | None:
    """Return the mask, with the semantics of transformers' `sdpa_attention_forward`."""
    if attention_mask is not None:
        return Mask.dense(_allowed(attention_mask))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return Mask.causal() if causal and query.shape[2] > 1 else None


def _allowed(attention_mask: Tensor) -> Bool[Tensor, "#batch #heads queries keys"]:
    """Return a boolean mask from one that is boolean, or additive with large negative numbers."""
    if attention_mask.dtype == torch.bool:
        return attention_mask
    return attention_mask > torch.finfo(attention_mask.dtype).min / 2


def _bias(
    attention_mask: Tensor | None, position_bias: Tensor | None, shape: tuple[int, ...]
) -> GivenBias | None:
    """Return the bias without the mask; None if it is zero, as some models add zeros."""
    parts = [] if position_bias is None else [position_bias]
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        parts.append(attention_mask.masked_fill(~_allowed(attention_mask), 0.0))
    given = [part.expand(shape) for part in parts if part.any()]
    return GivenBias(torch.stack(given).sum(0)) if given else None
