"""The study `masked-autoencoder`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.positions.config import LearnedConfig, PositionsConfig, SinusoidalConfig
from regard.studies.finding import Verdict
from regard.studies.structure.raw_text import (
    ROUNDING,
    SEEN,
    bidirectional,
    gap,
    masked_autoencoder,
    without_positions,
)
from tiny import MASK


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


def test_the_verdict() -> None:
    assert masked_autoencoder().verdict is Verdict.HOLDS


def test_a_place_that_is_in_no_vector_is_not_dropped() -> None:
    assert masked_autoencoder(positions="rotary").verdict is Verdict.FAILS


def test_two_masks_are_needed() -> None:
    with pytest.raises(UserError, match=r"masking = 0\.01 of 11 words hides 1"):
        masked_autoencoder(masking=0.01)


def test_the_gap_is_between_masks() -> None:
    scores = torch.tensor([[1.0, 5.0], [1.0, 2.0], [1.0, 4.0]])
    assert gap(scores) == 3
