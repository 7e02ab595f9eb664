"""Masks, tensors and bounds that the tests of attention share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import BigBird, Mask, SlidingWindow
from regard.attention.contract_cases import TableBias
from regard.attention.mask import Alignment
from regard.positions import Alibi, T5Bias

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
CONTRACT_DTYPES = pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        pytest.param(torch.float32, marks=pytest.mark.slow),
        pytest.param(torch.bfloat16, marks=pytest.mark.slow),
    ],
    ids=str,
)
"""Precisions of the whole contract, which takes a second in each."""
BOTH_PATHS = pytest.mark.parametrize("eager", [True, False], ids=["eager", "sdpa"])
thorough = settings(deadline=None, derandomize=True, max_examples=60)
brief = settings(deadline=None, derandomize=True, max_examples=20)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, drawn in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def of_norm(x: Tensor, norm: float) -> Tensor:
    """Vectors scaled to a norm."""
    scaled: Tensor = x * norm / x.norm(dim=-1, keepdim=True)
    return scaled


@contextmanager
def path(*, eager: bool) -> Iterator[None]:
    """Make softmax attention take one of its two ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.attention.backends.prefers_eager", lambda *_: eager)
        yield


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """Inputs of attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None = None
    bias: TableBias | None = None

    def to(self, dtype: torch.dtype) -> "Case":
        """The same inputs, rounded."""
        return Case(
            query=self.query.to(dtype),
            key=self.key.to(dtype),
            value=self.value.to(dtype),
            mask=self.mask,
            bias=None if self.bias is None else TableBias(self.bias.table.to(dtype)),
        )

    def added(self) -> Tensor | None:
        """The bias, where the mask places the queries."""
        queries, keys = self.query.shape[2], self.key.shape[2]
        positions = (self.mask or Mask()).query_positions(queries, keys, torch.device("cpu"))
        return None if self.bias is None else self.bias.dense(positions, torch.arange(keys))

    def allowed(self) -> Tensor:
        """The mask, for every row and head."""
        (batch, heads, queries, _), keys = self.query.shape, self.key.shape[2]
        mask = self.mask or Mask()
        return mask.to_dense(queries, keys, torch.device("cpu")).expand(batch, heads, queries, keys)


@st.composite
def masks(
    draw: st.DrawFn,
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    alignments: tuple[Alignment | None, ...] = (None, "start", "end"),
    windows: bool = True,
    documents: bool = True,
) -> Mask:
    """A mask with any of its fields; documents only where queries and keys are the same."""
    possible = {"alignment", "window", "lengths", "documents", "dense"}
    possible -= {"documents"} if queries != keys or not documents else set()
    possible -= {"window"} if not windows else set()
    fields = draw(st.sets(st.sampled_from(sorted(possible))))
    alignment = window_size = key_lengths = document_ids = allowed = None
    if "alignment" in fields or None not in alignments:
        alignment = draw(st.sampled_from([a for a in alignments if a is not None]))
    if "window" in fields:
        window_size = draw(st.integers(0, keys))
    if "lengths" in fields:
        lengths = st.lists(st.integers(0, keys), min_size=batch, max_size=batch)
        key_lengths = torch.tensor(draw(lengths))
    if "documents" in fields:
        ids = st.lists(st.integers(0, 2), min_size=batch * keys, max_size=batch * keys)
        document_ids = torch.tensor(draw(ids)).view(batch, keys)
    if "dense" in fields:
        shape = [draw(st.sampled_from([1, n])) for n in (batch, heads, queries, keys)]
        density = draw(st.sampled_from([0.0, 0.5, 0.9]))
        allowed = torch.rand(shape, generator=draw(generators())) < density
    # Not by `&`, which is tested with these.
    return Mask(
        alignment=alignment,
        window_size=window_size,
        key_lengths=key_lengths,
        document_ids=document_ids,
        allowed=allowed,
    )


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    longest: int = 6,
    alignments: tuple[Alignment | None, ...] = (None, "start", "end"),
    square: bool = False,
    biased: bool = True,
) -> Case:
    """Inputs in float64 of any shape: grouped heads, fewer or more queries than keys, any mask."""
    batch, kv_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    heads = kv_heads * group
    keys = draw(st.integers(1, longest))
    queries = keys if square or draw(st.booleans()) else draw(st.integers(1, longest))
    d, e = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    with_mask = masks(batch=batch, heads=heads, queries=queries, keys=keys, alignments=alignments)
    mask = draw(with_mask if None not in alignments else st.none() | with_mask)
    generator = draw(generators())
    sharpness = draw(st.sampled_from([0.1, 1.0, 3.0]))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return Case(
        query=sharpness * normal(batch, heads, queries, d),
        key=normal(batch, kv_heads, keys, d),
        value=normal(batch, kv_heads, keys, e),
        mask=mask,
        bias=TableBias(normal(heads, max(queries, keys), keys))
        if biased and draw(st.booleans())
        else None,
    )


@st.composite
def bigbirds(draw: st.DrawFn, *, longest: int) -> BigBird:
    return BigBird(
        block_size=draw(st.integers(1, 4)),
        window=draw(st.sampled_from([1, 3, 5])),
        random=draw(st.integers(0, 3)),
        global_blocks=draw(st.integers(0, 2)),
        max_keys=longest + draw(st.integers(0, 9)),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def windows(draw: st.DrawFn) -> SlidingWindow:
    return SlidingWindow(size=draw(st.integers(0, 7)), block_size=draw(st.integers(1, 4)))


@st.composite
def biases(draw: st.DrawFn, *, heads: int) -> Alibi | T5Bias | None:
    kind = draw(st.sampled_from(["none", "alibi", "t5"]))
    if kind == "none":
        return None
    if kind == "alibi":
        return Alibi(heads=heads)
    bias = T5Bias(heads=heads, buckets=8, max_distance=20, bidirectional=draw(st.booleans()))
    torch.nn.init.normal_(bias.values, generator=draw(generators()))
    return bias


@st.composite
def generators(draw: st.DrawFn) -> torch.Generator:
    """A source of random tensors."""
    return torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))


def error(actual: Tensor, expected: Tensor, case: Case) -> float:
    """How far attention is off, in units of what rounding may do in the case's precision.

    `actual` and `expected` are of all the queries or of the last.

    A query's scores are sums of products whose magnitudes add up to at most `largest`; the scaled
    query and the sum are rounded by eps / 2 each, and so is the score with its bias. An exponential
    is off by as much in relative terms, and its share of the total by twice that. The total, the
    share, its product with the value and the sum of these make four more roundings at most of
    numbers no greater than the greatest value.
    """
    group = case.query.shape[1] // case.key.shape[1]
    key = case.key.double().repeat_interleave(group, dim=1)
    products = case.query.double().abs() @ key.abs().mT / case.query.shape[-1] ** 0.5
    if case.bias is not None:
        products = products + case.bias.table.double().abs().amax((1, 2), keepdim=True)
    largest = products.amax(-1, keepdim=True)[:, :, -actual.shape[2] :]
    eps = torch.finfo(case.query.dtype).eps
    unit = (2 * largest + 4) * eps * case.value.double().abs().max()
    return furthest(actual.double() / unit, expected.double() / unit)


def furthest(actual: Tensor, expected: Tensor) -> float:
    """The greatest difference of two tensors of one shape; infinite where either is NaN."""
    assert actual.shape == expected.shape
    difference = (actual.detach().double() - expected.detach().double()).abs()
    return float(difference.nan_to_num(nan=float("inf")).max()) if difference.numel() else 0.0
