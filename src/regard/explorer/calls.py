"""Intercept calls of attention mechanisms before they are computed.

A handler receives every call: on whole sequences, on new tokens with a decoding state, and on an
encoded memory. It computes the call on the model's own kernel, or changes it first. Attention
weights are computed only if the handler asks for them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import AnyBias, Attention, Mask, State
from regard.attention.backends import repeat_kv
from regard.attention.gates import NO_GATES, Gates
from regard.attention.state import RowState, last_by_head
from regard.attention.types import (
    KeyPositions,
    Keys,
    Outputs,
    PositionedBias,
    Queries,
    QueryPositions,
    Values,
    Weights,
)
from regard.errors import UnsupportedError, UserError
from regard.explorer.states import StateHandler, step_through


def mechanisms(model: nn.Module) -> Iterator[tuple[str, Attention]]:
    """Yield the outermost attention mechanisms of a model, without those inside another one."""
    found: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, Attention) and not any(name.startswith(f"{n}.") for n in found):
            found.append(name)
            yield name, module


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """The inputs of a call of a mechanism."""

    layer: str
    mechanism: Attention
    query: Queries
    """Queries as the mechanism receives them, after any rotation by position."""
    key: Keys
    value: Values
    mask: Mask | None
    bias: AnyBias | None
    gates: Gates

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of the call."""
        return {"mask": self.mask, "bias": self.bias, "gates": self.gates}

    @property
    def positions(self) -> tuple[QueryPositions, KeyPositions]:
        """Positions of the queries and of the keys."""
        keys, device = self.key.shape[2], self.key.device
        queries = (self.mask or Mask()).query_positions(self.query.shape[2], keys, device)
        return queries, torch.arange(keys, device=device)

    @property
    def added(self) -> PositionedBias | None:
        """The bias at these positions."""
        return None if self.bias is None else PositionedBias(self.bias, *self.positions)


@dataclass(frozen=True, eq=False)
class AttentionCall(AttentionInputs):
    """A call of a mechanism that isn't computed yet."""

    kernel: Callable[["AttentionCall"], Outputs]
    """Computes a call: the next handler, or the model's own kernel."""
    given_weights: Weights | None = None
    """Weights that replace those computed from queries and keys."""
    on_state: StateHandler | None = None
    """Edits the states of linear attention and recurrences; the call then runs token by token."""

    def compute(self) -> Outputs:
        """Return the output of the model's own kernel, or that of given weights."""
        return self.kernel(self)

    def require_weights(self) -> None:
        """Check that the call has attention weights.

        Raises:
            UnsupportedError: states are edited.
        """
        if self.on_state is not None:
            raise UnsupportedError(
                f"{self.layer}: its states are edited, so that there are no weights to show or to "
                "edit; edit heads or values instead of states"
            )

    def weights(self) -> Weights:
        """Return the weights: a matrix of queries × keys for each head.

        Raises:
            UnsupportedError: states are edited.
        """
        self.require_weights()
        if self.given_weights is not None:
            return self.given_weights
        return self.mechanism.weights(self.query, self.key, **self.options)

    def output_from(self, weights: Weights) -> Outputs:
        """Return the output for these weights, in the dtype of the values."""
        value = self.mechanism.gated_values(self.value, self.gates)
        return weighted_values(weights, value, self.added).to(self.value.dtype)


def weighted_values(weights: Weights, value: Values, added: PositionedBias | None) -> Outputs:
    """Return Σ_j A_ij (v_j + a^V_ij); a^V is 0 unless the bias adds vectors to the values."""
    out = weights @ repeat_kv(value, weights.shape[1]).to(weights.dtype)
    return out if added is None else out + added.gather(weights)


CallHandler: TypeAlias = Callable[[AttentionCall], Tensor]
"""Receives each call and returns the output with which the model continues."""


@contextmanager
def intercept_calls(
    modules: Iterable[tuple[str, Attention]], handler: CallHandler
) -> Iterator[None]:
    """Call the handler for each call of named mechanisms in the with block.

    In decoding, each step is a call on the whole text so far, the same call as without a cache:
    the state keeps queries, keys, values and gates. In nested blocks, the outer handler receives a
    call first; its `compute` calls the inner handler.
    """
    with ExitStack() as intercepted:
        for name, module in modules:
            intercepted.enter_context(_intercepted(name, module, handler))
        yield


@contextmanager
def _intercepted(name: str, module: Attention, handler: CallHandler) -> Iterator[None]:
    owner = getattr(vars(module).get("forward"), "__self__", None)
    if isinstance(owner, _Handled):
        owner.handlers.append((name, handler))
        try:
            yield
        finally:
            owner.handlers.remove((name, handler))
        return
    with replaced(module, **_Handled(name, module, handler).methods):
        yield


