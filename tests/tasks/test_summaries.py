"""An article tells what its summary says, in other words, of one person more than of any other."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.tasks.names import FIRST_NAMES, LAST_NAMES, PLACES, PROFESSIONS
from regard.tasks.split import Split
from regard.tasks.summaries import FILLER, SummariesConfig, lead

NAME = re.compile(rf"\b(?:{'|'.join(FIRST_NAMES)}) (?:{'|'.join(LAST_NAMES)})\b")
SUMMARY = re.compile(r"(\w+ \w+), (an?) (\w+) born in (\w+)\.")


@pytest.fixture(scope="module")
def made() -> Split:
    return SummariesConfig(training=400, test=100, people=150).make(0)


def sentences_of(text: str) -> list[str]:
    return [sentence + "." for sentence in text.removesuffix(".").split(". ")]


def test_the_summary_is_of_whom_the_article_tells_most(made: Split) -> None:
    for question in (*made.training, *made.test):
        (first, _), (_, second) = Counter(NAME.findall(question.text)).most_common(2)
        assert first == str(question.answer).split(",")[0]
        assert second == 1


def test_the_article_states_what_the_summary_says(made: Split) -> None:
    for question in (*made.training, *made.test):
        told = SUMMARY.fullmatch(str(question.answer))
        assert told
        name, article, profession, place = told.groups()
        own = [s for s in sentences_of(question.text) if name in s]
        stated = set(re.findall(r"\w+", " ".join(own)))
        assert stated & set(PLACES) == {place}
        assert stated & set(PROFESSIONS) == {profession}
        assert article == ("an" if profession[0] in "aeiou" else "a")


def test_no_sentences_of_an_article_are_its_summary(made: Split) -> None:
    for question in (*made.training, *made.test):
        sentences = sentences_of(question.text)
        for k in range(len(sentences) + 1):
            assert lead(question.text, k) == " ".join(sentences[:k])
        assert str(question.answer) not in question.text


def test_the_first_sentence_is_about_the_subject_as_often_as_any_other(made: Split) -> None:
    """Else a summary could be read off the beginning."""
    chances, hits = [], 0
    for question in made.training:
        about = [str(question.answer).split(",")[0] in s for s in sentences_of(question.text)]
        chances.append(sum(about) / len(about))
        hits += about[0]
    deviation = sum(p * (1 - p) for p in chances) ** 0.5
    assert abs(hits - sum(chances)) < 3.3 * deviation


@settings(max_examples=10)
@given(tellings=st.integers(1, 3), filler=st.integers(0, len(FILLER)), others=st.integers(0, 4))
def test_an_article_has_the_sentences_asked_for(tellings: int, filler: int, others: int) -> None:
    config = SummariesConfig(
        training=5, test=5, people=5, tellings=tellings, filler=filler, others=others
    )
    for question in config.make(0).test:
        sentences = sentences_of(question.text)
        assert len(sentences) == len(set(sentences))
        assert len(set(sentences) & set(FILLER)) == filler
        names = Counter(name for sentence in sentences for name in NAME.findall(sentence))
        own = names.pop(str(question.answer).split(",")[0])
        assert 3 <= own <= 4 * tellings  # a person has three facts or four
        assert sorted(names.values()) == [1] * others


@pytest.mark.parametrize(
    ("text", "k", "expected"),
    [
        ("One. Two! Three? Four.", 2, "One. Two!"),
        ("One. Two! Three? Four.", 3, "One. Two! Three?"),
        ("One. Two.", 5, "One. Two."),
        ("One. Two.", 0, ""),
        (" One.\n Two.", 1, "One."),
        ("no end", 1, "no end"),
        ("", 1, ""),
    ],
)
def test_the_lead_by_example(text: str, k: int, expected: str) -> None:
    assert lead(text, k) == expected
