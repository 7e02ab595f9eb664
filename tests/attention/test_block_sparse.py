"""Block-sparse attention: which blocks are looked at; all else is as in softmax attention."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, product

import pytest
import torch
from attention_cases import (
    BOTH_PATHS,
    Case,
    biases,
    bigbirds,
    brief,
    error,
    furthest,
    generators,
    normal,
    path,
    thorough,
    windows,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from largest import Largest, memory_used
from refusals import refusal
from regard.attention import BigBird, Mask, Shape, SlidingWindow, Softmax
from regard.attention.block_sparse import BlockSparse
from regard.attention.contract_cases import TableBias
from regard.attention.mask import Alignment
from regard.positions import Alibi, T5Bias

CPU = torch.device("cpu")
EITHER_WAY = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])


def tokens(attention: BlockSparse, heads: int, n: int, *, causal: bool) -> Tensor:
    """Which tokens each head lets each token look at."""
    mask = attention.pattern(heads, n, causal=causal, device=CPU)
    return mask.to_dense(n, n, CPU)[0].expand(heads, n, n)


def rows_of(attention: BlockSparse, heads: int, blocks: int, *, causal: bool) -> list[list[Tensor]]:
    """For each head and block of queries, the blocks of keys in its table."""
    table = attention.table(heads, blocks, causal=causal, device=CPU).expand(heads, -1, -1)
    return [[row[row >= 0] for row in head] for head in table]


# Which blocks: the window


@EITHER_WAY
@thorough
@given(attention=windows(), n=st.integers(1, 20), heads=st.integers(1, 2))
def test_a_window_is_the_keys_at_most_its_size_away(
    attention: SlidingWindow, n: int, heads: int, causal: bool
) -> None:
    i, j = torch.arange(n)[:, None], torch.arange(n)
    expected = (i - j).abs() <= attention.size
    if causal:
        expected = expected & (j <= i)
    allowed = tokens(attention, heads, n, causal=causal)
    assert torch.equal(allowed, expected.expand(heads, n, n))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a negative window": (lambda: SlidingWindow(size=-1), "size ≥ 0, not -1"),
    "a window of empty blocks": (
        lambda: SlidingWindow(size=1, block_size=0),
        "at least one token, not 0",
    ),
    "empty blocks": (lambda: BigBird(block_size=0), "at least one token, not 0"),
    "an even window": (lambda: BigBird(window=2, random=3), "window = 2, random = 3"),
    "no window": (lambda: BigBird(window=0, random=3), "window = 0, random = 3"),
    "a negative number": (lambda: BigBird(window=3, random=-1), "window = 3, random = -1"),
}


def test_sizes_that_make_no_sense_are_refused() -> None:
    for name, (make, says) in REFUSED.items():
        with refusal(ValueError, says, name):
            make()


# Which blocks: BigBird


@EITHER_WAY
@thorough
@given(attention=bigbirds(longest=40), n=st.integers(1, 40), heads=st.integers(1, 3))
def test_a_block_looks_at_the_global_ones_its_window_and_as_many_random_ones(
    attention: BigBird, n: int, heads: int, causal: bool
) -> None:
    """The random ones of a shorter sequence are those of `max_keys` that it has."""
    blocks, side = -(-n // attention.block_size), attention.window // 2
    most = -(-attention.max_keys // attention.block_size)
    for head in rows_of(attention, heads, blocks, causal=causal):
        assert len(head) == blocks
        for row, seen in enumerate(head):
            last = row if causal else blocks - 1
            near = range(max(row - side, 0), min(row + side, last) + 1)
            fixed = {*range(min(attention.global_blocks, last + 1)), *near}
            assert len(seen.unique()) == len(seen)
            assert fixed <= set(seen.tolist())
            assert set(seen.tolist()) <= set(range(last + 1))
            drawn = len(seen) - len(fixed)
            if causal or blocks == most:
                free = last + 1 - len(fixed)
                assert drawn == min(attention.random, free)
            assert drawn <= attention.random


def test_without_causality_the_global_blocks_look_at_all_keys() -> None:
    attention = BigBird(block_size=3, window=1, random=1, global_blocks=2, max_keys=60)
    assert tokens(attention, 2, 50, causal=False)[:, :6].all()
    assert not tokens(attention, 2, 50, causal=False)[:, 6:].all(-1).any()
    assert not tokens(attention, 2, 50, causal=True)[:, :6, 6:].any()


@EITHER_WAY
@thorough
@given(
    attention=st.one_of(bigbirds(longest=40), windows()), sizes=st.tuples(*[st.integers(1, 40)] * 2)
)
def test_what_fewer_tokens_look_at_is_a_corner(
    attention: BlockSparse, sizes: tuple[int, int], causal: bool
) -> None:
    """So pads and steps change nothing."""
    n, more = sorted(sizes)
    corner = tokens(attention, 2, more, causal=causal)[:, :n, :n]
    assert torch.equal(tokens(attention, 2, n, causal=causal), corner)


@EITHER_WAY
def test_random_blocks_are_any_that_are_not_looked_at_already(causal: bool) -> None:
    """Each is as likely, in every row of every head: not block 0, nor the same for all."""
    heads, blocks, random = 3000, 12, 2
    attention = BigBird(block_size=1, window=3, random=random, global_blocks=1, max_keys=blocks)
    table = attention.table(heads, blocks, causal=causal, device=CPU)
    for row in range(blocks):
        last = row if causal else blocks - 1
        free = [j for j in range(1, last + 1) if abs(j - row) > 1]
        share = random / max(len(free), random)
        counts = torch.tensor([int((table[:, row] == j).sum()) for j in free]).double()
        spread = (heads * share * (1 - share)) ** 0.5
        assert furthest(counts, torch.full_like(counts, heads * share)) <= 5 * spread


GOLDEN = [[0, 1, 4], [1, 2, 5], [0, 2, 4], [3, 6, 7], [3, 4, 7], [0, 1, 5], [3, 5, 6], [1, 3, 7]]


def test_a_draw_is_the_same_for_ever() -> None:
    """Saved models come with the seed, not with the blocks."""
    attention = BigBird(block_size=1, window=1, random=2, global_blocks=0, max_keys=8, seed=3)
    rows = rows_of(attention, 1, 8, causal=False)[0]
    assert [sorted(row.tolist()) for row in rows] == GOLDEN


@EITHER_WAY
def test_more_keys_than_its_draw_are_refused(causal: bool) -> None:
    attention = BigBird(block_size=4, max_keys=18)
    mask = Mask.causal() if causal else None
    x = normal(1, 1, 21, 2)
    for call in (lambda: attention(x, x, x, mask=mask), lambda: attention.weights(x, x, mask=mask)):
        with pytest.raises(ValueError, match="max_keys = 18"):
            call()
    attention(x[:, :, :20], x[:, :, :20], x[:, :, :20], mask=mask)  # the last block is whole


# The output: softmax attention under that pattern and any mask


@dataclass(frozen=True, eq=False)
class Sparse:
    """A mechanism and inputs."""

    attention: BlockSparse
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None
    bias: Alibi | T5Bias | None

    def to(self, dtype: torch.dtype) -> "Sparse":
        query, key, value = (x.to(dtype) for x in (self.query, self.key, self.value))
        return Sparse(self.attention, query, key, value, self.mask, self.bias)

    @property
    def dense(self) -> Case:
        """The same in softmax attention."""
        heads, n = self.query.shape[1:3]
        mask = self.mask or Mask()
        causal = mask.alignment is not None
        both = mask.to_dense(n, n, CPU) & tokens(self.attention, heads, n, causal=causal)
        places = torch.arange(n)
        table = None if self.bias is None else self.bias.dense(places, places).to(self.query.dtype)
        return Case(
            query=self.query,
            key=self.key,
            value=self.value,
            mask=Mask.dense(both),
            bias=None if table is None else TableBias(table),
        )

    def run(self) -> Tensor:
        out: Tensor = self.attention(
            self.query, self.key, self.value, mask=self.mask, bias=self.bias
        )
        return out


def exact(case: Case) -> Tensor:
    """Softmax attention in float64, which has tests of its own."""
    precise = case.to(torch.float64)
    out: Tensor = Softmax()(
        precise.query, precise.key, precise.value, mask=precise.mask, bias=precise.bias
    )
    return out.detach()


@st.composite
def sparse_cases(
    draw: st.DrawFn,
    *,
    longest: int = 40,
    alignments: tuple[Alignment | None, ...] = (None, "start", "end"),
    masked: bool = True,
) -> Sparse:
    """Any length, the longer ones more often; grouped heads; every mask that is supported."""
    batch, kv_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    heads, n = kv_heads * group, longest - draw(st.integers(0, longest - 1))
    d, e = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    key_lengths = document_ids = None
    if masked and draw(st.booleans()):
        lengths = st.lists(st.integers(0, n), min_size=batch, max_size=batch)
        key_lengths = torch.tensor(draw(lengths))
    if masked and draw(st.booleans()):
        ids = st.lists(st.integers(0, 2), min_size=n, max_size=n)
        document_ids = torch.tensor([draw(ids) for _ in range(batch)])
    mask = Mask(
        alignment=draw(st.sampled_from(alignments)),
        key_lengths=key_lengths,
        document_ids=document_ids,
    )
    generator = draw(generators())
    shapes = [(batch, heads, n, d), (batch, kv_heads, n, d), (batch, kv_heads, n, e)]
    query, key, value = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    return Sparse(
        draw(st.one_of(bigbirds(longest=longest), windows())),
        query,
        key,
        value,
        mask if mask.restrictions else draw(st.sampled_from([mask, None])),
        draw(biases(heads=heads)),
    )


@pytest.mark.parametrize(
    ("eager", "dtype"),
    [
        *((eager, torch.float64) for eager in (True, False)),
        *((True, torch.bfloat16), (False, torch.float32)),
    ],
)
@thorough
@given(case=sparse_cases())
def test_it_is_softmax_attention_under_its_pattern(
    case: Sparse, eager: bool, dtype: torch.dtype
) -> None:
    case = case.to(dtype)
    with path(eager=eager):
        out = case.run()
    assert out.dtype == dtype
    assert error(out, exact(case.dense), case.dense) <= 1


SHAPES = [
    (kind, n, dtype)
    for kind, sizes in {"bigbird": (1, 16, 200, 1100), "window": (15, 17, 300, 1100)}.items()
    for n in sizes
    for dtype in (torch.float32, torch.bfloat16)
    if n < 1100 or dtype == torch.float32
]


@pytest.mark.parametrize(
    ("kind", "n", "dtype", "causal"),
    [(*shape, causal) for shape, causal in zip(SHAPES, cycle([True, False]), strict=False)],
)
def test_it_is_so_on_the_way_that_it_chooses_itself(
    kind: str, n: int, dtype: torch.dtype, causal: bool
) -> None:
    """Below a block, at its edges, and beyond the tokens that are gathered at once."""
    attention = (
        BigBird(block_size=16, max_keys=2048)
        if kind == "bigbird"
        else SlidingWindow(size=20, block_size=16)
    )
    query, key, value = (normal(2, heads, n, 8, seed=heads, dtype=dtype) for heads in (4, 2, 2))
    mask = Mask.lengths(torch.tensor([n, n // 3]))
    if causal:
        mask = mask & Mask.causal("end")
    case = Sparse(attention, query, key, value, mask, Alibi(heads=4))
    assert error(case.run(), exact(case.dense), case.dense) <= 1


@BOTH_PATHS
@brief
@given(case=sparse_cases(longest=24))
def test_its_gradients_are_those_of_softmax_under_its_pattern(case: Sparse, eager: bool) -> None:
    inputs = [x.requires_grad_() for x in (case.query, case.key, case.value)]
    if isinstance(case.bias, T5Bias):
        inputs.append(case.bias.values)
    out = Softmax()(*inputs[:3], mask=case.dense.mask, bias=case.dense.bias)
    target = normal(*out.shape)
    expected = torch.autograd.grad((out * target).sum(), inputs)
    with path(eager=eager):
        gradients = torch.autograd.grad((case.run() * target).sum(), inputs)
    for gradient, right in zip(gradients, expected, strict=True):
        # Sums of a few hundred products of numbers below 10; biases are trained in float32.
        eps = torch.finfo(gradient.dtype).eps
        assert furthest(gradient, right) <= 1e3 * eps * max(1.0, float(right.abs().max()))


def test_one_step_of_long_attention_looks_at_its_blocks_only() -> None:
    attention = BigBird(block_size=16, max_keys=2048)
    query, key, value = (normal(1, heads, 1000, 8, seed=heads) for heads in (4, 2, 2))
    state = attention.init_state(1, 2, 8, 8, capacity=2048, device=CPU, dtype=torch.float64)
    _, state = attention.extend(query[:, :, :999], key[:, :, :999], value[:, :, :999], state)
    with Largest() as largest:
        out, _ = attention.extend(query[:, :, 999:], key[:, :, 999:], value[:, :, 999:], state)
    case = Sparse(attention, query, key, value, Mask.causal(), None)
    assert error(out, case.run()[:, :, 999:], case.dense) <= 2
    # The table of all heads and blocks, and the tokens of the blocks that are looked at.
    assert largest.bytes <= max(4 * 128 * 8, 4 * 8 * 16 * 8) * 8


# What it costs


MECHANISMS: dict[str, Callable[[], BlockSparse]] = {
    "bigbird": lambda: BigBird(block_size=16, max_keys=2048),
    "window": lambda: SlidingWindow(size=32, block_size=16),
}


@BOTH_PATHS
@EITHER_WAY
@pytest.mark.parametrize("make", MECHANISMS.values(), ids=MECHANISMS)
def test_memory_is_linear_in_the_length(
    make: Callable[[], BlockSparse], causal: bool, eager: bool
) -> None:
    """The largest tensor is below a twentieth of all pairs; what is kept for gradients doubles."""
    mask, bias = Mask.causal() if causal else None, Alibi(heads=1)
    with path(eager=eager):
        (_, short), (largest, long) = (memory_used(make(), n, 8, mask, bias) for n in (1024, 2048))
    assert 2048 * 8 * 4 <= largest <= 2048 * 2048 * 4 / 20
    assert long <= 2.5 * short


COUNTED = (
    BigBird(block_size=16, max_keys=1024),
    BigBird(block_size=16, max_keys=4096),
    BigBird(block_size=8, window=1, random=0, global_blocks=0, max_keys=1024),
    SlidingWindow(size=40, block_size=16),
    SlidingWindow(size=3, block_size=8),
)


@EITHER_WAY
def test_a_last_block_that_is_not_full_counts_as_a_whole(causal: bool) -> None:
    for attention, n in product(COUNTED, [500, 7]):
        shape = Shape(batch=2, heads=4, kv_heads=2, queries=n, keys=n, d=8, e=5, causal=causal)
        products = 2 * shape.batch * pairs(attention, shape) * (shape.d + shape.e)
        blocks = -(-n // attention.block_size)
        most = products * (blocks * attention.block_size / n) ** 2 * (1 + 1 / blocks)
        assert products <= attention.cost(shape).operations <= most, (attention.name, n)


def pairs(attention: BlockSparse, shape: Shape) -> int:
    """The pairs of queries and the keys in blocks that they look at."""
    heads, n = shape.heads, shape.keys
    blocks = attention.pattern(heads, n, causal=shape.causal, device=CPU).blocks
    assert blocks is not None
    return int(blocks.refined(1)[:, :n, :n].expand(heads, n, n).sum())


def test_a_window_of_any_size_takes_no_more_memory() -> None:
    """The table of blocks had one column for each block of the window: here 62.5 million."""
    window = SlidingWindow(size=10**9, block_size=16)
    table = window.table(1, 2, causal=True, device=torch.device("cpu"))
    assert table.shape[2] <= 3
    x = torch.randn(1, 1, 20, 4)
    torch.testing.assert_close(
        window(x, x, x, mask=Mask.causal()), Softmax()(x, x, x, mask=Mask.causal())
    )


def test_a_drawn_pattern_compiles_with_symbolic_sizes() -> None:
    """As in training: the sizes of the table were symbols without a source."""
    attend = BigBird(block_size=4, max_keys=64, random=1, global_blocks=1)

    def attended(x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
        out: Tensor = attend(heads, heads, heads, mask=Mask.causal())
        return out

    torch.compiler.reset()
    compiled = torch.compile(attended, backend="eager", fullgraph=True, dynamic=True)
    for n in (16, 33):
        x = torch.randn(2, n, 16)
        torch.testing.assert_close(compiled(x), attended(x), rtol=0, atol=0)
