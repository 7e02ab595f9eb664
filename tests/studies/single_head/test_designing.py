"""Heads designed for given outputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import reference
from regard.studies.finding import Verdict
from regard.studies.single_head.designing import (
    Head,
    course_head,
    design,
    designing,
    error,
    nearest_average,
)
from tiny_recurrent import normal


def test_the_matrices_of_the_course() -> None:
    head = course_head(3.0)
    a, b, c, d = head.key
    assert (head.query @ a).equal(d)
    assert (head.query @ d).equal(c)
    assert (head.value @ (b + d)).equal(b)
    assert (head.value @ (b + c)).equal(b - c)
    assert not (head.value @ a).any()


def test_custom_targets() -> None:
    found = designing.with_texts(["x=[[1,2],[3,4]]", "targets=[[],[1,2,3]]"])
    assert found.verdict is Verdict.HOLDS
    assert found.table is not None
    assert [row[:2] for row in found.table.rows] == [
        *(("Q", "1"), ("Q", "2"), ("K", "1"), ("K", "2")),
        *(("V", "1"), ("V", "2"), ("V", "3")),
    ]


def rows(*entries: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def desired(*entries: tuple[float, ...]) -> dict[int, torch.Tensor]:
    return dict(enumerate(rows(*entries)))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_a_head_computes_attention_unscaled(n: int, d: int, seed: int) -> None:
    inputs, query = normal(n, d, seed=seed), normal(d, d, seed=seed + 1)
    key, value = normal(d, d, seed=seed), normal(3, d, seed=seed + 2)
    q, k, v = ((inputs @ matrix.T)[None, None] for matrix in (query, key, value))
    allowed = torch.ones(1, 1, n, n, dtype=torch.bool)
    expected = reference.gather(reference.softmax(q * d**0.5, k, allowed), v)[0, 0]
    torch.testing.assert_close(Head(query, key, value)(inputs), expected)


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(0, 2), st.integers(1, 5), st.integers(0, 99), st.data())
def test_independent_inputs_get_any_targets(
    n: int, more: int, e: int, seed: int, data: st.DataObject
) -> None:
    inputs, outputs = normal(n, n + more, seed=seed), normal(n, e, seed=seed + 1)
    asked = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    targets = {i: outputs[i] for i in asked}
    if torch.linalg.matrix_rank(torch.stack(list(targets.values()))) > n:
        return
    size = float(torch.linalg.pinv(inputs).norm() * outputs.norm() * inputs.norm())
    assert error(design(inputs, targets), inputs, targets) <= 1e-13 * size


def test_equal_inputs_may_have_equal_targets() -> None:
    inputs, targets = rows((1, 2), (3, 4), (1, 2)), desired((5, 6), (7, 8), (5, 6))
    assert error(design(inputs, targets), inputs, targets) < 1e-12


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (((1, 0), (0, 1), (1, 1)), ((1, 0), (0, 1), (5, -3))),
        (((1, 0), (0, 1), (-1, -1)), ((30, 0), (0, 30), (30, 30))),
        (((1, 0), (2, 0)), ((20, 20), (21, 21))),
    ],
)
def test_a_search_finds_heads_for_dependent_inputs(
    inputs: tuple[tuple[float, ...], ...], outputs: tuple[tuple[float, ...], ...]
) -> None:
    targets = desired(*outputs)
    head = design(rows(*inputs), targets)
    assert error(head, rows(*inputs), targets) < 1e-3 * float(rows(*outputs).norm())


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        (((1,), (-1,)), ((1,), (1,)), "of opposite inputs the outputs are opposite too"),
        (((1,), (2,)), ((3,), (1,)), "of averages of 1 and 2 none is three times another"),
    ],
)
def test_a_search_finds_nothing_where_nothing_is(
    inputs: tuple[tuple[float, ...], ...], outputs: tuple[tuple[float, ...], ...], why: str
) -> None:
    targets = desired(*outputs)
    assert error(design(rows(*inputs), targets), rows(*inputs), targets) > 0.2, why


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 999))
def test_the_nearest_average_is_optimal(n: int, d: int, seed: int) -> None:
    points, target = normal(n, d, seed=seed), normal(d, seed=seed + 1)
    nearest = nearest_average(points, target)
    # No point lies beyond the plane through it that faces the target: so no average is nearer.
    assert ((points - nearest) @ (target - nearest)).max() <= 1e-10
    # And it is an average itself, as what is nearest to it shows.
    torch.testing.assert_close(nearest_average(points, nearest), nearest, rtol=0, atol=1e-7)
