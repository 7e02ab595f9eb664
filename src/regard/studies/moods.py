"""Moods that depend on three days of weather: the data, and how often they can be predicted."""

from itertools import product

import numpy as np
from jaxtyping import Bool, Int

from regard.data import IGNORE

SPAN = 3
"""Number of days that a mood depends on."""
Weather = Bool[np.ndarray, "rows days"]
"""Whether each day is sunny."""


def best(ahead: int) -> float:
    """Return the highest accuracy that is possible with the weather up to today."""
    good = np.array([2 * sum(days) > SPAN for days in product((0, 1), repeat=SPAN)])
    known = SPAN - min(ahead, SPAN)
    share = good.reshape(2**known, -1).mean(1)  # for each weather of the known days
    return float(np.maximum(share, 1 - share).mean())


def draw_weather(rows: int, days: int, *seed: int) -> Weather:
    """Return random weather, an independent fair coin flip for each day."""
    return np.random.default_rng(seed).random((rows, days)) < 0.5


def moods(sunny: Weather, ahead: int) -> Int[np.ndarray, "rows days"]:
    """Return 1 where at least two of the three days up to `ahead` days later are sunny, else 0.

    IGNORE if one of the three days is outside of the row.
    """
    three = np.lib.stride_tricks.sliding_window_view(sunny, SPAN, axis=1).sum(-1)
    first = np.arange(sunny.shape[1]) + ahead - SPAN + 1  # of each day's three
    inside = (first >= 0) & (first < three.shape[1])
    labels = np.full(sunny.shape, IGNORE)
    labels[:, inside] = 2 * three[:, first[inside]] > SPAN
    return labels
