"""Attention of low rank: the singular values' cut, and Linformer."""

import math

import numpy as np
import pytest
import torch
from attention_cases import BOTH_PATHS, DTYPES, brief, furthest, generators, path, thorough
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Mask, Shape
from regard.attention.lowrank import Linformer, truncate
from regard.errors import UnsupportedError
from regard.positions import Alibi

EPS64 = torch.finfo(torch.float64).eps


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Truncation: S10


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Matrices of any shape, of full rank, and a rank of theirs."""
    batch = draw(st.lists(st.integers(1, 2), max_size=2))
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    generator = draw(generators())
    matrix = torch.randn(*batch, rows, columns, generator=generator, dtype=torch.float64)
    return matrix, draw(st.integers(1, min(rows, columns)))


@thorough
@given(matrix_and_rank=matrices())
def test_no_matrix_of_that_rank_is_nearer(matrix_and_rank: tuple[Tensor, int]) -> None:
    """The distance is the root of the squares of the singular values left out."""
    matrix, rank = matrix_and_rank
    low = truncate(matrix, rank)
    assert low.left.shape == (*matrix.shape[:-1], rank)
    assert low.right.shape == (*matrix.shape[:-2], rank, matrix.shape[-1])
    values = torch.from_numpy(np.linalg.svd(matrix.numpy(), compute_uv=False))
    squares = values.square()
    bound = 100 * EPS64 * float(values.max())
    distance = torch.linalg.matrix_norm(matrix - low.matrix)
    assert furthest(distance, squares[..., rank:].sum(-1).sqrt()) <= bound
    assert furthest(low.energy, squares[..., :rank].sum(-1) / squares.sum(-1)) <= 100 * EPS64


@brief
@given(
    rank=st.integers(1, 4),
    rows=st.integers(4, 8),
    columns=st.integers(4, 8),
    generator=generators(),
)
def test_a_matrix_of_a_rank_is_its_own_truncation_to_it(
    rank: int, rows: int, columns: int, generator: torch.Generator
) -> None:
    left = torch.randn(2, rows, rank, generator=generator, dtype=torch.float64)
    right = torch.randn(2, rank, columns, generator=generator, dtype=torch.float64)
    low = truncate(left @ right, rank)
    assert furthest(low.matrix, left @ right) <= 100 * EPS64 * float((left @ right).abs().max())
    assert furthest(low.energy, torch.ones(2)) <= 10 * EPS64


@brief
@given(matrix_and_rank=matrices(), e=st.integers(1, 3))
def test_its_product_with_values_is_the_matrix_s(
    matrix_and_rank: tuple[Tensor, int], e: int
) -> None:
    matrix, rank = matrix_and_rank
    low, value = truncate(matrix, rank), normal(*matrix.shape[:-2], matrix.shape[-1], e)
    assert (low @ value).shape == (*matrix.shape[:-1], e)
    bound = 100 * EPS64 * float(matrix.norm() * value.norm())
    assert furthest(low @ value, low.matrix @ value) <= bound


def test_energies_of_known_singular_values() -> None:
    matrix = torch.diag(torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64))
    shares = [float(truncate(matrix, rank).energy) for rank in (1, 2, 3)]
    assert shares == pytest.approx([9 / 14, 13 / 14, 1.0], rel=1e-14)
    kept = torch.diag(torch.tensor([0.0, 3.0, 2.0], dtype=torch.float64))
    assert furthest(truncate(matrix, 2).matrix, kept) <= 10 * EPS64


def test_nothing_is_lost_of_a_matrix_of_zeros() -> None:
    mixed = torch.stack([torch.zeros(3, 4), torch.ones(3, 4)])
    low = truncate(mixed, 1)
    assert low.energy.tolist() == pytest.approx([1.0, 1.0])
    assert torch.equal(low.matrix[0], torch.zeros(3, 4))


@pytest.mark.parametrize("rank", [-1, 0, 4])
def test_a_rank_that_the_matrix_cannot_have_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank}"):
        truncate(normal(2, 3, 5), rank)


# Projection of keys and values: S11


@pytest.mark.parametrize(("n", "h", "k"), [(12, 4, 4), (12, 4, 2), (5, 8, 5), (20, 8, 1)])
def test_projections_from_singular_vectors_lose_nothing_without_softmax(
    n: int, h: int, k: int
) -> None:
    """P = QKᵀ/√h = UΣWᵀ of rank k: with C = Wᵀ and D = Wᵀ/√h, PV = Q(CK)ᵀ·DV."""
    query, key = normal(n, k, seed=1) @ normal(k, h, seed=2), normal(n, h, seed=3)
    value = normal(n, 3, seed=4)
    P = query @ key.T / h**0.5
    C = truncate(P, k).right
    D = C / h**0.5
    assert C.shape == D.shape == (k, n)
    bound = 20 * n * EPS64 * float(P.norm() * value.norm())
    assert furthest(query @ (C @ key).T @ (D @ value), P @ value) <= bound
    # Nor does Q(KᵀV)/√h, which needs no singular vector.
    assert furthest(query @ (key.T @ value) / h**0.5, P @ value) <= bound
    if k > 1:
        fewer = truncate(P, k - 1).right
        off = query @ (fewer @ key).T @ (fewer @ value) / h**0.5
        assert furthest(off, P @ value) > 0.1


# Linformer


class Oracle:
    """softmax(Q(EK)ᵀ/√d)·FV in float64, number by number; and what rounding may do to it."""

    def __init__(
        self, linformer: Linformer, query: Tensor, key: Tensor, value: Tensor, lengths: list[int]
    ) -> None:
        (batch, heads, queries, d), (_, kv_heads, keys, e) = query.shape, value.shape
        E, F = (p.detach().double() for p in (linformer.project_key, linformer.project_value))
        E, F = (p.expand(kv_heads, -1, -1) for p in (E, F))
        query, key, value = (x.double() for x in (query, key, value))
        k = E.shape[1]
        self.weights = torch.zeros(batch, heads, queries, keys, dtype=torch.float64)
        self.out = torch.zeros(batch, heads, queries, e, dtype=torch.float64)
        self.largest_score, self.largest_value = 0.0, 0.0
        for b in range(batch):
            for h in range(heads):
                g, seen = h // (heads // kv_heads), range(lengths[b])
                for i in range(queries):
                    scores, sizes = [], []
                    for row in range(k):
                        terms = [
                            float(query[b, h, i, c] * E[g, row, j] * key[b, g, j, c])
                            for c in range(d)
                            for j in seen
                        ]
                        scores.append(sum(terms) / math.sqrt(d))
                        sizes.append(sum(map(abs, terms)) / math.sqrt(d))
                    total = sum(math.exp(score) for score in scores)
                    for j in seen:
                        mixed = sum(
                            math.exp(score) / total * float(F[g, row, j])
                            for row, score in enumerate(scores)
                        )
                        self.weights[b, h, i, j] = mixed
                        self.out[b, h, i] += mixed * value[b, g, j]
                    self.largest_score = max(self.largest_score, *sizes)
                mixed_sizes = F[g, :, : lengths[b]].abs() @ value[b, g, : lengths[b]].abs()
                self.largest_value = max(self.largest_value, float(mixed_sizes.max()))

    def off(self, out: Tensor, dtype: torch.dtype) -> float:
        """The error in units of what rounding may do.

        A score is rounded in E, in EK, in the scaled query and in the sum, by eps / 2 each; twice
        that goes into a share. Shares, F, FV and the result make four more roundings, or five.
        """
        unit = (4 * self.largest_score + 5) * torch.finfo(dtype).eps * (self.largest_value + 1e-300)
        return furthest(out.double() / unit, self.out / unit)


@st.composite
def linformers(
    draw: st.DrawFn,
) -> tuple[Linformer, tuple[Tensor, Tensor, Tensor], list[int], Mask | None]:
    """A Linformer and inputs: shorter than it allows or not, grouped heads, lengths or none."""
    batch, kv_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    keys, queries = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    d, e = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    length = keys + draw(st.integers(0, 3))
    generator = draw(generators())
    with torch.random.fork_rng():
        torch.manual_seed(draw(st.integers(0, 99)))
        linformer = Linformer(
            length=length,
            k=draw(st.integers(1, min(length, 4))),
            heads=draw(st.sampled_from([None, kv_heads])),
        )
    shapes = [(batch, kv_heads * group, queries, d)]
    shapes += [(batch, kv_heads, keys, width) for width in (d, e)]
    query, key, value = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    if not draw(st.booleans()):
        return linformer, (query, key, value), [keys] * batch, None
    lengths = draw(st.lists(st.integers(0, keys), min_size=batch, max_size=batch))
    return linformer, (query, key, value), lengths, Mask.lengths(torch.tensor(lengths))


Drawn = tuple[Linformer, tuple[Tensor, Tensor, Tensor], list[int], Mask | None]


@DTYPES
@BOTH_PATHS
@thorough
@given(drawn=linformers())
def test_linformer_is_its_formula(drawn: Drawn, composed: bool, dtype: torch.dtype) -> None:
    linformer, inputs, lengths, mask = drawn
    query, key, value = (x.to(dtype) for x in inputs)
    with path(composed=composed):
        out: Tensor = linformer(query, key, value, mask=mask)
    oracle = Oracle(linformer, query, key, value, lengths)
    assert out.dtype == dtype
    assert oracle.off(out, dtype) <= 1
    for row, n in enumerate(lengths):
        assert out[row].any() or n == 0
        assert not out[row].any() or n > 0


@DTYPES
@thorough
@given(drawn=linformers())
def test_linformer_s_weights_are_its_formula_and_make_its_output(
    drawn: Drawn, dtype: torch.dtype
) -> None:
    linformer, inputs, lengths, mask = drawn
    query, key, value = (x.to(dtype) for x in inputs)
    weights = linformer.weights(query, key, mask=mask)
    precision = torch.promote_types(dtype, torch.float32)
    assert weights.dtype == precision
    oracle = Oracle(linformer, query, key, value, lengths)
    largest = float(linformer.project_value.detach().abs().max())
    unit = (4 * oracle.largest_score + 5) * torch.finfo(precision).eps * largest
    assert furthest(weights / unit, oracle.weights / unit) <= 1
    group = query.shape[1] // key.shape[1]
    gathered = weights.double() @ value.double().repeat_interleave(group, dim=1)
    assert oracle.off(gathered, precision) <= 1
    # Both round.
    out = linformer(query, key, value, mask=mask).double()
    assert oracle.off(out - gathered + oracle.out, dtype) <= 2


@BOTH_PATHS
@brief
@given(drawn=linformers(), data=st.data())
def test_a_memory_is_read_as_keys_and_values_are(
    drawn: Drawn, data: st.DataObject, composed: bool
) -> None:
    linformer, (query, key, value), lengths, mask = drawn
    with path(composed=composed):
        memory = linformer.memory(key, value, mask=mask)
        out = linformer(query, key, value, mask=mask)
        assert torch.equal(linformer.read(query, memory), out)
        assert memory.length.tolist() == lengths
        rows = data.draw(st.lists(st.integers(0, len(query) - 1), min_size=1, max_size=3))
        some = memory.select(torch.tensor(rows))
        assert some.length.tolist() == [lengths[row] for row in rows]
        assert furthest(linformer.read(query[rows], some), out[rows]) <= 100 * EPS64
    k = linformer.project_key.shape[1]
    assert memory.bytes == 8 * len(key) * (key.shape[1] * k * (key.shape[3] + value.shape[3]) + 1)


@DTYPES
@pytest.mark.parametrize("content", [1e4, float("nan")])
def test_what_the_padding_holds_does_not_matter(content: float, dtype: torch.dtype) -> None:
    linformer = Linformer(length=6, k=3)
    query, key, value = (normal(3, 2, 6, 4, seed=seed).to(dtype) for seed in range(3))
    lengths = torch.tensor([6, 2, 0])
    real = (torch.arange(6) < lengths[:, None])[:, None, :, None]
    padded = [torch.where(real, x, content) for x in (key, value)]
    mask = Mask.lengths(lengths)
    out = linformer(query, key, value, mask=mask)
    assert torch.equal(linformer(query, *padded, mask=mask), out)
    assert torch.equal(
        linformer.weights(query, padded[0], mask=mask), linformer.weights(query, key, mask=mask)
    )
    assert not out[2].any()
    assert not linformer.weights(query, key, mask=mask)[2].any()


def test_a_shorter_input_is_a_padded_one() -> None:
    linformer = Linformer(length=9, k=3).double()
    query, key, value = (normal(2, 2, n, 4, seed=n) for n in (3, 9, 9))
    short = linformer(query, key[:, :, :5], value[:, :, :5])
    mask = Mask.lengths(torch.tensor([5, 5]))
    assert furthest(short, linformer(query, key, value, mask=mask)) <= 100 * EPS64
    assert furthest(short, linformer(query, key, value)) > 0.01


def test_each_key_head_has_projections_of_its_own_or_shares_them() -> None:
    own, one = Linformer(length=7, k=3, heads=2), Linformer(length=7, k=3)
    assert own.project_key.shape == own.project_value.shape == (2, 3, 7)
    assert one.project_key.shape == one.project_value.shape == (1, 3, 7)
    assert sum(p.numel() for p in own.parameters()) == 2 * 2 * 3 * 7
    assert not torch.equal(own.project_key[0], own.project_key[1])
    x = normal(1, 1, 7, 4)
    query, key = (x.expand(1, heads, 7, 4) for heads in (4, 2))
    out, same = own(query, key, key), one(query, key, key)
    assert furthest(out[:, 0], out[:, 1]) == furthest(out[:, 2], out[:, 3]) == 0
    assert furthest(out[:, 1], out[:, 2]) > 0.01
    assert furthest(same[:, 1], same[:, 2]) == 0


@BOTH_PATHS
def test_linformer_s_gradients_are_those_of_finite_differences(composed: bool) -> None:
    linformer = Linformer(length=5, k=2, heads=2).double()
    mask = Mask.lengths(torch.tensor([4, 0]))
    inputs = [normal(2, heads, 4, 3, seed=heads).requires_grad_() for heads in (4, 2, 2)]
    parameters = [p.detach().requires_grad_() for p in linformer.parameters()]

    def run(query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        state = dict(zip(("project_key", "project_value"), parameters, strict=True))
        out: Tensor = torch.func.functional_call(
            linformer, state, (query, key, value), {"mask": mask}
        )
        return out

    with path(composed=composed):
        assert torch.autograd.gradcheck(run, (*inputs, *parameters), fast_mode=True)


REFUSED_MASKS = {
    "alignment": Mask.causal(),
    "window_size": Mask.window(1),
    "document_ids": Mask.documents(torch.zeros(1, 4, dtype=torch.long)),
    "blocks": Mask.block_pairs(torch.ones(1, 2, 2, dtype=torch.bool), size=2),
    "allowed": Mask.dense(torch.ones(1, 1, 4, 4, dtype=torch.bool)),
}


@pytest.mark.parametrize("mask", REFUSED_MASKS.values(), ids=REFUSED_MASKS)
def test_linformer_refuses_every_mask_but_lengths(mask: Mask) -> None:
    linformer, x = Linformer(length=4, k=2).double(), normal(1, 1, 4, 2)
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer(x, x, x, mask=mask)
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.weights(x, x, mask=mask)
    with pytest.raises(ValueError, match=r"linformer.*lengths"):
        linformer.memory(x, x, mask=mask)


def test_linformer_refuses_a_bias_and_steps() -> None:
    linformer, x = Linformer(length=4, k=2).double(), normal(1, 1, 4, 2)
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer(x, x, x, bias=Alibi(heads=1))
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.weights(x, x, bias=Alibi(heads=1))
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.start(1, 1, 2, 2, capacity=4, device=x.device, dtype=x.dtype)
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.extend(x, x, x, linformer.memory(x, x))


def test_more_keys_than_its_length_are_refused() -> None:
    linformer, x = Linformer(length=3, k=2).double(), normal(1, 1, 4, 2)
    for call in (
        lambda: linformer(x, x, x),
        lambda: linformer.weights(x, x),
        lambda: linformer.memory(x, x),
    ):
        with pytest.raises(ValueError, match=r"for 3 keys at most, not 4"):
            call()
    linformer(x, x[:, :, :3], x[:, :, :3])


def test_heads_that_do_not_fit_its_projections_are_refused() -> None:
    x = normal(1, 3, 4, 2)
    with pytest.raises(ValueError, match=r"for 2 key heads, not 3"):
        Linformer(length=4, k=2, heads=2).double()(x, x, x)


@pytest.mark.parametrize("k", [0, 5])
def test_more_rows_than_keys_or_none_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k}"):
        Linformer(length=4, k=k)


@pytest.mark.parametrize("heads", [None, 2])
def test_its_cost_is_what_a_flop_counter_sees(heads: int | None) -> None:
    linformer = Linformer(length=20, k=3, heads=heads)
    query, key, value = (
        torch.ones(shape) for shape in ((2, 4, 6, 5), (2, 2, 10, 5), (2, 2, 10, 7))
    )
    with path(composed=True), FlopCounterMode(display=False) as counter:
        out = linformer(query, key, value)
    cost = linformer.cost(Shape(batch=2, heads=4, kv_heads=2, queries=6, keys=10, d=5, e=7))
    assert cost.operations == counter.get_total_flops()
    projections = (p[:, :, :10].numel() for p in linformer.parameters())
    assert cost.bytes == 4 * (sum(x.numel() for x in (query, key, value, out)) + sum(projections))
    assert cost.parameters == sum(p.numel() for p in linformer.parameters())
    assert cost.state_bytes == 0
