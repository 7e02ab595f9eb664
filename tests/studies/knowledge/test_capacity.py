"""Bits that a model stores."""

from math import log, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.studies.knowledge.bare_facts import KINDS, NAMES, capacity, judged_bits, stored_bits

VALUES = (
    len(KINDS["place"]) * len(KINDS["profession"]) * len(KINDS["subject"]) * len(KINDS["hobby"])
)


def test_a_model_without_knowledge_stores_nothing() -> None:
    assert stored_bits(100, log(len(NAMES) * VALUES)) == pytest.approx(0, abs=1e-9)


def test_full_knowledge_is_the_facts_and_the_set_of_names() -> None:
    people = 1000
    expected = people * (log2(len(NAMES) / people) + log2(VALUES))
    assert stored_bits(people, log(people)) == pytest.approx(expected)


@given(st.integers(1, 5600), st.floats(0, 40), st.floats(0.01, 5))
def test_a_higher_loss_is_less_knowledge(n: int, loss: float, more: float) -> None:
    assert stored_bits(n, loss + more) < stored_bits(n, loss)


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_bits({100: [1.2, 1.3], 1000: [1.9, 2.0]}))
    for few, many in (([0.3], [2.0]), ([1.3], [1.0]), ([1.2], [3.0])):
        assert not all(number.holds for number in judged_bits({100: few, 1000: many}))


def test_the_longer_training_is_longer() -> None:
    with pytest.raises(UserError, match="exposures"):
        capacity(exposures=100)
