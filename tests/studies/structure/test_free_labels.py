"""The study `free-labels`."""

import math
from string import ascii_lowercase

import numpy as np
import pytest

from regard.studies.finding import Verdict
from regard.studies.structure.raw_text import TEXT, free_labels, held_out_losses


def test_the_verdict() -> None:
    assert free_labels().verdict is Verdict.HOLDS
    assert free_labels(masking=0.4, seed=7).verdict is Verdict.HOLDS


def test_a_text_without_order_teaches_nothing() -> None:
    letters = np.random.default_rng(0).choice(list(ascii_lowercase), 600)
    assert free_labels(text="".join(letters)).verdict is Verdict.FAILS


def test_every_token_but_the_first_is_a_label() -> None:
    finding = free_labels()
    measured = {number.name: number.measured for number in finding.numbers}
    assert measured["next-token labels"] == len(TEXT) - 1
    assert measured["masked-token labels per draw"] == round(0.15 * len(TEXT))
    shown = finding.table
    assert shown is not None
    _, reads, tells = shown.rows[0]
    assert reads[1:] == tells[:-1]


def test_losses_are_means_over_what_was_kept_back() -> None:
    # 0 is always followed by 1, and 1 by 0: six pairs are seen, then (0, 1) is asked for.
    losses = held_out_losses([2, 3, 2, 3, 2, 3, 2, 3], 2)
    assert losses["guess"] == pytest.approx(math.log(2))
    assert losses["pairs"] == pytest.approx(-math.log(4 / 5))
    assert losses["single tokens"] == pytest.approx(-math.log(4 / 7))


@pytest.mark.parametrize("text", ["a" * 40, "Ω≠ñ\n" * 20])
def test_any_text_will_do(text: str) -> None:
    assert free_labels(text=text).verdict is Verdict.HOLDS
