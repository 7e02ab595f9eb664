"""Clozes that resemble the answers of questions are more relevant."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.clozes import Cloze
from regard.text.relevance import answers_by_title, relevance


def test_questions_belong_to_the_longest_title_that_they_contain() -> None:
    questions = [
        ("Where was Ada Finch born?", "Leeds"),
        ("And Ada?", "Rill"),
        ("Who is «Otto P. Lange»?", "Nobody"),
        ("Where was Adam Finchley born?", "York"),
    ]
    found = answers_by_title({"Ada", "Ada Finch", "Otto P. Lange"}, questions)
    assert found == {"Ada Finch": {"Leeds"}, "Ada": {"Rill"}, "Otto P. Lange": {"Nobody"}}


def test_what_questions_ask_for_is_found_in_other_documents() -> None:
    """Without a question about Mia, and whatever is known about her."""
    found = [
        Cloze(name, left, answer)
        for name, place, month in (
            *(("Ada", "Leeds", "May"), ("Otto", "Rill", "June"), ("Ben", "Leeds", "May")),
            ("Mia", "York", "June"),
        )
        for left, answer in ((("born", "in"), place), (("died", "on"), month))
    ]
    answers = {"Ada": {"Leeds"}, "Otto": {"Rill"}, "Ben": {"Leeds"}}
    *_, place, month = relevance(found, answers)
    assert place > 0.9
    assert month < 0.1


CLOZES = st.lists(
    st.builds(
        Cloze,
        st.sampled_from("123456"),
        st.lists(st.sampled_from(["in", "Born,"]), max_size=3).map(tuple),
        st.sampled_from("AB"),
    ),
    min_size=1,
    max_size=8,
)
ANSWERS = st.dictionaries(st.sampled_from("123456"), st.sets(st.sampled_from("AB"), min_size=1))


@settings(max_examples=50)
@given(CLOZES, ANSWERS)
def test_it_is_naive_bayes_of_the_other_clozes(
    found: list[Cloze], answers: dict[str, set[str]]
) -> None:
    def features(cloze: Cloze) -> set[str]:
        last = [word.lower().strip(",") for word in cloze.left[-2:]]
        others = [own for title, own in answers.items() if title != cloze.title]
        capitalized = bool(cloze.left) and cloze.left[-1] == "Born,"
        known = any(cloze.answer in own for own in others)
        places = (f"{word}, {place}" for place, word in enumerate(reversed(last)))
        return {*places, f"capitalized {capitalized}", f"known {known}"}

    def likelihood(i: int, label: bool) -> float:
        rows = [
            features(cloze)
            for j, cloze in enumerate(found)
            if j != i and cloze.title in answers and (cloze.answer in answers[cloze.title]) is label
        ]
        n = len(rows) + 1
        return n * prod((sum(f in row for row in rows) + 0.5) / n for f in features(found[i]))

    odds = [likelihood(i, True) / likelihood(i, False) for i in range(len(found))]
    for cloze, own, p in zip(found, odds, relevance(found, answers), strict=True):
        rivals = (one for other, one in zip(found, odds, strict=True) if other.title == cloze.title)
        assert p == pytest.approx(own / (1 + sum(rivals)), rel=1e-9)
