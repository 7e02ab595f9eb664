"""Questions about the world ask for what its biographies state."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import override
from regard.errors import UserError
from regard.runs.recipes import TASKS
from regard.tasks.examples import Example
from regard.tasks.world import QUESTIONS
from regard.tasks.world_questions import WorldQuestionsConfig

SMALL = WorldQuestionsConfig(people=100, training=100, test=20)


def person(question: Example) -> str:
    wordings = "|".join(re.escape(one).replace(re.escape("{name}"), "(.+)") for one in QUESTIONS)
    found = re.fullmatch(wordings, question.text)
    assert found
    return str(next(filter(None, found.groups())))


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans())
def test_the_text_states_each_answer(seed: int, world: int, augment: bool) -> None:
    config = override(SMALL, [f"seed={world}", f"augment={str(augment).lower()}"])
    split, documents = config.make(seed), config.documents()
    assert (len(split.training), len(split.test)) == (100, 20)
    assert len(documents) == 100 * (5 if augment else 1)
    for question in (*split.training, *split.test):
        about = [one.text for one in documents if one.text.startswith(person(question))]
        assert about
        assert all(str(question.answer) in text for text in about)


def test_all_questions_can_be_asked() -> None:
    split = WorldQuestionsConfig(people=101, training=153, test=50).make(0)
    assert len({question.text for question in split.training}) == 153
    assert {person(question) for question in split.training}.isdisjoint(map(person, split.test))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("task.people=20", "people must lie in 80..5600"),
        ("task.places=1000", "places must lie in 1..100"),
        ("task.people=100", "training = 1500, but people = 100 have 150 training questions"),
        ("task.test=501", "test = 501, but of people = 1000, only 500 are in the text only"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(setting: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        override(TASKS["world"], [setting])
