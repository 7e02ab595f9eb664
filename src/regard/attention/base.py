"""The interface of every attention mechanism.

Public methods validate, private ones compute.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.config import Support, require_support
from regard.attention.cost import Cost, Shape
from regard.attention.gates import NO_GATES, Gate, Gates
from regard.attention.mask import Mask
from regard.attention.state import State, StateShape, last_by_head
from regard.attention.types import (
    AnyBias,
    Keys,
    Outputs,
    Queries,
    Values,
    Weights,
    adds_numbers,
    adds_vectors,
)

F = TypeVar("F", bound=Callable[..., Any])


def at_least_float32(x: Tensor) -> Tensor:
    """Convert a tensor to float32, unless it is in float64."""
    # The most frequent types return at once: a conversion to the same type takes time, too.
    if x.dtype in (torch.float32, torch.float64):
        return x
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor, unless it has the dtype: a call of `to` takes time even then."""
    return x if x.dtype == dtype else x.to(dtype)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of products with a weight, which autocast may lower."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which products keep the precision of their inputs.

    Without autocast it does nothing: entering `torch.autocast` would take as long as a product.
    """
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else _NULL_CONTEXT


_NULL_CONTEXT = nullcontext()


def assume_constant_result(function: F) -> F:
    """Do as `torch.compiler.assume_constant_result`, without importing the compiler (1.6 s)."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def as_static(tensor: Tensor) -> Tensor:
    """Do as `torch._dynamo.mark_static`, without importing the compiler.

    Else the sizes of a constant would be symbols that no input defines.
    """
    tensor._dynamo_static_indices = set(range(tensor.ndim))  # type: ignore[attr-defined]
    return tensor


