"""The study `noisy-keys-one-head`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.single_head.noisy_keys import chosen_share, gamma_quantiles, noisy_keys_one_head
from tiny_studies import verdict


@settings(max_examples=30)
@given(st.floats(0.5, 100), st.floats(0.01, 4))
def test_how_often_one_is_chosen_follows_from_the_sigmoid(t: float, stretch: float) -> None:
    gamma = gamma_quantiles(stretch, 2001)
    s = torch.sigmoid(t * (gamma - 1))
    measured = ((s < 0.1) | (s > 0.9)).double().mean()
    assert chosen_share(t, 0, stretch) == pytest.approx(float(measured), abs=2 / len(gamma))


def test_the_numbers_of_the_specification() -> None:
    measured = {number.name: number for number in noisy_keys_one_head().numbers}
    assert measured["standard deviation of the scores, equal noise"].predicted == pytest.approx(
        8 * math.sqrt(2e-6)
    )
    assert measured["share of draws with s below 0.1 or above 0.9"].predicted == pytest.approx(
        0.698, abs=1e-3
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_verdict(seed: int) -> None:
    assert verdict(noisy_keys_one_head, f"seed={seed}") is Verdict.HOLDS


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("t=1.5", "the query is too short: t isn't far above ln n"),
        ("t=400", "it is too long: t isn't far below 1/√α"),
        ("alpha=0.01", "the keys are too noisy"),
        ("stretch=0.001", "k_a hardly varies in length, and nothing flips"),
    ],
)
def test_the_claim_needs_its_premises(wrong: str, why: str) -> None:
    assert verdict(noisy_keys_one_head, wrong) is Verdict.FAILS, why
