"""Sliders show the numbers of their studies."""

import json
from itertools import product
from math import prod

import pytest

from regard.book.predictions import PREDICTIONS
from regard.book.sliders import SLIDERS, Slider
from regard.studies.kernels.fourier_features import normal_exponents, predicted_error
from regard.studies.registry import all_studies
from regard.studies.single_head.one_query import averaging
from regard.studies.single_head.random_heads import random_heads


def at(slider: Slider, **values: float) -> list[float]:
    """The numbers at a point of the grid, looked up as the page does."""
    place = 0
    for axis in slider.axes:
        place = place * len(axis.values) + axis.values.index(values[axis.symbol])
    found: list[float] = slider.data()["numbers"][place]
    return found


@pytest.mark.parametrize("name", SLIDERS)
def test_grids_are_full_and_small(name: str) -> None:
    slider, data = SLIDERS[name], SLIDERS[name].data()
    assert name in {study.name for study in all_studies()}
    assert len(data["numbers"]) == prod(len(axis.values) for axis in slider.axes)
    assert {len(row) for row in data["numbers"]} == {len(slider.results)}
    assert len(json.dumps(data, allow_nan=False)) < 80_000
    for axis in slider.axes:
        assert axis.start in axis.values
        assert list(axis.values) == sorted(set(axis.values))


def test_the_numbers_are_those_of_the_studies() -> None:
    weights = {number.name: number.measured for number in averaging(n=100, t=6.0).numbers}
    assert at(SLIDERS["averaging"], n=100, t=6.0) == pytest.approx(
        [weights["weight of v_a"], weights["weight of v_b"], weights["weight of all others"]],
        rel=1e-3,
    )
    moving, fixed = at(SLIDERS["fourier-features"], D=64, m=16)
    assert moving == pytest.approx(predicted_error(normal_exponents(64, 1.0), 16), rel=1e-3)
    assert fixed < 1 < moving
    assert at(SLIDERS["relative-bias"], T=16, m=4, k=4) == [(2 * 15 + 1) * 4, (2 * 4 + 1) * 4]
    measured, _, closer = at(SLIDERS["random-heads"], h=64, n=20)
    numbers = random_heads().numbers
    assert measured == pytest.approx(numbers[2].measured, rel=1e-3)
    assert measured == pytest.approx(closer, abs=0.02)


def test_a_norm_moves_the_weight_of_one_head_more_than_of_two() -> None:
    slider = SLIDERS["noisy-keys-one-head"]
    usual = {"n": 10, "t": 8.0, "α": 1e-6}
    assert at(slider, **usual, γ=1.0) == pytest.approx([0.5] * 4, abs=0.01)
    one_a, one_b, two_a, two_b = at(slider, **usual, γ=1.5)
    assert one_a > 0.9 > 0.1 > one_b
    assert (two_a, two_b) == pytest.approx((0.5, 0.5), abs=0.01)


def test_the_gradient_lies_between_its_bounds() -> None:
    slider = SLIDERS["vanishing-and-exploding"]
    grid = product(*(axis.values for axis in slider.axes))
    for point, (least, norm, most) in zip(grid, slider.data()["numbers"], strict=True):
        assert least * 0.999 <= norm <= most * 1.001, point


def test_each_slider_has_a_question_with_one_right_option() -> None:
    assert set(PREDICTIONS) == set(SLIDERS)
    for prediction in PREDICTIONS.values():
        assert prediction.question.endswith("?")
        assert [option.right for option in prediction.options].count(True) == 1


def test_right_options_are_what_the_sliders_show() -> None:
    assert at(SLIDERS["averaging"], n=1000, t=8.0)[2] == pytest.approx(0.14, abs=0.005)
    noisy = at(SLIDERS["noisy-keys-one-head"], n=10, t=8.0, α=1e-6, γ=1.5)
    assert noisy[0] == pytest.approx(0.98, abs=0.005)
    assert at(SLIDERS["random-heads"], h=8, n=20)[0] < 0.5
    projections, attention, _ = at(SLIDERS["complexity"], h=64, n=96)
    assert projections == attention
    (narrow, _), (wide, _) = (at(SLIDERS["fourier-features"], D=d, m=256) for d in (16, 64))
    assert wide > 10 * narrow
    norms = [at(SLIDERS["vanishing-and-exploding"], ρ=0.9, σ=2.0, T=t)[1] for t in (1, 10, 100)]
    assert norms == pytest.approx([2, 6, 0.005], rel=0.1)
    (all_, clipped), (more, same) = (at(SLIDERS["relative-bias"], T=t, m=4, k=4) for t in (16, 32))
    assert (all_, more, clipped) == (4 * 31, 4 * 63, same)
