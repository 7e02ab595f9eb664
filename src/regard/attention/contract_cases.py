"""Inputs for the contract: every kind of mask, self- and cross-attention, shared key heads, a bias.

Queries and keys are multiples of ¼, of width 4, so that scores are exact in any precision.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.base import ScoreMod
from regard.attention.mask import Mask
from regard.attention.registry import Mechanism

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
        """Positions of padding may lie outside."""
        return query.clamp(0, self.table.shape[1] - 1), key.clamp(0, self.table.shape[2] - 1)


@dataclass(frozen=True)
class Vectors:
    """The same vector for keys and the same for values at any distance: ones."""

    d: int
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

    def cpu(self) -> "Case":
        """The case on the CPU, where references work."""
        cpu = torch.device("cpu")
        return replace(
            self,
            query=self.query.cpu(),
            key=self.key.cpu(),
            value=self.value.cpu(),
            mask=self.mask and self.mask.to(cpu),
            bias=self.bias and TableBias(self.bias.table.cpu()),
        )

    @property
    def restrictions(self) -> frozenset[str]:
        """The fields of the mask."""
        return self.mask.restrictions if self.mask else frozenset()

    @property
    def is_decoding(self) -> bool:
        """Whether this is what decoding does, token by token: plain causal self-attention."""
        return self.restrictions == {"alignment"} and self.query.shape[2] == self.key.shape[2]

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def scale(self) -> float:
        """Effect of one rounding of the scores on an output, in units of the precision."""
        key = self.key.double().repeat_interleave(self.group, 1)
        terms = self.query.double().abs() @ key.abs().mT / self.query.shape[-1] ** 0.5
        largest = float(terms.max()) + (float(self.bias.table.abs().max()) if self.bias else 0.0)
        return (1 + largest) * float(self.value.double().abs().max())

    def allowed(self) -> Tensor:
        """The mask, for every row, head, query and key."""
        (batch, heads, queries, _), keys = self.query.shape, self.key.shape[2]
        dense = (self.mask or Mask()).to_dense(queries, keys, self.query.device)
        return dense.expand(batch, heads, queries, keys)


def supported(mechanism: Mechanism, dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """All cases that a mechanism says it can do."""
    make = _Maker(mechanism, dtype, device)
    for name, mask in _self_masks(device).items():
        if _honors(mechanism, mask):
            yield make(name, mask)
            yield make(f"{name}, two heads a key", mask, kv_heads=HEADS // 2)
            if mechanism.type.supports.bias:
                yield make(f"{name}, bias", mask, biased=True)
    yield make("one key head", None, kv_heads=1)
    if mechanism.type.supports.cross:
        for queries, keys in ((SHORT, N), (N, SHORT)):
            for name, mask in _cross_masks(queries, keys, device).items():
                if _honors(mechanism, mask):
                    name = f"{queries} queries, {keys} keys, {name}"
                    yield make(name, mask, queries=queries, keys=keys, kv_heads=HEADS // 2, e=3)


def unsupported(mechanism: Mechanism, dtype: torch.dtype, device: torch.device) -> Iterator[Case]:
    """A case for each thing that a mechanism says it can't do."""
    make = _Maker(mechanism, dtype, device)
    for name, mask in _self_masks(device).items():
        if mask is not None and len(mask.restrictions) == 1 and not _honors(mechanism, mask):
            yield make(name, mask)
    if not mechanism.type.supports.bias:
        yield make("bias", None, biased=True)
    if not mechanism.type.supports.cross:
        yield make("another sequence", None, queries=SHORT)


def plain(mechanism: Mechanism, dtype: torch.dtype, device: torch.device) -> Case:
    """The case that most models are: causal where that can be."""
    mask = Mask.causal() if "alignment" in mechanism.type.supports.masks else None
    return _Maker(mechanism, dtype, device)("plain", mask)


def _honors(mechanism: Mechanism, mask: Mask | None) -> bool:
    return mask is None or mask.restrictions <= mechanism.type.supports.masks


@dataclass(frozen=True)
class _Maker:
    mechanism: Mechanism
    dtype: torch.dtype
    device: torch.device

    def __call__(
        self,
        name: str,
        mask: Mask | None,
        *,
        queries: int = N,
        keys: int = N,
        kv_heads: int = HEADS,
        e: int = D,
        biased: bool = False,
    ) -> Case:
        generator = torch.Generator().manual_seed(0)
        low, high = (round(4 * x) for x in self.mechanism.inputs)

        def quarters(low: int, high: int, *shape: int) -> Tensor:
            numbers = torch.randint(low, high + 1, shape, generator=generator) / 4
            return numbers.to(self.device, self.dtype)

        return Case(
            name=name,
            query=quarters(low, high, BATCH, HEADS, queries, D),
            key=quarters(low, high, BATCH, kv_heads, keys, D),
            value=quarters(-8, 8, BATCH, kv_heads, keys, e),
            mask=mask,
            bias=TableBias(quarters(-4, 4, HEADS, queries, keys)) if biased else None,
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
