"""Data, metric and parent."""

from dataclasses import replace

import pytest

from regard.studies.finding import Verdict
from regard.studies.knowledge.bias import Shares, bias, born_elsewhere, judged
from regard.studies.knowledge.fictional import homes, last_name, small_world

BIASED = Shares(
    common_in_data=0.3,
    common_probability=0.28,
    common_answered=0.6,
    home_of_child=0.35,
    home_of_orphan=0.05,
)


def test_what_the_claim_wants_of_each_source() -> None:
    assert all(number.holds for number in judged(BIASED))
    for change, which in (
        ({"common_probability": 0.05}, 0),
        ({"common_answered": 0.3}, 1),
        ({"home_of_child": 0.06}, 2),
    ):
        numbers = judged(replace(BIASED, **change))
        assert [number.holds for number in numbers] == [i != which for i in range(3)]


def test_the_childs_questions_are_about_people_born_elsewhere() -> None:
    world = small_world(160, 0.8, 0)
    chosen, home = born_elsewhere(world), homes(world)
    assert chosen
    assert all(p.group == "qa_train" and p.place != home[last_name(p)] for p in chosen)


@pytest.mark.slow
def test_the_verdict() -> None:
    assert bias().verdict is Verdict.HOLDS
