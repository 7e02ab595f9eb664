"""Inputs for the contract: every kind of mask, self- and cross-attention, shared key heads, a bias.

Queries and keys are multiples of ¼, of width 4, so that scores are exact in any precision.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.attention import reference
from regard.attention.base import Attention
from regard.attention.gates import Gate, Gates
from regard.attention.mask import Mask
from regard.attention.registry import Mechanism
from regard.attention.types import ScoreMod

BATCH, HEADS, N, SHORT, D = 2, 4, 11, 5, 4


@dataclass(frozen=True, eq=False)
class TableBias:
    """A number for each head, query and key."""

    table: Tensor

    def dense(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        query, key = self._inside(query_positions, key_positions)
        return self.table[:, query][..., key].movedim(0, -3)

    def score_mod(self) -> ScoreMod:
        def add(score: Tensor, _: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            query, key = self._inside(query, key)
            return score + self.table[head, query, key]

        return add

    def _inside(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Clamp positions, since those of padding may lie outside."""
        return query.clamp(0, self.table.shape[1] - 1), key.clamp(0, self.table.shape[2] - 1)


@dataclass(frozen=True)
class Vectors:
    """Relative vectors of ones for keys and values, at any distance."""

    e: int

    def scores(self, query: Tensor, _: Tensor, key_positions: Tensor) -> Tensor:
        return query.sum(-1, keepdim=True).expand(*query.shape[:-1], len(key_positions))

    def gather(self, weights: Tensor, _: Tensor, __: Tensor) -> Tensor:
        return weights.sum(-1, keepdim=True).expand(*weights.shape[:-1], self.e)


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """Inputs of one call."""

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None = None
    bias: TableBias | None = None
    gates: Gates = field(default_factory=dict)
    queries_per_head: int = 1

    @property
    def tensors(self) -> list[Tensor]:
        """Queries, keys, values and gates, in this order."""
        return [self.query, self.key, self.value, *self.gates.values()]

    def of(self, tensors: Sequence[Tensor]) -> "Case":
        """Return the case with other queries, keys, values and gates."""
        query, key, value, *gates = tensors
        named = dict(zip(self.gates, gates, strict=True))
        return replace(self, query=query, key=key, value=value, gates=named)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Case":
        """Return the case with each tensor changed."""
        return self.of([change(x) for x in self.tensors])

    def cpu(self) -> "Case":
        """Return the case on the CPU, for the references."""
        mask = self.mask and self.mask.to(torch.device("cpu"))
        bias = self.bias and TableBias(self.bias.table.cpu())
        return replace(self.each(Tensor.cpu), mask=mask, bias=bias)

    @property
    def restrictions(self) -> frozenset[str]:
        """The fields of the mask."""
        return self.mask.restrictions if self.mask else frozenset()

    @property
    def is_decoding(self) -> bool:
        """Whether decoding can compute this case: plain causal self-attention."""
        return self.restrictions == {"alignment"} and self.query.shape[2] == self.key.shape[2]

    @property
    def heads(self) -> int:
        """Number of heads of the weights."""
        return self.query.shape[1] // self.queries_per_head

    @cached_property
    def scale(self) -> float:
        """Effect of one rounding of the scores on an output, in units of the precision."""
        key = self.key.double().repeat_interleave(self.query.shape[1] // self.key.shape[1], 1)
        terms = self.query.double().abs() @ key.abs().mT / self.query.shape[-1] ** 0.5
        largest = float(terms.max()) + (float(self.bias.table.abs().max()) if self.bias else 0.0)
        return (1 + largest) * float(self.value.double().abs().max())

    def allowed(self) -> Tensor:
        """Return the mask of every row, head, query and key."""
        of_heads = self.query[:, :: self.queries_per_head]
        return reference.allowed(of_heads, self.key, self.mask or Mask())


@dataclass(frozen=True)
class Cases:
    """The cases of a mechanism in a precision on a device."""

    mechanism: Mechanism
    dtype: torch.dtype
    device: torch.device
    attend: Attention

    def supported(self) -> Iterator[Case]:
        """Yield all cases that the mechanism supports."""
        for name, mask in _self_masks(self.device).items():
            if self._honors(mask):
                yield self._make(name, mask)
                yield self._make(f"{name}, two heads a key", mask, kv_heads=HEADS // 2)
                if self.mechanism.type.supports.bias:
                    yield self._make(f"{name}, bias", mask, biased=True)
        yield self._make("one key head", self._widest(), kv_heads=1)
        if self.mechanism.type.supports.value_heads:
            for few, many in ((1, 2), (2, HEADS), (HEADS, 2 * HEADS)):
                name = f"{few} key heads, {many} value heads"
                yield self._make(name, self._widest(), kv_heads=few, value_heads=many)
        if self.mechanism.type.supports.cross:
            for queries, keys in ((SHORT, N), (N, SHORT)):
                for name, mask in _cross_masks(queries, keys, self.device).items():
                    if self._honors(mask):
                        name = f"{queries} queries, {keys} keys, {name}"
                        yield self._make(
                            name, mask, queries=queries, keys=keys, kv_heads=HEADS // 2, e=3
                        )

    def unsupported(self) -> Iterator[Case]:
        """Yield a case for each feature that the mechanism doesn't support."""
        for name, mask in _self_masks(self.device).items():
            if (mask is None or len(mask.restrictions) == 1) and not self._honors(mask):
                yield self._make(name, mask)
        if not self.mechanism.type.supports.bias:
            yield self._make("bias", self._widest(), biased=True)
        if not self.mechanism.type.supports.cross:
            yield self._make("another sequence", self._widest(), queries=SHORT)

    def plain(self) -> Case:
        """Return the most common case: causal, if that is supported."""
        return self._make("plain", self._plain_mask())

    def compiled(self) -> Iterator[Case]:
        """Yield short cases for the compiler: the plain mask, and no mask or lengths."""
        plain, lengths = self._plain_mask(), Mask.lengths(torch.tensor([3, 0], device=self.device))
        yield self._make("plain", plain, queries=SHORT, keys=SHORT)
        if plain and self.mechanism.type.supports.bidirectional:
            yield self._make("no mask", None, queries=SHORT, keys=SHORT)
            return
        both = lengths if plain is None else plain & lengths
        if self._honors(both):
            yield self._make("lengths", both, queries=SHORT, keys=SHORT)

    def _plain_mask(self) -> Mask | None:
        causal = Mask.causal()
        return causal if self._honors(causal) else None

    def _widest(self) -> Mask | None:
        """Return no mask, or a causal one where that is required."""
        return None if self.mechanism.type.supports.bidirectional else Mask.causal()

    def _honors(self, mask: Mask | None) -> bool:
        supports = self.mechanism.type.supports
        restrictions = mask.restrictions if mask else frozenset()
        causal = supports.bidirectional or "alignment" in restrictions
        return causal and restrictions <= supports.masks

    def _make(
        self,
        name: str,
        mask: Mask | None,
        *,
        queries: int = N,
        keys: int = N,
        kv_heads: int = HEADS,
        value_heads: int | None = None,
        e: int = D,
        biased: bool = False,
    ) -> Case:
        generator = torch.Generator().manual_seed(0)
        low, high = (round(4 * x) for x in self.mechanism.config.check_inputs)

        def quarters(low: int, high: int, *shape: int) -> Tensor:
            numbers = torch.randint(low, high + 1, shape, generator=generator) / 4
            return numbers.to(self.device, self.dtype)

        def gate(declared: Gate) -> Tensor:
            shape = declared.shape(query, key, value, queries_per_head=queries_per_head)
            low = max(declared.low, min(-1.0, declared.high - 1.0))
            high = min(declared.high, max(2.0, low + 1.0))
            return quarters(round(4 * low), round(4 * high), *shape)

        queries_per_head = self.attend.queries_per_head
        query = quarters(low, high, BATCH, queries_per_head * HEADS, queries, D)
        key = quarters(low, high, BATCH, kv_heads, keys, D)
        value = quarters(-8, 8, BATCH, value_heads or kv_heads, keys, e)
        return Case(
            name=name,
            query=query,
            key=key,
            value=value,
            mask=mask,
            bias=TableBias(quarters(-4, 4, HEADS, queries, keys)) if biased else None,
            gates={declared.name: gate(declared) for declared in self.attend.gates},
            queries_per_head=queries_per_head,
        )


def _self_masks(device: torch.device) -> dict[str, Mask | None]:
    generator = torch.Generator().manual_seed(1)

    def coin(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator) < 0.6).to(device)

    causal = Mask.causal()
    lengths = Mask.lengths(torch.tensor([7, 0], device=device))
    documents = Mask.documents(
        torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2], [4] * 6 + [3] * 5], device=device)
    )
    blocks = Mask.block_pairs(coin(HEADS, 3, 3), size=4)
    pairs = coin(BATCH, HEADS, N, N)
    pairs[0, 1, 2] = False
    dense = Mask.dense(pairs)
    return {
        "no mask": None,
        "causal": causal,
        "lengths": lengths,
        "documents": documents,
        "window": Mask.window(2),
        "blocks": blocks,
        "dense": dense,
        "hidden positions": Mask.positions(coin(BATCH, N)),
        "causal, from the end": Mask.causal("end"),
        "causal, lengths": causal & lengths,
        "causal, documents": causal & documents,
        "documents, lengths": documents & lengths,
        "causal, documents, lengths": causal & documents & lengths,
        "causal, window, dense": causal & Mask.window(3) & dense,
        "causal, blocks, lengths": causal & blocks & lengths,
    }


def _cross_masks(queries: int, keys: int, device: torch.device) -> dict[str, Mask | None]:
    generator = torch.Generator().manual_seed(2)
    pairs = (torch.rand(BATCH, 1, queries, keys, generator=generator) < 0.6).to(device)
    lengths = Mask.lengths(torch.tensor([3, 0], device=device))
    return {
        "no mask": None,
        "lengths": lengths,
        "dense": Mask.dense(pairs),
        "causal from the start": Mask.causal("start"),
        "causal from the end": Mask.causal("end"),
        "causal from the end, lengths": Mask.causal("end") & lengths,
        "window from the end": Mask.causal("end") & Mask.window(2),
    }
