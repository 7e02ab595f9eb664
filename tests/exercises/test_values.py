"""Values travel as JSON, and are compared within what their precision allows."""

import json
import math

import numpy as np
import pytest
import torch

from regard.exercises.values import Other, decode, difference, encode, literal, wrong_form

EXACT = torch.tensor([[1.0, -2.0], [1 / 3, 4.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    "value",
    [
        EXACT,
        EXACT[:0],
        torch.tensor(0.1, dtype=torch.float64),
        torch.tensor([True, False]),
        torch.tensor([2**40, -3]),
        [1, 2.5, "text", True, None],
        [EXACT, [1]],
    ],
)
def test_values_survive_json(value: object) -> None:
    again = decode(json.loads(json.dumps(encode(value))))
    assert repr(again) == repr(value)


def test_arrays_become_tensors_and_tuples_lists() -> None:
    assert decode(encode(EXACT.numpy())).equal(EXACT)
    assert decode(encode(np.arange(3.0)[::-1])).tolist() == [2, 1, 0]
    assert decode(encode((np.float64(2.5), np.int64(3)))) == [2.5, 3]
    assert decode(encode(EXACT.requires_grad_())).equal(EXACT.detach())
    EXACT.requires_grad_(False)


@pytest.mark.parametrize("value", [{1}, {1: 2}, 1j, object(), torch.tensor(1j)])
def test_what_no_exercise_returns_is_named(value: object) -> None:
    found = decode(json.loads(json.dumps(encode(value))))
    assert isinstance(found, Other)
    assert "not a tensor of shape [2, 2]" in wrong_form(found, EXACT)


def test_nan_and_infinity_survive_and_are_named() -> None:
    broken = EXACT.clone()
    broken[0, 0] = math.nan
    broken[1, 1] = math.inf
    again = decode(json.loads(json.dumps(encode(broken))))
    assert not difference(again, broken)
    assert difference(again, EXACT) == "returned entries that are NaN"
    assert difference(EXACT, broken)
    broken[0, 0] = 1.0
    assert difference(broken, EXACT) == "returned entries that are infinite"


@pytest.mark.parametrize(
    ("found", "expected", "reason"),
    [
        (None, EXACT, "returned None, not a tensor of shape [2, 2]"),
        (EXACT.T[:1], EXACT, "returned shape [1, 2], not [2, 2]"),
        ([1], EXACT, "returned a list, not a tensor of shape [2, 2]"),
        ("1", 1, "returned a str, not a number"),
        (EXACT, 1.0, "returned a tensor, not a number"),
        ([EXACT], [EXACT, EXACT], "returned 1 values, not 2"),
        ([EXACT, 1], [EXACT, EXACT], "returned an int, not a tensor of shape [2, 2]"),
        (1, [EXACT, EXACT], "returned an int, not 2 values"),
        (1, "text", "returned an int, not a text"),
        ([1, 2], [1, 3], "returned another result"),
        ([1, 2], [1], "returned another result"),
        ([torch.ones(2)], [1], "returned another result"),
        (["1"], [1], "returned another result"),
        (10**400, 4, "returned entries that are infinite"),
        (2 * EXACT, EXACT, "the largest error is 1 of the largest entry"),
        (5, 4, "the largest error is 0.25 of the largest entry"),
        (1.0, 0.0, "the largest error is 1 of the largest entry"),
    ],
)
def test_a_difference_is_told_in_one_line(found: object, expected: object, reason: str) -> None:
    assert difference(found, expected) == reason


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (EXACT + 1e-9, EXACT),
        ((EXACT + 1e-5).float(), EXACT),
        (torch.tensor([4]), 4),
        (4.0, 4),
        ([1.0, torch.tensor(2)], [1, 2]),
        (torch.tensor([[1, 0]]), torch.tensor([[True, False]])),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    ],
)
def test_rounding_is_no_difference(found: object, expected: object) -> None:
    assert not difference(found, expected)


def test_tolerance_follows_from_precision() -> None:
    assert difference(EXACT + 1e-5, EXACT)
    assert difference((EXACT + 1e-2).float(), EXACT)
    assert not difference(EXACT + 1e-5, EXACT, 1e-4)


@pytest.mark.parametrize("value", [EXACT, EXACT[0], torch.tensor([True]), [1, 2], 0.1, 3])
def test_a_literal_is_the_value(value: object) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        again = eval(literal(value), {"torch": torch})
    finally:
        torch.set_default_dtype(torch.float32)
    assert repr(again) == repr(value)
