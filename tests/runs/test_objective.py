"""Which shares an objective may have."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.runs.recipe import ObjectiveConfig

shares = st.floats(0, 1)


@given(shares, shares, shares, shares, shares, shares)
def test_shares_are_of_one_side_or_of_both(
    next_token: float, span: float, clozes: float, questions: float, masked: float, hidden: float
) -> None:
    from_the_left, from_both = next_token + span + clozes + questions, masked + hidden
    assume(from_the_left + from_both)
    objective = ObjectiveConfig(
        next_token=next_token,
        span_corruption=span,
        clozes=clozes,
        questions=questions,
        masked_tokens=masked,
        masked_autoencoding=hidden,
    )
    assert objective.from_the_left == pytest.approx(from_the_left)
    assert objective.from_both_sides == pytest.approx(from_both)
    assert objective.total == pytest.approx(from_the_left + from_both)


def test_an_objective_without_any_share_is_refused() -> None:
    ObjectiveConfig(next_token=0.0, masked_autoencoding=0.1)
    with pytest.raises(ValueError, match="all shares are 0"):
        ObjectiveConfig(next_token=0.0)


@pytest.mark.parametrize("masking", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_of_tokens_that_cannot_be_masked_is_refused(masking: float) -> None:
    with pytest.raises(msgspec.ValidationError, match="masking"):
        msgspec.convert({"masking": masking}, ObjectiveConfig)
