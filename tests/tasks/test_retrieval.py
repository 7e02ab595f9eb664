"""A question is about one person alone, in words that must be learned."""

import re
from collections import Counter

import numpy as np
import pytest

from regard.tasks.bag_of_words import bag, tf_idf
from regard.tasks.examples import Example
from regard.tasks.names import FIRST_NAMES, LAST_NAMES, PLACES, PROFESSIONS
from regard.tasks.retrieval import TRADES, WORDINGS, RetrievalConfig
from regard.tasks.split import Split


@pytest.fixture(scope="module")
def made() -> Split:
    return RetrievalConfig(training=2000, test=500, people=900).make(0)


def words(text: str | None) -> set[str]:
    return set(re.findall(r"\w+", str(text)))


def facts(question: Example) -> tuple[str, str]:
    """Place and profession that a question asks for."""
    (place,) = words(question.text) & set(PLACES)
    (profession,) = [p for p, trade in TRADES.items() if question.text.endswith(f" {trade}?")]
    return place, profession


def test_a_question_asks_for_what_its_biography_states_and_no_other_does(made: Split) -> None:
    biographies = dict[tuple[str, str], set[str]]()
    for question in (*made.training, *made.test):
        place, profession = facts(question)
        assert words(question.answer) & set(PLACES) == {place}
        assert words(question.answer) & set(PROFESSIONS) == {profession}
        name = str(question.answer).split(".")[0]
        biographies.setdefault((place, profession), set()).add(name)
    assert all(len(people) == 1 for people in biographies.values())
    assert len(biographies) == 1400


def test_questions_name_nobody_and_use_all_wordings(made: Split) -> None:
    asked = [*made.training, *made.test]
    assert not set().union(*(words(q.text) for q in asked)) & {*FIRST_NAMES, *LAST_NAMES}
    kinds = {wording.split("{place}")[0] for wording in WORDINGS}
    assert {q.text.split(facts(q)[0])[0] for q in asked} == kinds


def test_no_biography_has_the_words_that_tell_a_profession(made: Split) -> None:
    assert set(TRADES) == set(PROFESSIONS)
    assert len(set(TRADES.values())) == len(TRADES)
    told = set().union(*(bag(str(q.answer)) for q in made.training))
    assert told & set(bag(" ".join(TRADES.values()))) <= {"a", "in", "the"}


def test_words_alone_find_the_place_and_guess_the_person(made: Split) -> None:
    documents = [str(question.answer) for question in made.test]
    scores = tf_idf([question.text for question in made.test], documents)
    right = np.diag(scores)
    ahead = (scores > right[:, None]).sum(1)
    places = Counter(facts(question)[0] for question in made.test)
    shared = np.array([places[facts(question)[0]] for question in made.test])
    # Words that many have, as in «was born in», outweigh the place now and then.
    assert np.mean(ahead < shared) > 0.95
    expected = np.mean(1 / shared)
    # 500 questions, 3.3 standard deviations of a share of about a fifth.
    assert np.mean(ahead == 0) == pytest.approx(expected, abs=0.06)
