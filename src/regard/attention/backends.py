"""Kernels of softmax attention, and the table that chooses one for a call."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import product
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention import flex
from regard.attention.base import without_autocast
from regard.attention.mask import Mask
from regard.attention.types import AnyBias, Keys, Outputs, Queries, Values, adds_vectors
from regard.device import prefers_eager
from regard.dropout import Dropout


class Backend(Enum):
    """Ways to compute softmax attention."""

    FLEX = "FlexAttention"
    SDPA = "scaled_dot_product_attention"
    EAGER = "products and softmax one by one"
    WEIGHTS = "explicit weights"


Applies: TypeAlias = Callable[[Queries, Values, Mask | None, AnyBias | Tensor | None], bool]
"""Whether a back end applies to a call; mask and bias are those of `choose_backend`."""


class Row(NamedTuple):
    """A back end and the calls that it applies to."""

    backend: Backend
    devices: tuple[str, ...]
    """Device types: cpu, cuda or other."""
    requires: Literal["bias", "dropout"] | None
    """Argument that a call must have for the row to apply."""
    applies: Applies | None
    """None: it applies to every call."""
    reason: str


CPU, CUDA, ALL = ("cpu",), ("cuda",), ("cpu", "cuda", "other")
BACKENDS = (
    Row(
        Backend.WEIGHTS,
        ALL,
        "bias",
        lambda query, value, mask, bias: adds_vectors(bias),
        "vectors are added to the values by weight, and no kernel returns its weights",
    ),
    Row(
        Backend.EAGER,
        ALL,
        "dropout",
        None,
        "the dropout mask is a function of seed, step and row, which no kernel supports",
    ),
    Row(
        Backend.FLEX,
        CUDA,
        None,
        lambda query, value, mask, bias: flex.can_run(query, mask, bias),
        "a window, documents, blocks or a bias, without an n × n tensor",
    ),
    Row(
        Backend.EAGER,
        CPU,
        None,
        lambda query, value, mask, bias: query.size(-1) != value.size(-1),
        "a CPU's fused kernel requires values as wide as keys",
    ),
    Row(
        Backend.EAGER,
        CPU,
        "bias",
        lambda query, value, mask, bias: isinstance(bias, Tensor) and bias.requires_grad,
        "a CPU's fused kernel has no gradient for a bias",
    ),
    Row(
        Backend.EAGER,
        CPU,
        None,
        lambda query, value, mask, bias: prefers_eager(query, value),
        "faster on a CPU for short rows in bfloat16 and for one query of a large cache",
    ),
    Row(Backend.SDPA, ALL, None, None, "the fastest in all other cases"),
)
"""The back ends of softmax attention; the first row that applies decides."""


def possible_rows(rows: Sequence[Row]) -> dict[tuple[str, bool, bool], list[Row]]:
    """Return the rows that can apply on a kind of device, with or without bias and dropout."""
    return {
        (device, biased, dropped): [
            row
            for row in rows
            if device in row.devices
            and (biased or row.requires != "bias")
            and (dropped or row.requires != "dropout")
        ]
        for device, biased, dropped in product(ALL, (False, True), (False, True))
    }


POSSIBLE = possible_rows(BACKENDS)
"""Computed once, since decoding chooses a back end for each token and layer."""


def choose_backend(
    query: Queries,
    value: Values,
    *,
    mask: Mask | None = None,
    bias: AnyBias | Tensor | None = None,
    dropout: Dropout | None = None,
    device: str | None = None,
) -> Backend:
    """Return the back end of a call: that of the first row of `BACKENDS` that applies.

    Omit `mask` if it is already a tensor, which all back ends support. `bias` may be a tensor.
    `dropout` is that of the weights, if active; `device` defaults to that of the query.
    """
    if device is None:
        device = "cpu" if query.is_cpu else "cuda" if query.is_cuda else "other"
    for backend, _, _, applies, _ in POSSIBLE[device, bias is not None, dropout is not None]:
        if applies is None or applies(query, value, mask, bias):
            return backend
    raise AssertionError("the last row applies to every call")


def masked(
    query: Queries,
    key: Keys,
    value: Values,
    allowed: Bool[Tensor, "#batch #heads #queries #keys"] | None,
    add: Float[Tensor, "*#batch_heads queries keys"] | None,
    *,
    scale: float,
    dropout: Dropout | None = None,
) -> Outputs:
    """Return softmax attention under any mask and bias; zero for a query without allowed keys."""
    if (heads := query.size(1)) != key.size(1):
        plain = allowed is None and add is None and dropout is None
        # On a CPU, compiled loops repeat without copies. They read keys and values once for each
        # head, which is slower from four heads on (AMD EPYC, Zen 5, 4,096 keys).
        loops = query.is_cpu and torch.compiler.is_compiling() and heads == 2 * key.size(1)
        if plain and not loops and query.size(2) == 1 and query.size(3) == value.size(3):
            # Heads that share keys and values become queries of one head, without copies of them.
            grouped = query.view(len(query), key.size(1), -1, query.size(3))
            return sdpa(grouped, key, value, scale=scale).reshape(query.shape)
        key, value = repeat_kv(key, heads), repeat_kv(value, heads)
    if add is not None and add.ndim == 3:
        add = add[None]
    attend: Callable[..., Tensor] = sdpa
    if choose_backend(query, value, bias=add, dropout=dropout) is Backend.EAGER:
        attend = partial(eager, dropout=dropout)
    if allowed is None:
        return attend(query, key, value, add, scale=scale)
    alive = allowed.any(-1, keepdim=True)
    # A dead row is neutralized before the softmax: all its scores are zero, and all are allowed.
    query, allowed = query.masked_fill(~alive, 0.0), allowed | ~alive
    if add is None and attend is sdpa:
        add = allowed  # SDPA supports boolean masks
    else:
        barred = bars(allowed, query.dtype)
        add = barred if add is None else add + barred
        add = add.expand(*add.shape[:-1], key.shape[2])
    return attend(query, key, value, add, scale=scale).masked_fill(~alive, 0.0)


def causal(
    query: Queries,
    key: Keys,
    value: Values,
    mask: Mask,
    *,
    scale: float,
    dropout: Dropout | None = None,
) -> Outputs:
    """Return softmax attention of query i to the keys up to i, for `is_plain_causal` masks."""
    key, value = repeat_kv(key, query.shape[1]), repeat_kv(value, query.shape[1])
    if choose_backend(query, value, dropout=dropout) is not Backend.EAGER:
        return sdpa(query, key, value, causal=True, scale=scale)
    barred = bars(mask.to_dense(query.shape[2], key.shape[2], query.device), query.dtype)
    return eager(query, key, value, barred, scale=scale, dropout=dropout)


def is_plain_causal(mask: Mask, query: Tensor, key: Tensor) -> bool:
    """Whether query i attends to the keys up to i, and to nothing else."""
    starts = mask.shift(query.shape[2], key.shape[2]) == 0
    return starts and mask.restrictions == {"alignment"}


def eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    add: Tensor | None,
    *,
    scale: float,
    dropout: Dropout | None = None,
) -> Tensor:
    """Return attention without a fused kernel: products, softmax, dropout, weighted sums."""
    with without_autocast(query):
        weights = _eager_scores(query, key, add, scale).softmax(-1)
        weights = weights if dropout is None else dropout(weights)
        return (weights.mT * value).sum(2, keepdim=True) if _in_loops(weights) else weights @ value


_GPU_BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""Fastest first (H100, bfloat16); a call goes to the first that supports it."""


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    add: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float,
) -> Tensor:
    """Return attention by torch's kernel."""
    if not query.stride(-1) == key.stride(-1) == value.stride(-1) == 1:
        # Only the slowest kernel supports vectors that aren't contiguous.
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    attend = partial(F.scaled_dot_product_attention, query, key, value, add)
    if not query.is_cuda:
        # On a CPU, torch chooses the one fast kernel. An explicit choice is global state, which
        # isn't thread-safe.
        return attend(is_causal=causal, scale=scale)
    with sdpa_kernel(_GPU_BACKENDS, set_priority=True):
        return attend(is_causal=causal, scale=scale)


