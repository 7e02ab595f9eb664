"""The answer is the text in the other case, character by character."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.casing import CasingConfig, Place, case_pairs, uneven_characters
from regard.tasks.examples import Example
from regard.tasks.split import Split
from regard.text.corpus import Document

PLACES: list[Place] = ["first", "last"]
any_text = st.text(st.characters() | st.sampled_from("ßİŉΣςﬃaB "), max_size=20)


@pytest.fixture(scope="module", params=PLACES)
def made(request: pytest.FixtureRequest) -> tuple[Place, Split]:
    config = CasingConfig(training=3000, test=100, shortest=5, longest=20, place=request.param)
    return request.param, config.make(0)


def take_apart(question: Example, place: Place) -> tuple[str, str]:
    """The task token and the text."""
    if place == "first":
        token, _, text = question.text.partition(" ")
    else:
        text, _, token = question.text.rpartition(" ")
    return token, text


def test_the_answer_is_the_text_in_the_case_that_the_token_asks_for(
    made: tuple[Place, Split],
) -> None:
    place, split = made
    tokens = Counter[str]()
    for question in (*split.training, *split.test):
        token, text = take_apart(question, place)
        assert question.answer == {"<U>": text.upper(), "<L>": text.lower()}[token]
        tokens[token] += 1
    assert min(tokens.values()) > 1450  # 3100 fair coins: 3.6 standard deviations


def test_texts_have_all_lengths_and_single_spaces_inside(made: tuple[Place, Split]) -> None:
    place, split = made
    texts = [take_apart(question, place)[1] for question in split.training]
    assert {len(text) for text in texts} == set(range(5, 21))
    assert all(text.split(" ") == text.split() for text in texts)
    assert any(" " in text for text in texts)


def test_case_is_mixed(made: tuple[Place, Split]) -> None:
    place, split = made
    letters = "".join(take_apart(question, place)[1] for question in split.training)
    capitals = sum(map(str.isupper, letters)) / sum(map(str.isalpha, letters))
    assert capitals == pytest.approx(0.5, abs=0.02)
    assert set(letters.lower()) == set("abcdefghijklmnopqrstuvwxyz ")


@given(st.lists(any_text, max_size=4), st.sampled_from(PLACES))
def test_a_users_texts_are_asked_in_both_cases_without_uneven_characters(
    texts: list[str], place: Place
) -> None:
    documents = [Document(text, f"my.txt:{i}") for i, text in enumerate(texts)]
    uneven = uneven_characters(documents)
    kept = [
        ("".join(c for c in document.text if c not in uneven), document.where)
        for document in documents
    ]
    pairs = case_pairs(documents, place)
    assert [(*take_apart(pair, place), pair.answer, pair.where) for pair in pairs] == [
        (token, text, answer, where)
        for text, where in kept
        if text.strip()
        for token, answer in (("<U>", text.upper()), ("<L>", text.lower()))
    ]
    for pair in pairs:
        assert len(pair.answer or "") == len(take_apart(pair, place)[1])


def test_uneven_characters_by_example() -> None:
    documents = [Document("Straße und Größe", "my.txt:1"), Document("İstanbul", "my.txt:2")]
    assert uneven_characters(documents) == {"ß": 2, "İ": 1}
    assert case_pairs(documents)[0] == Example(
        text="<U> Strae und Gröe", answer="STRAE UND GRÖE", where="my.txt:1"
    )
