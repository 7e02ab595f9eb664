"""Gated linear recurrences by the Triton kernels of flash-linear-attention, the extra `fla`.

    S_t = (D_t − x_t y_tᵀ) S_(t−1) + k_t u_tᵀ

is computed by one of its kernels, with a = y and b = −x. The delta rule reads the decayed state:
y = D_t b ⊙ k, and x = k. Updates that erase nothing use other kernels: simple GLA for one decay per
head, GLA for one decay per channel.
"""

from functools import cache
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.recurrence import Update

LOWEST = -80.0
"""Lower bound of log decays: kernels subtract their sums, and −∞ − −∞ is NaN."""
WIDEST = 256
"""Largest width of a key that the kernels support."""


@cache
def installed() -> bool:
    """Return whether flash-linear-attention is installed."""
    return find_spec("fla") is not None


def fits(query: Float[Tensor, "b h n d"], value: Float[Tensor, "b g n e"]) -> bool:
    """Return whether the kernels support a call: half precision, on a GPU, one query per state.

    In float32 they multiply in TF32, with errors of 1e-3. They can't be part of a compiled graph.
    """
    return (
        not torch.compiler.is_compiling()
        and value.is_cuda
        and value.dtype in (torch.bfloat16, torch.float16)
        and query.shape[1] <= value.shape[1]
        and query.shape[2] > 1
        and query.shape[3] <= WIDEST
        and installed()
    )


def scan(
    query: Float[Tensor, "b g 1 n d"],
    update: Update,
    state: Float[Tensor, "b g d e"],
    *,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "b g 1 n e"], Float[Tensor, "b g d e"]]:
    """Compute `recurrence.scan` by the kernels.

    Vectors are rounded to `dtype`; decays and the state remain in float32.
    """
    key, value, log_decay, read, erased = update
    log_decay = log_decay.clamp(min=LOWEST)
    if read is not None and erased is None:
        read, erased = read * log_decay.exp(), key
    vectors = [_by_token(x.to(dtype)) for x in (query.squeeze(2), key, value)]
    options = {"scale": 1.0, "initial_state": state, "output_final_state": True}
    if read is not None and erased is not None:
        from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule

        a, b = _by_token(read.to(dtype)), _by_token(-erased.to(dtype))
        decays = _by_token(log_decay.expand_as(key))
        out, last = chunk_dplr_delta_rule(*vectors, a, b, decays, **options)
    elif log_decay.shape[-1] == 1:
        from fla.ops.simple_gla import chunk_simple_gla

        out, last = chunk_simple_gla(*vectors, _by_token(log_decay).squeeze(-1), **options)
    else:
        from fla.ops.gla import chunk_gla

        out, last = chunk_gla(*vectors, _by_token(log_decay), **options)
    return out.transpose(1, 2)[:, :, None].to(query.dtype), last


def _by_token(x: Float[Tensor, "b g n d"]) -> Float[Tensor, "b n g d"]:
    """Transpose heads and tokens, as the kernels require."""
    return x.transpose(1, 2).contiguous()