def repeat_kv(tensor: Tensor, heads: int) -> Tensor:
    """Repeat keys or values so that consecutive query heads share one."""
    group = heads // tensor.size(1)
    return tensor if group == 1 else tensor.repeat_interleave(group, dim=1)


def bars(allowed: Bool[Tensor, "*#batch_heads #queries #keys"], dtype: torch.dtype) -> Tensor:
    """Return an additive mask of scores: 0 for allowed keys, −∞ for others.

    It is small where all rows and heads share a mask, and the gradient of a sum costs nothing.
    """
    bars = torch.zeros(allowed.shape, device=allowed.device, dtype=dtype)
    return bars.masked_fill(~allowed, float("-inf"))


def _eager_scores(query: Tensor, key: Tensor, add: Tensor | None, scale: float) -> Tensor:
    """Return scaled products q·k plus `add`."""
    narrow = query.is_cpu and query.dtype == torch.bfloat16
    if narrow and add is not None and query.size(2) > 1 and add.shape[:-2].numel() == 1:
        # oneDNN scales and adds a matrix shared by rows and heads, without more passes over scores.
        shared, left, right = add.reshape(add.shape[-2:]), query.flatten(0, 1), key.flatten(0, 1)
        scores = torch.baddbmm(shared, left, right.mT, alpha=scale)
        return scores.view(*query.shape[:2], *scores.shape[1:])
    query = query * scale
    scores = (key * query).sum(-1).unsqueeze(2) if _in_loops(query) else query @ key.mT
    return scores if add is None else scores.add_(add)


def _in_loops(rows: Tensor) -> bool:
    """Whether products with a single row are compiled to loops, which fuse with adjacent loops."""
    return rows.size(2) == 1 and torch.compiler.is_compiling()