class Attention(nn.Module, ABC):
    """An attention mechanism: weighted sums of values for queries.

    It owns the parameters of the mechanism, never the projections to queries, keys and values.
    Fewer key/value heads than query heads are allowed: consecutive query heads share one. Where
    `value_heads` is supported, consecutive value heads may also share a key head.
    Query i has position i, or i + keys - queries where the mask is aligned at the "end".

    A mechanism defines `_forward(query, key, value, mask, bias)`,
    `_weights(query, key, mask, bias)` and `cost`; `_init_state(shape)` and
    `_extend(query, key, value, state, attention_mask, bias)` if it supports decoding, and
    `_extend_last` with the same arguments where the output of the last token alone is faster;
    `_encode_memory` and `_attend_memory` if it supports cross-attention. Their inputs are
    validated. An optional `reference(query, key, mask, bias)` returns the matrix of `weights` in
    float64, straight from the formula; there, `bias` is a tensor. All of these methods except
    those of the memory receive the declared `gates` by name.

    >>> query = torch.randn(1, 4, 5, 8)  # batch, heads, tokens, width
    >>> key, value = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 16)
    >>> attention: Attention = Softmax()
    >>> attention(query, key, value, mask=Mask.causal()).shape
    torch.Size([1, 4, 5, 16])
    >>> attention.weights(query, key).shape
    torch.Size([1, 4, 5, 5])
    """

    name: ClassVar[str]
    supports: ClassVar[Support]
    """Supported features; equal to those of the configuration, if there is one."""
    queries_per_head: ClassVar[int] = 1
    """Number of consecutive query heads that become one head of weights and outputs."""
    gates: tuple[Gate, ...] = ()
    """Inputs per token, in addition to queries, keys and values."""
    has_auxiliary_loss: ClassVar[bool] = False
    """Whether calls in training compute an auxiliary loss."""
    auxiliary_losses: list[Tensor] | None = None
    """List to which calls in training append their losses, in nats, summed over tokens; or None."""
    gating: ClassVar[str] = "regard.attention.gating:Gating"
    """MODULE:CLASS of the projections to its gates, unless a configuration builds others."""

    def forward(
        self,
        query: Queries,
        key: Keys,
        value: Values,
        *,
        mask: Mask | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
    ) -> Outputs:
        """Return the weighted sum of values of each query; zero for a query without allowed keys.

        Raises:
            UnsupportedError: names the mechanism, the feature, and the mechanisms supporting it.
            ValueError: the shapes don't fit one another, or the gates aren't those declared.
            TypeError: the bias is neither `Bias` nor `RelativeVectors`, the mask is not a `Mask`,
                or the tensors differ in device or dtype.
        """
        _require_alike(query, key, value)
        self._validate(query, key, value, mask=mask, bias=bias, gates=gates)
        self._validate_alignment(mask)
        return self._forward(query, key, value, mask, bias, **gates)

    def weights(
        self,
        query: Queries,
        key: Keys,
        *,
        mask: Mask | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
    ) -> Weights:
        """Return the matrix that `forward` applies to the values in evaluation mode.

        With a gate per channel of the values, it applies to `gated_values`.
        """
        self._validate(query, key, mask=mask, bias=bias, gates=gates)
        self._validate_alignment(mask)
        return self._weights(query, key, mask, bias, **gates)

    def gated_values(self, value: Values, gates: Gates) -> Values:
        """Return the values to which `weights` applies: multiplied by their gates per channel."""
        for gate in self.gates:
            value = value * gates[gate.name] if gate.per == "value" else value
        return value

    def init_state(
        self,
        batch: int,
        kv_heads: int,
        d: int,
        e: int,
        *,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
        window_size: int | None = None,
    ) -> State:
        """Return an empty decoding state for at most `capacity` tokens.

        `kv_heads` is the number of value heads, `d` the width of a key, `e` that of a value. With
        `window_size`, queries attend at most this many positions back.
        """
        self.require_support("decoding", *(() if window_size is None else ("window_size",)))
        shape = StateShape(batch, kv_heads, d, e, capacity, device, dtype, window_size)
        return self._init_state(shape)

    def extend(
        self,
        query: Float[Tensor, "batch heads new d"],
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        state: State,
        *,
        attention_mask: Bool[Tensor, "batch new"] | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
        last: bool = False,
    ) -> tuple[Float[Tensor, "batch heads outputs e"], State]:
        """Return causal attention of new tokens to themselves and to all tokens of the state.

        `attention_mask` is True for real new tokens, which come first in their row; the output of
        the others is undefined. With `last`, only the output of each row's last real token is
        returned. The given state is invalid afterwards: use the returned one. A state made in
        inference mode can be extended only there, since it changes in place.
        """
        self._validate(query, key, value, bias=bias, gates=gates)
        extend = self._extend_last if last else self._extend
        return extend(query, key, value, state, attention_mask, bias, **gates)

    def encode_memory(self, key: Keys, value: Values, *, mask: Mask | None = None) -> State:
        """Encode a source sequence for cross-attention.

        `mask` may only restrict key lengths; layers that share it prepare it once.
        """
        self.require_support("cross")
        for field in sorted((mask.restrictions if mask else frozenset()) - {"key_lengths"}):
            raise ValueError(f"the memory of {self.name} attention takes lengths, not {field}")
        rows, keys = len(key), key.shape[2]
        lengths = None if mask is None else mask.key_lengths
        if mask is None or lengths is None:
            lengths = torch.full((rows,), keys, device=key.device)
            mask = Mask.lengths(lengths)
        mask.require_fit(rows, keys, keys)
        if len(lengths) != rows:  # one length for all rows
            mask = Mask.lengths(lengths.expand(rows))
        return self._encode_memory(key, value, mask)

    def attend_memory(self, query: Queries, memory: State) -> Outputs:
        """Return the attention of queries to a memory: the second half of `forward`."""
        self.require_support("cross")
        return self._attend_memory(query, memory)

    @abstractmethod
    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a call of this shape."""

    # Mechanisms narrow the signatures below to those of the class's docstring, with their gates.

    @abstractmethod
    def _forward(self, *args: Any, **gates: Any) -> Tensor: ...

    @abstractmethod
    def _weights(self, *args: Any, **gates: Any) -> Tensor: ...

    def _init_state(self, shape: StateShape) -> State:
        raise NotImplementedError

    def _extend(self, *args: Any, **gates: Any) -> tuple[Tensor, State]:
        self.require_support("decoding")
        raise NotImplementedError

    def _extend_last(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        **gates: Any,
    ) -> tuple[Tensor, State]:
        out, state = self._extend(query, key, value, state, attention_mask, bias, **gates)
        return last_by_head(out, attention_mask), state

    def _encode_memory(self, key: Tensor, value: Tensor, mask: Mask) -> State:
        raise NotImplementedError

    def _attend_memory(self, query: Tensor, memory: State) -> Tensor:
        raise NotImplementedError

    def _validate(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *,
        mask: Mask | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
    ) -> None:
        """Raise unless this mechanism supports the inputs, and they fit one another."""
        queries, keys = query.shape, key.shape
        if len(queries) != 4 or len(keys) != 4:
            raise ValueError(
                f"queries {tuple(queries)} and keys {tuple(keys)}: expected four axes: "
                "batch, heads, tokens, width"
            )
        if queries[0] != keys[0] or queries[1] % (self.queries_per_head * keys[1]):
            times = f"{self.queries_per_head} times " if self.queries_per_head > 1 else ""
            raise ValueError(
                f"queries {tuple(queries)} don't fit keys {tuple(keys)}: expected equal batch "
                f"sizes, and a number of query heads that is a multiple of {times}the key heads"
            )
        if mask is not None:
            heads = queries[1] // self.queries_per_head
            self._validate_mask(mask, queries[0], heads, queries[2], keys[2])
        if bias is not None:
            self._validate_bias(bias)
        if queries[2] != keys[2]:
            self.require_support("cross")
        if value is not None and keys[1] != value.shape[1]:
            self.require_support("value_heads")
        if self.gates or gates:
            self._validate_gates(gates, query, key, value)

    def _validate_mask(self, mask: Mask, rows: int, heads: int, queries: int, keys: int) -> None:
        if not isinstance(mask, Mask):
            raise TypeError(
                f"the mask is a {type(mask).__name__}: expected a Mask; for a tensor of allowed "
                "pairs, use Mask.dense(tensor)"
            )
        self.require_support(*sorted(mask.restrictions))
        mask.require_fit(rows, queries, keys)
        if not torch.compiler.is_compiling():  # comparisons would fix sizes
            mask.require_pairs(heads, queries, keys)

    def _validate_bias(self, bias: AnyBias) -> None:
        if adds_vectors(bias):
            self.require_support("vectors")
            return
        self.require_support("bias")
        if not adds_numbers(bias):
            raise TypeError(f"{type(bias).__name__} is not a bias: it lacks dense or score_mod")

    def _validate_gates(
        self, gates: Gates, query: Tensor, key: Tensor, value: Tensor | None
    ) -> None:
        """Raise unless these are the declared gates, in shapes that fit the values if given."""
        if len(gates) != len(self.gates) or not all(gate.name in gates for gate in self.gates):
            declared = ", ".join(gate.name for gate in self.gates)
            raise ValueError(
                f"{self.name} attention takes {declared or 'no gates'}; "
                f"given: {', '.join(sorted(gates)) or 'no gates'}"
            )
        if value is None:
            return
        for gate in self.gates:
            shape = gates[gate.name].shape
            expected = gate.shape(query, key, value, queries_per_head=self.queries_per_head)
            if shape != expected:
                raise ValueError(
                    f"{self.name} attention: {gate.name} has shape {tuple(shape)}, not {expected}"
                )

    def _validate_alignment(self, mask: Mask | None) -> None:
        """Raise if queries may attend to later keys and the mechanism requires a causal mask."""
        if mask is None or mask.alignment is None:
            self.require_support("bidirectional")

    def require_support(self, *features: str) -> None:
        """Raise unless every feature (a field of `Mask` or `Support`) is supported.

        Raises:
            UnsupportedError: names the mechanism, the feature, and the mechanisms supporting it.
        """
        require_support(self.name, self.supports, *features)


def _require_alike(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise unless tensors share a device and, without autocast, a floating dtype."""
    if not query.device == key.device == value.device:
        devices = f"{query.device}, {key.device} and {value.device}"
        raise TypeError(f"queries, keys and values are on {devices}: expected one device")
    alike = query.dtype == key.dtype == value.dtype or torch.is_autocast_enabled(query.device.type)
    if not (alike and query.is_floating_point()):
        types = f"{query.dtype}, {key.dtype} and {value.dtype}"
        raise TypeError(f"queries, keys and values are {types}: expected one floating type")
