"""Softmax attention: the formula, under every mask, on both ways to compute it, in steps too."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import (
    BOTH_PATHS,
    DTYPES,
    Case,
    brief,
    cases,
    error,
    furthest,
    generators,
    normal,
    path,
    thorough,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pretended_gpu import on_gpu
from regard.attention import Mask, Softmax, State, reference, softmax
from regard.attention.contract_cases import TableBias
from regard.attention.state import Memory
from regard.errors import RegardError

EPS64 = torch.finfo(torch.float64).eps


def attend(case: Case) -> Tensor:
    out: Tensor = Softmax()(case.query, case.key, case.value, mask=case.mask, bias=case.bias)
    return out


def weigh(case: Case) -> Tensor:
    return Softmax().weights(case.query, case.key, mask=case.mask, bias=case.bias)


def exact_weights(case: Case) -> Tensor:
    return reference.softmax(case.query, case.key, case.allowed(), case.added())


# The formula


@DTYPES
@BOTH_PATHS
@thorough
@given(case=cases())
def test_it_is_the_formula(case: Case, eager: bool, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    with path(eager=eager):
        out, weights = attend(case), weigh(case)
    exact = exact_weights(case)
    assert out.dtype == dtype
    assert error(out, reference.gather(exact, case.value), case) <= 1
    # Weights are computed in float32 at least.
    precise = replace(case, value=torch.ones_like(case.value))
    precise = precise.to(torch.promote_types(dtype, torch.float32))
    assert weights.dtype == precise.query.dtype
    assert error(weights, exact, precise) <= 1


@DTYPES
@BOTH_PATHS
def test_a_masked_key_gets_nothing_however_low_the_scores_of_the_others(
    eager: bool, dtype: torch.dtype
) -> None:
    query, key = torch.ones(1, 1, 3, 1, dtype=dtype), torch.full((1, 1, 3, 1), -1e30, dtype=dtype)
    key[:, :, 2] = 1e30
    value = torch.tensor([1.0, 1.0, 100.0], dtype=dtype).view(1, 1, 3, 1)
    for mask in (Mask.lengths(torch.tensor([2])), Mask.dense(torch.tensor([[[[1, 1, 0]]]]) > 0)):
        with path(eager=eager):
            out = Softmax()(query, key, value, mask=mask)
        assert out.flatten().tolist() == [1.0, 1.0, 1.0]
        assert not Softmax().weights(query, key, mask=mask)[..., 2].any()


@BOTH_PATHS
def test_without_keys_there_is_nothing_to_gather(eager: bool) -> None:
    none = normal(2, 2, 0, 4)
    with path(eager=eager):
        out = Softmax()(normal(2, 2, 3, 4), none, none)
    assert torch.equal(out, torch.zeros(2, 2, 3, 4, dtype=torch.float64))


# Gradients


@BOTH_PATHS
@brief
@given(case=cases(longest=3, biased=False), generator=generators())
def test_the_gradient_of_a_bias_is_that_of_finite_differences(
    case: Case, generator: torch.Generator, eager: bool
) -> None:
    (_, heads, queries, _), keys = case.query.shape, case.key.shape[2]
    shape = (heads, max(queries, keys), keys)
    table = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    def of(table: Tensor) -> Tensor:
        return attend(replace(case, bias=TableBias(table)))

    with path(eager=eager):
        assert torch.autograd.gradcheck(of, table, fast_mode=True)


def differentiate(case: Case) -> list[Tensor]:
    """The gradients of query, key, value and, if there is one, bias, of a weighted sum."""
    inputs = [x.clone().requires_grad_() for x in (case.query, case.key, case.value)]
    bias = None if case.bias is None else TableBias(case.bias.table.clone().requires_grad_())
    out = Softmax()(*inputs, mask=case.mask, bias=bias)
    all_inputs = inputs if bias is None else [*inputs, bias.table]
    return list(torch.autograd.grad((out * normal(*out.shape, dtype=out.dtype)).sum(), all_inputs))


@BOTH_PATHS
@pytest.mark.parametrize(
    "mask",
    [
        None,
        Mask.causal(),
        Mask.lengths(torch.tensor([9, 40])),
        Mask.dense((torch.arange(40) % 3 > 0)[None, None, None].expand(1, 1, 40, 40)),
    ],
    ids=["full", "causal", "lengths", "columns"],
)
def test_gradients_in_bfloat16_are_those_in_float64(mask: Mask | None, eager: bool) -> None:
    inputs = [
        normal(2, heads, 40, 8, seed=heads + i).bfloat16() for i, heads in enumerate((4, 2, 2))
    ]

    def gradients(dtype: torch.dtype) -> Iterator[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        out = Softmax()(*leaves, mask=mask)
        return iter(torch.autograd.grad(out.double().square().sum(), leaves))

    with path(eager=eager):
        for rounded, exact in zip(gradients(torch.bfloat16), gradients(torch.float64), strict=True):
            # Weights, output and gradients are rounded to 8 bits one after another.
            assert (rounded - exact).abs().max() <= 8 * 2**-8 * exact.abs().max()


def with_dead_row(case: Case, row: int, scale: float) -> Case:
    """The case with one query that may look at nothing, and whose scores are `scale` times huge."""
    allowed = case.allowed().clone()
    allowed[:, :, row] = False
    query = case.query.clone()
    query[:, :, row] *= scale
    return Case(
        query=query, key=case.key, value=case.value, mask=Mask.dense(allowed), bias=case.bias
    )


@DTYPES
@BOTH_PATHS
@brief
@given(case=cases(), scale=st.sampled_from([1.0, 1e30]), data=st.data())
def test_a_fully_masked_row_gives_zero_and_finite_gradients(
    case: Case, data: st.DataObject, scale: float, eager: bool, dtype: torch.dtype
) -> None:
    row = data.draw(st.integers(0, case.query.shape[2] - 1))
    case = with_dead_row(case, row, scale).to(dtype)
    with path(eager=eager), torch.autograd.set_detect_anomaly(True):
        out = attend(case)
        gradients = differentiate(case)
    assert torch.equal(out[:, :, row], torch.zeros_like(out[:, :, row]))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert not gradients[0][:, :, row].any()
    if case.bias is not None:
        assert not gradients[3][:, row].any()


@BOTH_PATHS
def test_a_fully_masked_row_whose_scores_overflow_gives_finite_gradients(eager: bool) -> None:
    """A row that is opened up and not neutralized becomes NaN, which a gradient of 0 passes on."""
    case = Case(
        query=torch.full((1, 1, 2, 2), 1e20),
        key=torch.full((1, 1, 2, 2), 1e20),
        value=torch.ones(1, 1, 2, 2),
        mask=Mask.dense(torch.zeros(1, 1, 2, 2, dtype=torch.bool)),
    )
    with path(eager=eager):
        assert torch.equal(attend(case), torch.zeros(1, 1, 2, 2))
        gradients = differentiate(case)
    assert all(torch.equal(gradient, torch.zeros(1, 1, 2, 2)) for gradient in gradients)


# Dropout


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    draws, p = 4000, 0.25
    query, key = normal(1, 1, 2, 3), normal(1, 1, 4, 3)
    # With one-hot values, the output is the weights themselves.
    inputs = [x.expand(draws, -1, -1, -1) for x in (query, key, torch.eye(4).double()[None, None])]
    attention = Softmax(dropout=p).train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = attention(*inputs)
    exact = attention.weights(query, key)[0, 0]
    standard_error = exact * (p / (1 - p) / draws) ** 0.5
    # Five standard errors: one of eight weights leaves them once in 200 000 seeds.
    assert bool(((weights.mean(0)[0] - exact).abs() <= 5 * standard_error).all())
    dropped = float((weights == 0).double().mean())
    assert abs(dropped - p) <= 5 * (p * (1 - p) / weights.numel()) ** 0.5


@pytest.mark.parametrize("keys", [5, 300])
def test_dropout_changes_the_output_in_training_alone(keys: int) -> None:
    query, key = normal(1, 2, 3, 4), normal(1, 2, keys, 4)
    attention, plain = Softmax(dropout=0.5), Softmax()(query, key, key)
    assert furthest(attention.train()(query, key, key), plain) > 0.01
    # Exact: the same operations on the same shapes.
    assert torch.equal(attention.eval()(query, key, key), plain)


@pytest.mark.parametrize("mask", [None, Mask.causal()], ids=["no mask", "causal"])
def test_dropout_on_a_gpu_warns_once(mask: Mask | None) -> None:
    softmax._warn_once.cache_clear()
    x, attention = on_gpu(normal(1, 2, 3, 4)), Softmax(dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention.eval()(x, x, x, mask=mask)
        Softmax().train()(x, x, x, mask=mask)
        attention.train()(normal(1, 2, 3, 4), x, x, mask=mask)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            attention.train()(x, x, x, mask=mask)
    (warning,) = caught
    assert "n × n" in str(warning.message)
    assert "model.attention_dropout=0" in str(warning.message)


def test_compiled_dropout_on_a_gpu_warns_too() -> None:
    softmax._warn_once.cache_clear()
    torch.compiler.reset()

    def on_a_gpu(x: Tensor) -> Tensor:
        softmax._warn_of_dropout()
        return 2 * x

    with pytest.warns(UserWarning, match="n × n"):
        torch.compile(on_a_gpu, backend="eager", fullgraph=True)(torch.ones(1))


# Step by step


def begin(capacity: int, batch: int = 1) -> State:
    kind: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float64}
    return Softmax().init_state(batch, 1, 2, 2, capacity=capacity, **kind)


def test_more_tokens_than_the_capacity_are_not_dropped_silently() -> None:
    """The first would fall into the bin for padding, which nothing looks at."""
    for chunks in ([3], [1, 2], [2, 1]):
        state, x = begin(2), normal(1, 1, 3, 2)
        with pytest.raises((IndexError, ValueError, RegardError)):  # noqa: PT012
            for part in x.split(chunks, 2):
                _, state = Softmax().extend(part, part, part, state)
            pytest.fail(str(chunks))


@brief
@given(st.data(), st.booleans(), st.integers(1, 3))
def test_beams_that_change_places_keep_their_tokens(
    data: st.DataObject, within: bool, beams: int
) -> None:
    """Among the beams of their prompt, where the prompt's slots stay, or among all."""
    rows, lengths = 2 * beams, torch.tensor([3, 2]).repeat_interleave(beams)
    tokens = [normal(rows, 1, 7, 2, seed=seed) for seed in range(3)]
    for x in tokens:  # all beams of a prompt have its tokens
        x.unflatten(0, (2, beams))[:, :, :, :3] = x.unflatten(0, (2, beams))[:, :1, :, :3].clone()
    state = begin(7, batch=2)
    keep = torch.arange(3) < lengths[::beams, None]
    query, key, value = (x[::beams, :, :3] for x in tokens)
    _, state = Softmax().extend(query, key, value, state, attention_mask=keep)
    state = state.reorder(torch.arange(rows) // beams)
    histories = [[x[row, :, : lengths[row]] for row in range(rows)] for x in tokens]
    for step in range(3, 7):
        query, key, value = (x[:, :, step, None] for x in tokens)
        out, state = Softmax().extend(query, key, value, state)
        for history, x in zip(histories, (query, key, value), strict=True):
            history[:] = [torch.cat([h, x[row]], 1) for row, h in enumerate(history)]
        for row in range(rows):
            query, key, value = (history[row][None] for history in histories)
            case = Case(query=query, key=key, value=value, mask=Mask.causal())
            assert error(out[row, None], attend(case)[:, :, -1:], case) <= 2
        groups = [[*range(beams)], [*range(beams, rows)]] if within else [[*range(rows)]] * 2
        own = torch.tensor(
            [data.draw(st.sampled_from(groups[row // beams])) for row in range(rows)]
        )
        state = state.reorder(own)
        histories = [[history[row] for row in own.tolist()] for history in histories]


# Compiled


def _everything(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
    n = query.shape[2]
    pairs = Mask.dense(torch.arange(n)[:, None] % 3 != torch.arange(n) % 3)
    documents = Mask.documents((torch.arange(n) // 7).expand(len(query), -1))
    mask = Mask.causal("end") & Mask.window(20) & Mask.lengths(lengths) & documents & pairs
    bias = TableBias(torch.arange(n).double().cos().expand(query.shape[1], n, n))
    out: Tensor = Softmax()(query, key, value, mask=mask, bias=bias)
    return out


def _stepwise(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
    n = query.shape[2]
    state: State = Softmax().init_state(
        2, 1, 4, 4, capacity=n + 1, device=query.device, dtype=query.dtype
    )
    keep = torch.arange(n) < lengths[:, None]
    first, state = Softmax().extend(query, key, value, state, attention_mask=keep)
    first = first.masked_fill(~keep[:, None, :, None], 0.0)  # padding gathers anything
    second, state = Softmax().extend(query[:, :, :1], key[:, :, :1], value[:, :, :1], state)
    return torch.cat([first, second], dim=2)


@pytest.mark.slow
@pytest.mark.parametrize("function", [_everything, _stepwise])
def test_compiled_without_a_break_it_is_the_same(
    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> None:
    """All masks at once, and steps; each mask alone is compiled by the contract."""
    n = 10
    inputs = [normal(2, heads, n, 4, seed=heads).requires_grad_() for heads in (2, 1, 1)]
    lengths = torch.tensor([n, 3])
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    once, again = (with_gradients(run, inputs, lengths) for run in (compiled, function))
    for one, other in zip(once, again, strict=True):
        # Sums of at most a few hundred numbers below 10, perhaps in another order.
        assert furthest(one, other) <= 512 * EPS64


def with_gradients(
    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    inputs: list[Tensor],
    lengths: Tensor,
) -> list[Tensor]:
    query, key, value = inputs
    out = function(query, key, value, lengths)
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


# Memory


@brief
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.data())
def test_rows_read_the_source_that_they_were_given(
    sources: int, beams: int, queries: int, data: st.DataObject
) -> None:
    """Whether beams stay with their source, which copies nothing, or rows are taken at random."""
    torch.manual_seed(0)
    key, value = torch.randn(2, sources, 2, 5, 4, dtype=torch.float64)
    each = st.lists(st.integers(1, 5), min_size=sources, max_size=sources)
    lengths, softmax = torch.tensor(data.draw(each)), Softmax()
    memory = softmax.encode_memory(key, value, mask=Mask.lengths(lengths))
    assert isinstance(memory, Memory)
    side_by_side = torch.arange(sources).repeat_interleave(beams)
    spread = memory.reorder(side_by_side)
    places = torch.arange(sources * beams).view(sources, beams)
    moved = torch.tensor(
        [place for row in places.tolist() for place in data.draw(st.permutations(row))]
    )
    assert spread.reorder(moved).key is key, "beams of one source are alike to it"
    wanted = data.draw(st.lists(st.integers(0, len(side_by_side) - 1), min_size=1, max_size=6))
    rows = torch.tensor(wanted)
    query = torch.randn(len(rows), 4, queries, 4, dtype=torch.float64)
    read = softmax.attend_memory(query, spread.reorder(moved).reorder(rows))
    own = side_by_side[moved][rows]
    copied = softmax.encode_memory(key[own], value[own], mask=Mask.lengths(lengths[own]))
    torch.testing.assert_close(read, softmax.attend_memory(query, copied), rtol=0, atol=1e-12)
