"""Exact attention: every query looks at every key."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention import flex
from regard.attention.base import Attention, Bias, RelativeVectors, State, Support
from regard.attention.cost import Cost, Shape
from regard.attention.mask import Mask

ALL_MASKS = frozenset(
    {"alignment", "window_size", "key_lengths", "document_ids", "blocks", "allowed"}
)


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """All keys and values seen. The last slot is a bin for padding and never looked at."""

    keys: Float[Tensor, "batch kv_heads slots d"]
    values: Float[Tensor, "batch kv_heads slots e"]
    length: Int[Tensor, " batch"]
    shortest: int
    longest: int
    """Of the lengths; bounds of them in compiled code, which can't ask."""

    @staticmethod
    def empty(
        batch: int,
        kv_heads: int,
        d: int,
        e: int,
        *,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> "KeyValueCache":
        """Room for `capacity` tokens."""
        keys = torch.zeros(batch, kv_heads, capacity + 1, d, device=device, dtype=dtype)
        values = torch.zeros(batch, kv_heads, capacity + 1, e, device=device, dtype=dtype)
        return KeyValueCache.of(keys, values, 0)

    @staticmethod
    def of(keys: Tensor, values: Tensor, length: int) -> "KeyValueCache":
        """Keys and values of which all rows have filled so many slots."""
        lengths = torch.full((len(keys),), length, device=keys.device)
        return KeyValueCache(keys, values, lengths, length, length)

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes + self.length.nbytes

    def select(self, rows: Int[Tensor, " rows"]) -> "KeyValueCache":
        length = self.length[rows]
        span = (self.shortest, self.longest) if self.is_even else self._span(length)
        if len(rows) != len(self.length):
            keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
            return KeyValueCache(keys, values, length, *span)
        self._move(rows)
        return KeyValueCache(self.keys, self.values, length, *span)

    def _move(self, rows: Int[Tensor, " batch"]) -> None:
        """Put other rows in the places of those that are to change: what stays isn't copied."""
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        for filled in self.filled():
            filled.index_copy_(0, moved, filled.index_select(0, rows[moved]))

    def append(
        self,
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        keep: Bool[Tensor, "batch new"] | None,
    ) -> "KeyValueCache":
        """Write new tokens into the free slots; those not kept go to the bin."""
        new, bin_slot = key.shape[2], self.keys.shape[2] - 1
        if keep is None:
            length, span = self.length + new, (self.shortest + new, self.longest + new)
        else:
            length = self.length + keep.sum(1)
            span = self._span(length, new)
        if not torch.compiler.is_compiling() and span[1] > bin_slot:
            raise ValueError(f"the cache holds {bin_slot} tokens, and {span[1]} are wanted")
        if keep is None and self.is_even:
            slots = slice(self.longest, self.longest + new)
            self.keys[:, :, slots], self.values[:, :, slots] = key, value
        else:
            self._scatter(key, value, keep)
        return KeyValueCache(self.keys, self.values, length, *span)

    def _scatter(self, key: Tensor, value: Tensor, keep: Tensor | None) -> None:
        """Write new tokens where each row has its own next slots."""
        slot = self.positions(key.shape[2])
        if keep is not None:
            slot = torch.where(keep, slot, self.keys.shape[2] - 1)
        row = torch.arange(len(key), device=key.device)[:, None]
        self.keys[row, :, slot] = key.transpose(1, 2).to(self.keys.dtype)
        self.values[row, :, slot] = value.transpose(1, 2).to(self.values.dtype)

    def _span(self, length: Tensor, new: int = 0) -> tuple[int, int]:
        """The least and the most of new lengths."""
        if torch.compiler.is_compiling():
            return self.shortest, self.longest + new
        least, most = torch.aminmax(length)
        return int(least), int(most)

    def positions(self, new: int) -> Int[Tensor, "batch new"]:
        """Where the next tokens will stand."""
        return self.length[:, None] + torch.arange(new, device=self.length.device)

    @property
    def is_empty(self) -> bool:
        """Whether no row has seen a token."""
        return self.longest == 0

    @property
    def is_even(self) -> bool:
        """Whether all rows have seen equally many tokens, as far as that is known."""
        return self.shortest == self.longest

    def inside(self, positions: Int[Tensor, "batch new"]) -> Int[Tensor, "batch new"]:
        """Positions for a bias: those of padding, which may lie beyond the last slot, at it."""
        return positions.clamp(max=self.keys.shape[2] - 2)

    def filled(self) -> tuple[Tensor, Tensor]:
        """Keys and values without the slots that no row has filled."""
        used = min(self.longest, self.keys.shape[2] - 1)
        return self.keys[:, :, :used], self.values[:, :, :used]


@dataclass(frozen=True, eq=False)
class Memory:
    """Other sequences, whole, with their lengths, and how many rows in a row read each of them."""

    key: Float[Tensor, "sources kv_heads keys d"]
    value: Float[Tensor, "sources kv_heads keys e"]
    length: Int[Tensor, " sources"]
    readers: int = 1

    @property
    def bytes(self) -> int:
        return self.key.nbytes + self.value.nbytes + self.length.nbytes

    def select(self, rows: Int[Tensor, " rows"]) -> "Memory":
        """The beams of a source read it side by side, so that nothing is copied as they move."""
        sources, (readers, rest) = rows // self.readers, divmod(len(rows), len(self.length))
        every = torch.arange(len(self.length), device=rows.device)
        if not rest and readers and torch.equal(sources, every.repeat_interleave(readers)):
            return replace(self, readers=readers)
        return Memory(self.key[sources], self.value[sources], self.length[sources])


@dataclass(frozen=True, eq=False)
class Placed:
    """A bias at the positions of the queries and keys at hand."""

    bias: Bias | RelativeVectors
    query_positions: Int[Tensor, "*rows queries"]
    key_positions: Int[Tensor, " keys"]

    def scores(self, query: Float[Tensor, "batch heads queries d"]) -> Tensor:
        """What is added to the scores of the (scaled) queries."""
        if isinstance(self.bias, RelativeVectors):
            return self.bias.scores(query, self.query_positions, self.key_positions)
        return self.bias.dense(self.query_positions, self.key_positions).to(query.dtype)

    def gather(self, weights: Float[Tensor, "batch heads queries keys"]) -> Tensor | float:
        """What is added to the output."""
        if isinstance(self.bias, RelativeVectors):
            return self.bias.gather(weights, self.query_positions, self.key_positions)
        return 0.0


class Exact(Attention):
    """Attention whose weights are a distribution made of all scores q·k: softmax or argmax."""

    supports = Support(masks=ALL_MASKS, bias=True, vectors=True, cross=True, decoding=True)

    def __init__(self, *, scaled: bool = True) -> None:
        """`scaled`: whether scores are divided by √d."""
        super().__init__()
        self.scaled = scaled

    @abstractmethod
    def distribute(
        self, scores: Float[Tensor, "batch heads queries keys"], allowed: Tensor | None
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Weights from scores; a row that allows no key is zero, and so is its gradient."""

    def forward(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> Float[Tensor, "batch heads queries e"]:
        self.require(query, key, mask, bias)
        return self._whole(query, key, value, mask, bias)

    def weights(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        *,
        mask: Mask | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        self.require(query, key, mask, bias)
        key = shared(key, query.shape[1])
        at_least_float = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            scores = self._scores(
                query.to(at_least_float), key.to(at_least_float), _placed(bias, mask, query, key)
            )
            return self.distribute(scores, _dense(mask, query, key))

    def start(
        self,
        batch: int,
        kv_heads: int,
        d: int,
        e: int,
        *,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> State:
        return KeyValueCache.empty(
            batch, kv_heads, d, e, capacity=capacity, device=device, dtype=dtype
        )

    def extend(
        self,
        query: Float[Tensor, "batch heads new d"],
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        state: State,
        *,
        keep: Bool[Tensor, "batch new"] | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> tuple[Float[Tensor, "batch heads new e"], State]:
        assert isinstance(state, KeyValueCache)
        self.require(query, key, None, bias)
        before, new = state, key.shape[2]
        state = before.append(key, value, keep)
        if before.is_empty:
            return self._whole(query, key, value, Mask.causal(), bias), state
        keys, values = (x.to(query.dtype) for x in state.filled())
        positions, slots = before.positions(new), torch.arange(keys.shape[2], device=keys.device)
        sees_all = new == 1 and state.is_even
        seen = None if sees_all else (slots <= positions[:, :, None])[:, None]
        placed = None if bias is None else Placed(bias, state.inside(positions), slots)
        return self._attend(query, keys, values, seen, placed), state

    def memory(
        self,
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
    ) -> State:
        return Memory(key, value, memory_lengths(self, key, mask))

    def read(
        self, query: Float[Tensor, "batch heads queries d"], memory: State
    ) -> Float[Tensor, "batch heads queries e"]:
        assert isinstance(memory, Memory)
        mask, rows = Mask.lengths(memory.length), (-1, memory.readers)
        # As rows of one source, readers would each read all of it; as its queries, they do so once.
        together = query.unflatten(0, rows).transpose(1, 2).flatten(2, 3)
        out = self._whole(together, memory.key, memory.value, mask, None)
        apart: Tensor = out.unflatten(2, (memory.readers, -1)).transpose(1, 2).flatten(0, 1)
        return apart

    def cost(self, shape: Shape) -> Cost:
        products = 2 * shape.batch * shape.heads * shape.pairs * (shape.d + shape.e)
        return Cost(
            operations=products * shape.passes,
            bytes=shape.bytes_in_and_out,
            parameters=0,
            state_bytes=cache_bytes(shape),
        )

    def _whole(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Bias | RelativeVectors | None,
    ) -> Tensor:
        """All queries at once, whose wishes are known to be possible."""
        placed = _placed(bias, mask, query, key)
        return self._attend(query, key, value, _dense(mask, query, key), placed)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        placed: Placed | None,
    ) -> Tensor:
        key, value = shared(key, query.shape[1]), shared(value, query.shape[1])
        with torch.autocast(query.device.type, enabled=False):
            weights = self.distribute(self._scores(query, key, placed), allowed)
            weights = self._drop(weights).to(value.dtype)
            out: Tensor = weights @ value
            return out if placed is None else out + placed.gather(weights)

    def _drop(self, weights: Tensor) -> Tensor:
        return weights

    def scale(self, d: int) -> float:
        """What products of vectors of width d are multiplied by."""
        return float(d**-0.5) if self.scaled else 1.0

    def _scores(self, query: Tensor, key: Tensor, placed: Placed | None) -> Tensor:
        query = query * self.scale(query.shape[-1])
        scores: Tensor = query @ key.mT
        return scores if placed is None else scores + placed.scores(query)


class Softmax(Exact):
    """softmax(QKᵀ/√d)·V (Vaswani et al., 2017, eq. 1)."""

    name = "softmax"
    supports = replace(Exact.supports, dropout=True)

    def __init__(self, *, scaled: bool = True, dropout: float = 0.0) -> None:
        """`dropout` is the probability that a weight is set to zero in training."""
        super().__init__(scaled=scaled)
        self.dropout = dropout

    def _whole(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Bias | RelativeVectors | None,
    ) -> Tensor:
        scale, dropping = self.scale(query.shape[-1]), self.training and self.dropout > 0
        if not dropping and flex.can_run(query, mask, bias):
            return flex.attend(query, key, value, mask=mask, bias=bias, scale=scale)
        if bias is None and not dropping and _is_plain_causal(mask, query, key):
            key, value = shared(key, query.shape[1]), shared(value, query.shape[1])
            if not _must_compose(query, value, None):
                return fused(query, key, value, causal=True, scale=scale)
            add = _bars(_causal(query, key), query.dtype)
            return composed(query, key, value, add, scale=scale)
        return super()._whole(query, key, value, mask, bias)

    def distribute(
        self, scores: Float[Tensor, "batch heads queries keys"], allowed: Tensor | None
    ) -> Float[Tensor, "batch heads queries keys"]:
        return softmax(scores, allowed)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        placed: Placed | None,
    ) -> Tensor:
        vectors = placed is not None and isinstance(placed.bias, RelativeVectors)
        if vectors or (self.training and self.dropout > 0):  # the fused kernel has neither
            return super()._attend(query, key, value, allowed, placed)
        key, value = shared(key, query.shape[1]), shared(value, query.shape[1])
        add = None if placed is None else placed.scores(query)
        return masked(query, key, value, allowed, add, scale=self.scale(query.shape[-1]))

    def _drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout if self.training else 0.0)


class Argmax(Exact):
    """The value of the key with the highest score, the first of several.

    Its gradient is straight-through: the softmax's takes the place of the argmax's, which is zero
    (Bengio et al., 2013).
    """

    name = "argmax"
    supports = replace(Exact.supports, differentiable=False)

    def _scores(self, query: Tensor, key: Tensor, placed: Placed | None) -> Tensor:
        # In bfloat16 many scores would be equal that aren't.
        at_least_float = torch.promote_types(query.dtype, torch.float32)
        return super()._scores(query.to(at_least_float), key.to(at_least_float), placed)

    def distribute(
        self, scores: Float[Tensor, "batch heads queries keys"], allowed: Tensor | None
    ) -> Float[Tensor, "batch heads queries keys"]:
        soft = softmax(scores, allowed)
        if not scores.shape[-1]:
            return soft
        barred = scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
        hard = torch.zeros_like(soft).scatter(-1, barred.argmax(-1, keepdim=True), 1.0)
        if allowed is not None:
            hard = hard.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
        return hard + (soft - soft.detach())  # 0 exactly, but with a gradient


def softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; a row that allows none is zero, and so is its gradient."""
    if allowed is None:
        return scores.softmax(-1)
    alive = allowed.any(-1, keepdim=True)
    # A dead row is neutralised before the softmax, which would make NaN of it.
    return (scores + _bars(allowed | ~alive, scores.dtype)).softmax(-1).masked_fill(~alive, 0.0)


def masked(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch heads keys d"],
    value: Float[Tensor, "batch heads keys e"],
    allowed: Bool[Tensor, "#batch #heads #queries #keys"] | None,
    add: Float[Tensor, "*#batch_heads queries keys"] | None,
    *,
    scale: float,
) -> Float[Tensor, "batch heads queries e"]:
    """Softmax attention under any mask and bias; a query that may look at no key gathers zero."""
    if add is not None and add.ndim == 3:
        add = add[None]
    attend = composed if _must_compose(query, value, add) else fused
    if allowed is None:
        return attend(query, key, value, add, scale=scale)
    alive = allowed.any(-1, keepdim=True)
    # A dead row is neutralised before the softmax: all its scores are zero, and all are allowed.
    query, allowed = query.masked_fill(~alive, 0.0), allowed | ~alive
    if add is None and attend is fused:
        add = allowed  # which its kernel takes as it is
    else:
        bars = _bars(allowed, query.dtype)
        add = bars if add is None else add + bars
        add = add.expand(*add.shape[:-1], key.shape[2])
    return attend(query, key, value, add, scale=scale).masked_fill(~alive, 0.0)


def composed(
    query: Tensor, key: Tensor, value: Tensor, add: Tensor | None, *, scale: float
) -> Tensor:
    """Products and softmax one by one."""
    with torch.autocast(query.device.type, enabled=False):
        scores = _products(query * scale, key)
        return (scores if add is None else scores + add).softmax(-1) @ value


_GPU_BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""Fastest first (H100, bfloat16); each takes what those before it refuse."""


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    add: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float,
) -> Tensor:
    """torch's kernel, by a backend that is chosen here and not silently elsewhere."""
    backends = _GPU_BACKENDS if query.is_cuda else [SDPBackend.FLASH_ATTENTION]
    # No kernel but the slowest takes vectors whose entries lie apart.
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    with sdpa_kernel(backends, set_priority=query.is_cuda):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=add, is_causal=causal, scale=scale
        )


def shared(tensor: Tensor, heads: int) -> Tensor:
    """Keys or values repeated so that consecutive query heads share one."""
    group = heads // tensor.shape[1]
    return tensor if group == 1 else tensor.repeat_interleave(group, dim=1)


def memory_lengths(mechanism: Attention, key: Tensor, mask: Mask | None) -> Tensor:
    """The lengths of the rows of a memory, from a mask that may hold nothing else."""
    for field in sorted((mask.restrictions if mask else frozenset()) - {"key_lengths"}):
        raise ValueError(f"{mechanism.name} attention's memory takes lengths, not a mask's {field}")
    if mask is not None and mask.key_lengths is not None:
        return mask.key_lengths
    return torch.full((len(key),), key.shape[2], device=key.device)


def cache_bytes(shape: Shape) -> int:
    """Bytes of the keys and values of all tokens."""
    return shape.batch * shape.kv_heads * shape.keys * (shape.d + shape.e) * shape.dtype.itemsize


def _must_compose(query: Tensor, value: Tensor, add: Tensor | None) -> bool:
    """Whether products and softmax one by one are the better way, or the only one.

    A CPU's fused kernel wants values as wide as keys, and has no gradient for what is added.
    """
    if query.device.type != "cpu":
        return False
    learned = add is not None and add.requires_grad
    return query.shape[-1] != value.shape[-1] or learned or _composed_is_faster(query, value)


def _composed_is_faster(query: Tensor, value: Tensor) -> bool:
    """Whether composing beats the fused kernel on a CPU, where both can be had.

    In bfloat16 it does for short rows, because the fused backward is slow: forward and backward
    took 0.3 of its time at 30 and 64 keys, 0.4 at 128, and 1.1 at 256; in float32 always more than
    its time (two cores with AVX-512; `benchmarks/short_rows.py`). A single query of a large cache
    does nothing but read it, which plain products do better, in 0.7 of the time
    (`benchmarks/decoding_step.py`).
    """
    if query.shape[2] == 1:
        return value.numel() >= 2**20
    return query.dtype == torch.bfloat16 and value.shape[2] <= 128


def _bars(allowed: Bool[Tensor, "*#batch_heads #queries #keys"], dtype: torch.dtype) -> Tensor:
    """What is added to scores so that only allowed keys are looked at.

    It is small where all rows and heads share a mask, and the gradient of a sum costs nothing.
    """
    bars = torch.zeros(allowed.shape, device=allowed.device, dtype=dtype)
    return bars.masked_fill(~allowed, float("-inf"))


def _products(query: Tensor, key: Tensor) -> Tensor:
    """q·k. Of a single query the keys come first: so a CPU reads them in half the time."""
    products: Tensor = (key @ query.mT).mT if query.shape[2] == 1 else query @ key.mT
    return products


def _dense(mask: Mask | None, query: Tensor, key: Tensor) -> Tensor | None:
    return None if mask is None else mask.to_dense(query.shape[2], key.shape[2], query.device)


def _causal(query: Tensor, key: Tensor) -> Bool[Tensor, "1 1 queries keys"]:
    return Mask.causal().to_dense(query.shape[2], key.shape[2], query.device)


def _placed(
    bias: Bias | RelativeVectors | None, mask: Mask | None, query: Tensor, key: Tensor
) -> Placed | None:
    if bias is None:
        return None
    queries, keys = query.shape[2], key.shape[2]
    positions = (mask or Mask()).query_positions(queries, keys, query.device)
    return Placed(bias, positions, torch.arange(keys, device=query.device))


def _is_plain_causal(mask: Mask | None, query: Tensor, key: Tensor) -> bool:
    return (
        mask is not None
        and mask.restrictions == {"alignment"}
        and (mask.alignment == "start" or query.shape[2] == key.shape[2])
    )
