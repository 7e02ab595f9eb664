"""Clozes ask for what a document says, in its own words; those like answers are more relevant."""

from math import prod
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batch import RowFormat
from regard.runs.recipe import ObjectiveConfig, Recipe
from regard.text.clozes import Cloze, answers_by_title, clozes, relevance
from regard.text.config import WordsConfig
from regard.text.corpus import Document
from regard.text.template import Template, TemplateConfig
from regard.text.tokenizer import train_tokenizer
from regard.training.sources.documents import cloze_dataset

ADA = "Ada Finch. Ada Finch ( born 3 May 1901 in Leeds , Yorkshire ) wrote in New York City ."


def test_each_capitalised_phrase_is_asked_for_unless_the_title_tells_it() -> None:
    assert clozes(ADA, 4) == [
        Cloze("Ada Finch", ("Finch", "(", "born", "3"), "May"),
        Cloze("Ada Finch", ("3", "May", "1901", "in"), "Leeds"),
        Cloze("Ada Finch", ("1901", "in", "Leeds", ","), "Yorkshire"),
        Cloze("Ada Finch", ("Yorkshire", ")", "wrote", "in"), "New York City"),
    ]


def test_a_question_shows_some_of_the_words_on_the_left() -> None:
    cloze = Cloze("Ada Finch", ("born", "in"), "Leeds")
    shown = ["Ada Finch.", "Ada Finch. in", "Ada Finch. born in", "Ada Finch. born in"]
    assert [cloze.question(words) for words in range(4)] == shown


def test_a_title_goes_on_after_initials() -> None:
    for text, title in (
        ("Otto P. Lange. Lange was from Rill", "Otto P. Lange"),
        ("J. R. Rill. Rill was from Leeds", "J. R. Rill"),
        ("Åse Öberg, 2nd Baron Öberg. Born", "Åse Öberg, 2nd Baron Öberg"),
    ):
        assert {cloze.title for cloze in clozes(text, 4)} == {title}


def test_phrases_begin_with_a_capital_and_at_the_start_of_a_word() -> None:
    text = "Ada. She knew Łódź, Ötz (Ćuk), Казань- and al-Rashid's ''McDonald of the Isles'' ."
    answers = [cloze.answer for cloze in clozes(text, 0)]
    assert answers == ["She", "Łódź", "Ötz", "Ćuk", "Казань", "McDonald of the Isles"]


def test_what_has_no_title_or_no_phrase_has_no_clozes() -> None:
    for text in ["", "no title at all", "Only A Title.", "Title. nothing big"]:
        assert clozes(text, 4) == [], text


@given(st.text(alphabet="Abc. ,é-'", max_size=60), st.integers(0, 4))
def test_title_words_and_answer_stand_in_the_text_in_this_order(text: str, most: int) -> None:
    for cloze in clozes(text, most):
        assert len(cloze.left) <= most
        title, body = text.split(". ", 1)
        assert cloze.title.startswith(title)
        assert "".join([*cloze.left, *cloze.answer.split()]) in "".join(body.split())


def test_clozes_with_unknown_words_are_left_out() -> None:
    text = "Ada Finch. Ada Finch, born in (Leeds), lived in Rome ."
    recipe = Recipe(objective=ObjectiveConfig(clozes=0.5), tokenizer=WordsConfig(unknown="unk"))
    tokenizer = train_tokenizer(recipe.tokenizer, [text])
    template = Template(TemplateConfig(), tokenizer)
    run: Any = SimpleNamespace(
        recipe=recipe, tokenizer=tokenizer, template=template, row_format=RowFormat(128, 0)
    )
    rows = cloze_dataset(run, [Document(text, "a.txt")], ()).rows
    assert not any(tokenizer.special.unk in one.ids for row in rows for one in row)


# Relevance


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
