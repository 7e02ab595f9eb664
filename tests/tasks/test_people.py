"""Place and profession tell people apart, and there are as many as promised."""

import pytest

from regard.tasks.people import MOST_PEOPLE, distinct_people


@pytest.mark.parametrize("seed", range(4))
def test_no_two_people_share_place_and_profession(seed: int) -> None:
    people = distinct_people(seed, MOST_PEOPLE)
    assert len({(p.place, p.facts["profession"]) for p in people}) == MOST_PEOPLE
    assert len({p.name for p in people}) == MOST_PEOPLE
    assert all(p.statements for p in people)
