"""Block-sparse attention: which blocks are looked at; all else is as in softmax attention."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from attention_cases import (
    BOTH_PATHS,
    DTYPES,
    Case,
    brief,
    error,
    furthest,
    generators,
    in_steps,
    normal,
    path,
    schedules,
    thorough,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from largest import Largest
from regard.attention import BigBird, Mask, Shape, SlidingWindow, Softmax, State
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


def test_windows_of_less_than_nothing_and_blocks_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="size ≥ 0, not -1"):
        SlidingWindow(size=-1)
    with pytest.raises(ValueError, match="at least one token, not 0"):
        SlidingWindow(size=1, block_size=0)
    with pytest.raises(ValueError, match="at least one token, not 0"):
        BigBird(block_size=0)


# Which blocks: BigBird


@pytest.mark.parametrize(("window", "random", "first"), [(2, 3, 2), (0, 3, 2), (3, -1, 2)])
def test_a_bigbird_that_makes_no_sense_is_refused(window: int, random: int, first: int) -> None:
    with pytest.raises(ValueError, match=f"window = {window}, random = {random}"):
        BigBird(window=window, random=random, global_blocks=first)


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


def test_heads_rows_and_seeds_draw_for_themselves() -> None:
    def drawn(seed: int) -> list[list[list[int]]]:
        attention = BigBird(
            block_size=1, window=1, random=3, global_blocks=0, max_keys=100, seed=seed
        )
        return [
            [sorted(set(row.tolist()) - {i}) for i, row in enumerate(head)]
            for head in rows_of(attention, 4, 100, causal=False)
        ]

    one, other = drawn(0), drawn(1)
    assert one == drawn(0)
    # Of 161 700 triples: all rows, heads and seeds together, a pair or so may agree.
    triples = [tuple(row) for draws in (one, other) for head in draws for row in head]
    assert len(triples) == 800
    assert len(set(triples)) >= 795


def test_a_draw_is_the_same_for_ever() -> None:
    """Saved models come with the seed, not with the blocks."""
    attention = BigBird(block_size=1, window=1, random=2, global_blocks=0, max_keys=8, seed=3)
    rows = rows_of(attention, 1, 8, causal=False)[0]
    assert [sorted(row.tolist()) for row in rows] == GOLDEN


GOLDEN = [
    [0, 1, 4],
    [1, 2, 5],
    [0, 2, 4],
    [3, 6, 7],
    [3, 4, 7],
    [0, 1, 5],
    [3, 5, 6],
    [1, 3, 7],
]


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


@DTYPES
@BOTH_PATHS
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
"""Each size and precision with both ways of causality, and each kind with sizes of each sort."""


@EITHER_WAY
@pytest.mark.parametrize(("kind", "n", "dtype"), SHAPES)
def test_it_is_so_on_the_way_that_it_chooses_itself(
    kind: str, n: int, causal: bool, dtype: torch.dtype
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


@BOTH_PATHS
@EITHER_WAY
@pytest.mark.parametrize(
    "attention",
    [BigBird(block_size=2, max_keys=80), SlidingWindow(size=3, block_size=2)],
    ids=["bigbird", "window"],
)
def test_rows_that_may_look_at_nothing_are_zero_with_finite_gradients(
    attention: BlockSparse, causal: bool, eager: bool
) -> None:
    inputs = [
        torch.where(torch.arange(40)[:, None] < 20, x, 1e4).requires_grad_()
        for x in (normal(2, 2, 40, 3, seed=seed, dtype=torch.float32) for seed in range(3))
    ]
    mask = Mask.lengths(torch.tensor([20, 0])) & (Mask.causal() if causal else Mask())
    with path(eager=eager):
        out = attention(*inputs, mask=mask)
        gradients = torch.autograd.grad(out[:, :, :20].square().sum(), inputs)
    assert not out[1].any()
    assert out[0, :, :20].any(-1).all()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert not any(gradient[1].any() for gradient in gradients)


# Step by step


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@BOTH_PATHS
@thorough
@given(
    attention=st.one_of(bigbirds(longest=20), windows()),
    schedule=schedules(calls=6),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    spare=st.integers(0, 2),
    data=st.data(),
)
def test_in_any_steps_it_is_causal_attention_of_the_whole(
    attention: BlockSparse,
    schedule: list[list[int]],
    kv_heads: int,
    group: int,
    spare: int,
    data: st.DataObject,
    eager: bool,
    dtype: torch.dtype,
) -> None:
    """Rows of unequal length, padded on the right; some are full while others go on."""
    rows, n = len(schedule), max(sum(counts) for counts in schedule)
    generator, bias = data.draw(generators()), data.draw(biases(heads=kv_heads * group))
    whole = [
        torch.randn(rows, heads, n, d, generator=generator, dtype=torch.float64).to(dtype)
        for heads, d in ((kv_heads * group, 4), (kv_heads, 4), (kv_heads, 3))
    ]
    state: State = attention.init_state(
        rows, kv_heads, 4, 3, capacity=n + spare, device=CPU, dtype=dtype
    )
    with path(eager=eager):
        out, done = in_steps(attention, state, whole, schedule, bias)
        for row, length in enumerate(done):
            query, key, value = (x[row, None, :, :length] for x in whole)
            if length:
                case = Sparse(attention, query, key, value, Mask.causal(), bias)
                # Both sides round.
                assert error(out[row, None, :, :length], case.run(), case.dense) <= 2


@pytest.mark.parametrize(
    "attention",
    [BigBird(block_size=2, max_keys=4), SlidingWindow(size=1, block_size=2)],
    ids=["bigbird", "window"],
)
def test_a_full_row_may_wait_while_others_go_on(attention: BlockSparse) -> None:
    state = attention.init_state(2, 1, 2, 2, capacity=4, device=CPU, dtype=torch.float64)
    x = normal(2, 1, 5, 2)
    keep = torch.tensor([[True] * 4, [True] * 3 + [False]])
    _, state = attention.extend(x[:, :, :4], x[:, :, :4], x[:, :, :4], state, attention_mask=keep)
    last = x[:, :, 3:4]
    out, state = attention.extend(
        last, last, last, state, attention_mask=torch.tensor([[False], [True]])
    )
    assert state.length.tolist() == [4, 4]
    whole = attention(x[1:, :, :4], x[1:, :, :4], x[1:, :, :4], mask=Mask.causal())
    assert furthest(out[1], whole[0, :, 3:]) <= 1e-14


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
def test_no_tensor_is_as_large_as_all_pairs(
    make: Callable[[], BlockSparse], causal: bool, eager: bool
) -> None:
    """Forward and backward, at 2048 tokens: the largest is below a twentieth of their pairs."""
    n = 2048
    inputs = [normal(1, 1, n, 8, seed=seed).float().requires_grad_() for seed in range(3)]
    mask = Mask.causal() if causal else None
    with path(eager=eager), Largest() as largest:
        out = make()(*inputs, mask=mask, bias=Alibi(heads=1))
        out.sum().backward()
    assert n * 8 * 4 <= largest.bytes <= n * n * 4 / 20
    with Largest() as dense:
        Softmax().weights(inputs[0], inputs[1])
    assert dense.bytes >= n * n * 4


@BOTH_PATHS
@EITHER_WAY
@pytest.mark.parametrize("make", MECHANISMS.values(), ids=MECHANISMS)
def test_what_the_backward_pass_keeps_grows_with_the_length(
    make: Callable[[], BlockSparse], causal: bool, eager: bool
) -> None:
    def kept(n: int) -> int:
        sizes: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        inputs = [normal(1, 1, n, 8, seed=seed).float().requires_grad_() for seed in range(3)]
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = make()(*inputs, mask=Mask.causal() if causal else None)
        assert out.shape == (1, 1, n, 8)
        return sum(sizes.values())

    with path(eager=eager):
        assert kept(2048) <= 2.5 * kept(1024)


COUNTED = {
    "bigbird": BigBird(block_size=16, max_keys=1024),
    "bigbird, longer": BigBird(block_size=16, max_keys=4096),
    "bigbird, plain": BigBird(block_size=8, window=1, random=0, global_blocks=0, max_keys=1024),
    "window": SlidingWindow(size=40, block_size=16),
    "narrow": SlidingWindow(size=3, block_size=8),
}


@EITHER_WAY
@pytest.mark.parametrize("attention", COUNTED.values(), ids=COUNTED)
@pytest.mark.parametrize("n", [500, 7])
def test_a_last_block_that_is_not_full_counts_as_a_whole(
    attention: BlockSparse, n: int, causal: bool
) -> None:
    shape = Shape(batch=2, heads=4, kv_heads=2, queries=n, keys=n, d=8, e=5, causal=causal)
    products = 2 * shape.batch * pairs(attention, shape) * (shape.d + shape.e)
    blocks = -(-n // attention.block_size)
    most = products * (blocks * attention.block_size / n) ** 2 * (1 + 1 / blocks)
    assert products <= attention.cost(shape).operations <= most


def pairs(attention: BlockSparse, shape: Shape) -> int:
    """The pairs of queries and the keys in blocks that they look at."""
    heads, n = shape.heads, shape.keys
    blocks = attention.pattern(heads, n, causal=shape.causal, device=CPU).blocks
    assert blocks is not None
    return int(blocks.refined(1)[:, :n, :n].expand(heads, n, n).sum())
