"""Linformer: its formula, its weights and gradients, its memory, and what it refuses."""

import math

import pytest
import torch
from attention_cases import BOTH_PATHS, DTYPES, brief, furthest, generators, path, thorough
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Mask, Shape
from regard.attention.linformer import Linformer
from regard.errors import UnsupportedError
from regard.positions import Alibi

EPS64 = torch.finfo(torch.float64).eps


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
def test_linformer_is_its_formula(drawn: Drawn, eager: bool, dtype: torch.dtype) -> None:
    linformer, inputs, lengths, mask = drawn
    query, key, value = (x.to(dtype) for x in inputs)
    with path(eager=eager):
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
    drawn: Drawn, data: st.DataObject, eager: bool
) -> None:
    linformer, (query, key, value), lengths, mask = drawn
    with path(eager=eager):
        memory = linformer.encode_memory(key, value, mask=mask)
        out = linformer(query, key, value, mask=mask)
        # Exact: the same operations on the same shapes.
        assert torch.equal(linformer.attend_memory(query, memory), out)
        assert memory.length.tolist() == lengths
        rows = data.draw(st.lists(st.integers(0, len(query) - 1), min_size=1, max_size=3))
        some = memory.reorder(torch.tensor(rows))
        assert some.length.tolist() == [lengths[row] for row in rows]
        assert furthest(linformer.attend_memory(query[rows], some), out[rows]) <= 100 * EPS64
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
    # Exact: the shapes are the same, and padding is overwritten with 0.
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
    assert furthest(out[:, 1], out[:, 2]) > 0.01
    # Equal inputs, which a kernel may add up in another order at another place: both round.
    for linformer, x, twins in ((own, out, [1, 0, 3, 2]), (one, same, [1, 2, 3, 0])):
        oracle = Oracle(linformer, query, key, key, [7])
        assert oracle.off(x - x[:, twins] + oracle.out, torch.float64) <= 2


@BOTH_PATHS
def test_linformer_s_gradients_are_those_of_finite_differences(eager: bool) -> None:
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

    with path(eager=eager):
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
        linformer.encode_memory(x, x, mask=mask)


def test_linformer_refuses_a_bias_and_steps() -> None:
    linformer, x = Linformer(length=4, k=2).double(), normal(1, 1, 4, 2)
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer(x, x, x, bias=Alibi(heads=1))
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.weights(x, x, bias=Alibi(heads=1))
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.init_state(1, 1, 2, 2, capacity=4, device=x.device, dtype=x.dtype)
    with pytest.raises(UnsupportedError, match="linformer"):
        linformer.extend(x, x, x, linformer.encode_memory(x, x))


def test_more_keys_than_its_length_are_refused() -> None:
    linformer, x = Linformer(length=3, k=2).double(), normal(1, 1, 4, 2)
    for call in (
        lambda: linformer(x, x, x),
        lambda: linformer.weights(x, x),
        lambda: linformer.encode_memory(x, x),
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
    with path(eager=True), FlopCounterMode(display=False) as counter:
        out = linformer(query, key, value)
    cost = linformer.cost(Shape(batch=2, heads=4, kv_heads=2, queries=6, keys=10, d=5, e=7))
    assert cost.operations == counter.get_total_flops()
    projections = (p[:, :, :10].numel() for p in linformer.parameters())
    assert cost.bytes == 4 * (sum(x.numel() for x in (query, key, value, out)) + sum(projections))
    assert cost.parameters == sum(p.numel() for p in linformer.parameters())
    assert cost.state_bytes == 0
