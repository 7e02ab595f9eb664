"""Clozes ask for what a document says, in its own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.clozes import Cloze, clozes

ADA = "Ada Finch. Ada Finch ( born 3 May 1901 in Leeds , Yorkshire ) wrote in New York City ."


def test_each_capitalised_phrase_is_asked_with_the_words_on_its_left() -> None:
    assert clozes(ADA) == [
        Cloze("Ada Finch.", "Ada Finch"),
        Cloze("Ada Finch. Finch ( born 3", "May"),
        Cloze("Ada Finch. 3 May 1901 in", "Leeds"),
        Cloze("Ada Finch. 1901 in Leeds ,", "Yorkshire"),
        Cloze("Ada Finch. Yorkshire ) wrote in", "New York City"),
    ]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Otto P. Lange. Lange was", "Otto P. Lange"),
        ("J. R. Rill. Rill was", "J. R. Rill"),
        ("Åse Öberg, 2nd Baron Öberg. Born", "Åse Öberg, 2nd Baron Öberg"),
    ],
)
def test_a_title_goes_on_after_initials(text: str, title: str) -> None:
    assert all(cloze.question.startswith(f"{title}.") for cloze in clozes(text))
    assert clozes(text)


@pytest.mark.parametrize("text", ["", "no title at all", "Only A Title.", "Title. nothing big"])
def test_what_has_no_title_or_no_phrase_has_no_clozes(text: str) -> None:
    assert clozes(text) == []


@given(st.text(alphabet="Abc. ,é-'", max_size=60))
def test_title_words_and_answer_stand_in_the_text_in_this_order(text: str) -> None:
    for question, answer in clozes(text):
        title = text[: text.index(". ")]
        assert question.startswith(title)
        assert answer in text
        left = question.split()[-1]
        assert left in text
