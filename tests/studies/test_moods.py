"""Moods and the weather that they depend on."""

import numpy as np
import pytest

from regard.data import IGNORE
from regard.studies.moods import SPAN, best, draw_weather, moods


@pytest.mark.parametrize("ahead", range(6))
def test_a_mood_is_the_majority_of_its_three_days(ahead: int) -> None:
    sunny = draw_weather(20, 12, 5)
    labels = moods(sunny, ahead)
    for row, found in zip(sunny, labels, strict=True):
        for day, label in enumerate(found):
            first = day + ahead - SPAN + 1
            inside = first >= 0 and first + SPAN <= len(row)
            assert label == (sum(row[first : first + SPAN]) >= 2 if inside else IGNORE)


@pytest.mark.parametrize("ahead", range(5))
def test_no_prediction_from_the_past_is_right_more_often(ahead: int) -> None:
    """The best guess for each weather of the last three days, from counts."""
    sunny = draw_weather(4000, 12, 6)
    labels = moods(sunny, ahead)
    day = SPAN - 1
    known = sunny[:, day - SPAN + 1 : day + 1] @ (1 << np.arange(SPAN))
    good = np.array([labels[known == code, day].mean() for code in range(2**SPAN)])
    share = np.bincount(known) / len(known)
    # Four standard errors of a share of 4000; a maximum of two is at most as far off again.
    assert (share * np.maximum(good, 1 - good)).sum() == pytest.approx(best(ahead), abs=0.04)


def test_the_best_guess_by_known_days() -> None:
    assert [best(ahead) for ahead in range(4)] == [1, 0.75, 0.75, 0.5]
