"""Edit states of linear attention and of recurrences, token by token.

The state of kernel attention is Σ φ(k) vᵀ with Σ φ(k) as its last column; that of a recurrence is
S. Shapes: b rows, h states, n tokens, s elements of a state, e width of a value.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import AnyBias, Attention, State
from regard.attention.gated import RecurrentAttention, RecurrentState
from regard.attention.gates import Gates
from regard.attention.kernel import KernelAttention, KernelState
from regard.attention.types import Keys, Outputs, Queries, Values

Numbers: TypeAlias = Float[Tensor, "b h 1 s"]
StateHandler: TypeAlias = Callable[[Numbers, int], Numbers]
"""Receives the state after a token and the token's index; returns the state for the next tokens.
The token's own output was computed before."""


def state_width(mechanism: Attention, d: int, e: int) -> int | None:
    """Return the number of elements of a head's state; None if the state keeps all tokens."""
    if not isinstance(mechanism, RecurrentAttention | KernelAttention):
        return None
    cpu = torch.device("cpu")
    empty = mechanism.init_state(1, 1, d, e, capacity=1, device=cpu, dtype=torch.float32)
    return _numbers(empty).shape[-1]


def step_through(
    mechanism: Attention,
    inputs: tuple[Queries, Keys, Values],
    bias: AnyBias | None,
    gates: Gates,
    handler: StateHandler,
) -> Outputs:
    """Return the output of causal attention whose state a handler edits after each token."""
    query, key, value = inputs
    b, heads, n, e = value.shape
    state = mechanism.init_state(
        b, heads, key.shape[-1], e, capacity=n, device=value.device, dtype=value.dtype
    )
    outputs = []
    for t in range(n):
        at = slice(t, t + 1)
        out, state = mechanism.extend(
            query[:, :, at],
            key[:, :, at],
            value[:, :, at],
            state,
            bias=bias,
            gates={name: gate[:, :, at] for name, gate in gates.items()},
        )
        outputs.append(out)
        state = _with_numbers(state, handler(_numbers(state), t))
    return torch.cat(outputs, 2)


def _numbers(state: State) -> Numbers:
    """Return the elements of a state; kernel sums times exp(their maximum), in float64."""
    if isinstance(state, KernelState):
        sums = state.sums.double() * state.maximum.double().exp()[..., None, None]
        return sums.flatten(2)[:, :, None]
    assert isinstance(state, RecurrentState)
    return state.matrix.flatten(2)[:, :, None]


def _with_numbers(state: State, numbers: Numbers) -> State:
    """Return a state with these elements."""
    if isinstance(state, KernelState):
        sums = numbers.view(state.sums.shape) / state.maximum.double().exp()[..., None, None]
        return state._replace(sums=sums.to(state.sums.dtype))
    assert isinstance(state, RecurrentState)
    return state._replace(matrix=numbers.view(state.matrix.shape))