class _Handled:
    """The methods of a mechanism whose calls go to handlers."""

    def __init__(self, name: str, module: Attention, handler: CallHandler) -> None:
        self.name, self.module, self.handlers = name, module, [(name, handler)]
        self._forward, self._encode = module.forward, module.encode_memory
        self._attend = module.attend_memory

    @property
    def methods(self) -> dict[str, Callable[..., Any]]:
        return {name: getattr(self, name) for name in METHODS}

    def _handle(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Mask | None,
        bias: AnyBias | None,
        gates: Gates,
        kernel: Callable[[AttentionCall], Tensor],
    ) -> Tensor:
        def compute(call: AttentionCall) -> Tensor:
            if call.given_weights is not None:
                return call.output_from(call.weights())
            if call.on_state is None:
                return kernel(call)
            vectors = call.query, call.key, call.value
            return step_through(call.mechanism, vectors, call.bias, call.gates, call.on_state)

        for name, handler in reversed(self.handlers):
            compute = partial(_handled, name, handler, compute)
        call = AttentionCall(self.name, self.module, *inputs, mask, bias, gates, compute)
        with replaced(self.module, *METHODS):  # forward may call encode_memory itself
            return call.compute()

    def _kernel(self, call: AttentionCall) -> Tensor:
        out: Tensor = self._forward(call.query, call.key, call.value, **call.options)
        return out

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Mask | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
    ) -> Tensor:
        return self._handle((query, key, value), mask, bias, gates, self._kernel)

    def encode_memory(self, key: Tensor, value: Tensor, *, mask: Mask | None = None) -> State:
        return ReadMemory(self._encode(key, value, mask=mask), key, value, mask)

    def attend_memory(self, query: Tensor, memory: State) -> Tensor:
        if not isinstance(memory, ReadMemory):
            raise _older(self.name)
        key, value, mask = memory.key, memory.value, memory.mask

        def read(call: AttentionCall) -> Tensor:
            if call.key is key and call.value is value and call.mask is mask:
                return self._attend(call.query, memory.encoded)
            return self._kernel(call)

        return self._handle((query, key, value), mask, None, NO_GATES, read)

    def init_state(
        self, batch: int, *_: int, window_size: int | None = None, **given: Any
    ) -> State:
        features = ("decoding",) if window_size is None else ("decoding", "window_size")
        self.module.require_support(*features)
        length = torch.zeros(batch, dtype=torch.long, device=given["device"])
        return History((), length, window_size)

    def extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        *,
        attention_mask: Tensor | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
        last: bool = False,
    ) -> tuple[Tensor, State]:
        if not isinstance(state, History):
            raise _older(self.name)
        grown = state.append((query, key, value, *gates.values()), attention_mask)
        queries, keys, values, *others = grown.tokens
        known = dict(zip(gates, others, strict=True))
        mask = Mask(alignment="start", window_size=grown.window_size)
        out = self._handle((queries, keys, values), mask, bias, known, self._kernel)
        new = state.new_of(out, query.shape[2])
        return last_by_head(new, attention_mask) if last else new, grown


def _handled(
    name: str,
    handler: CallHandler,
    kernel: Callable[[AttentionCall], Tensor],
    call: AttentionCall,
) -> Tensor:
    """Pass a call to a handler, with the handler's name of the layer and a kernel to compute it."""
    return handler(replace(call, layer=name, kernel=kernel))


def _older(name: str) -> UserError:
    return UserError(f"{name}: the decoding state is older than the interception; create it inside")


@dataclass(frozen=True, eq=False)
class ReadMemory(RowState):
    """An encoded memory with its keys and values."""

    encoded: State
    key: Keys
    value: Values
    mask: Mask | None

    @property
    def length(self) -> Tensor:
        """Number of tokens of each row."""
        return self.encoded.length


@dataclass(frozen=True, eq=False)
class History(RowState):
    """Queries, keys, values and gates of all tokens so far.

    Rows with fewer tokens repeat their last one.
    """

    tokens: Sequence[Float[Tensor, "batch heads n *d"]]
    length: Int[Tensor, " batch"]
    window_size: int | None

    def append(
        self,
        new: tuple[Float[Tensor, "batch heads new *d"], ...],
        attention_mask: Bool[Tensor, "batch new"] | None,
    ) -> "History":
        """Return the state with new tokens, without padding."""
        n = new[0].shape[2]
        added = torch.full_like(self.length, n) if attention_mask is None else attention_mask.sum(1)
        length = self.length + added
        old = self.tokens[0].shape[2] if self.tokens else 0
        places = torch.arange(int(length.max()), device=length.device)
        places = torch.minimum(places, (length - 1).clamp_min(0)[:, None])
        before = self.length[:, None]
        source = torch.where(places < before, places, old + places - before)
        every = zip(self.tokens, new, strict=True) if self.tokens else ((x,) for x in new)
        tokens = tuple(_take(torch.cat(parts, 2), source) for parts in every)
        return History(tokens, length, self.window_size)

    def new_of(
        self, out: Float[Tensor, "batch heads n e"], new: int
    ) -> Float[Tensor, "batch heads new e"]:
        """Return the outputs of the tokens that were appended to this state."""
        places = self.length[:, None] + torch.arange(new, device=out.device)
        return _take(out, places.clamp(max=out.shape[2] - 1))


def _take(
    x: Float[Tensor, "batch heads n *d"], places: Int[Tensor, "batch m"]
) -> Float[Tensor, "batch heads m *d"]:
    """Return the tokens at the given positions of each row."""
    rows = torch.arange(len(x), device=x.device)[:, None]
    return x.transpose(1, 2)[rows, places].transpose(1, 2)


METHODS = ("forward", "encode_memory", "attend_memory", "init_state", "extend")


@contextmanager
def replaced(module: nn.Module, *restored: str, **methods: Callable[..., Any]) -> Iterator[None]:
    """Override methods of a module in the with block; `restored` ones are again the class's."""
    names = (*restored, *methods)
    before = {name: vars(module).pop(name) for name in names if name in vars(module)}
    vars(module).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(module)[name]
        vars(module).update(before)
