"""Nothing is drawn twice, all that can be drawn is, and asking for more is refused."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from regard.errors import UserError
from regard.tasks.rng import index
from regard.tasks.split import draw_distinct


@given(st.integers(1, 20), st.integers(0, 20), st.integers())
def test_as_many_as_asked_for_are_drawn_or_it_is_said_that_there_are_too_few(
    kinds: int, n: int, seed: int
) -> None:
    def make(draw: Random) -> int:
        return index(draw, kinds)

    if n <= kinds:
        drawn = draw_distinct("dice", make, Random(seed), n)
        assert len(drawn) == len(set(drawn)) == n
        assert set(drawn) <= set(range(kinds))
    else:
        with pytest.raises(UserError, match=rf"^dice: .* need {n} .* about {kinds}: choose fewer"):
            draw_distinct("dice", make, Random(seed), n)


def test_what_is_drawn_often_comes_no_earlier() -> None:
    """Zero comes up nine times out of ten, and yet is as often last as first."""

    def make(draw: Random) -> int:
        return max(index(draw, 30) - 26, 0)

    places = Counter(draw_distinct("dice", make, Random(i), 4).index(0) for i in range(2000))
    assert chisquare([places[i] for i in range(4)]).pvalue > 1e-3
