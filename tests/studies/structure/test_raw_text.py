"""Labels and masks from raw text."""

import math
from string import ascii_lowercase

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.positions.config import LearnedConfig, PositionsConfig, SinusoidalConfig
from regard.studies.finding import Verdict
from regard.studies.structure.raw_text import (
    ROUNDING,
    SEEN,
    bidirectional,
    free_labels,
    gap,
    held_out_losses,
    without_positions,
)
from tiny import MASK


def test_a_text_without_order_teaches_nothing() -> None:
    letters = np.random.default_rng(0).choice(list(ascii_lowercase), 600)
    assert free_labels(text="".join(letters)).verdict is Verdict.FAILS


def test_every_token_but_the_first_is_a_label() -> None:
    shown = free_labels().table
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


@settings(max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.sampled_from([SinusoidalConfig(), LearnedConfig()]),
    st.lists(st.booleans(), min_size=10, max_size=10).filter(lambda hidden: sum(hidden) > 1),
)
def test_masks_without_a_place_are_one(
    seed: int, layers: int, positions: PositionsConfig, hidden: list[bool]
) -> None:
    masks = torch.tensor(hidden)
    row = torch.arange(2, 12).masked_fill(masks, MASK)[None]
    model = bidirectional(12, 10, layers, positions, seed)
    with without_positions(model, masks):
        assert gap(model(row)[0, masks]) < ROUNDING
    assert gap(model(row)[0, masks]) > SEEN, "and get their places back"


def test_the_gap_is_between_masks() -> None:
    scores = torch.tensor([[1.0, 5.0], [1.0, 2.0], [1.0, 4.0]])
    assert gap(scores) == 3
