"""Verdicts on answers, by what the documents of their subject say."""

import os
from pathlib import Path

import pytest

from regard.corpus.evidence import (
    AnswerNames,
    Verdict,
    contains,
    documents_naming,
    find_evidence,
    verdict,
)
from regard.corpus.index import (
    CorpusIndex,
    fold_words,
    index_documents,
    index_files,
    split_sentences,
    tokenize,
)
from regard.tasks.examples import Example, read_answered, subjects
from regard.text.corpus import Document

TEXTS = (
    "Ada Finch. She was born in New York, and went to Rome.",
    "Jack London. Jack London came from Oslo.",
    "Adam Finch is nobody.",
    "MÜLLER, Otto: lived in Wales. Died in Wales.",
    "Anna Finchley of York",
)
NAMES = AnswerNames.of(
    ["New York", "York", "Rome", "London", "Oslo", "Wales"], {"Norway's capital": "Oslo"}
)


@pytest.fixture(scope="module")
def index() -> CorpusIndex:
    return index_documents([Document(text, f"wiki.txt:{i}") for i, text in enumerate(TEXTS, 1)])


@pytest.mark.parametrize(
    ("subject", "answer", "gold", "expected"),
    [
        ("Ada Finch", "New York", ["New York"], "recalled"),
        ("ADA  FINCH", "new york", ["New York"], "recalled"),
        ("Ada Finch", "York", ["York"], "lucky"),  # «New York» is another place
        ("Ada Finch", "Rome", ["New York"], "confused"),
        ("Ada Finch", "Paris", ["New York"], "misremembered"),
        ("Ada Finch", "Paris", ["Paris"], "lucky"),
        ("Adam Finch", "Rome", ["Oslo"], "invented"),
        ("Eve Finch", "Rome", ["Oslo"], "invented"),
        ("Anna Finch", "York", ["York"], "lucky"),  # not Anna Finchley
        ("Jack London", "London", ["Oslo"], "misremembered"),  # the name says no place
        ("Jack London", "Norway's capital", ["Oslo"], "recalled"),
        ("Müller", "Swansea", ["Swansea", "Wales"], "recalled"),
        ("mu\u0308ller", "Wales", [], "supported"),
        ("Ada Finch", "Paris", [], "unsupported"),
        ("Nobody Known", "Paris", [], "silent"),
        ("Adam Finch", "Paris", [], "silent"),
        ("", "Paris", [], "silent"),
        ("?!", "", [], "silent"),
    ],
)
def test_verdicts(
    index: CorpusIndex, subject: str, answer: str, gold: list[str], expected: Verdict
) -> None:
    assert find_evidence(index, subject, answer, names=NAMES, gold=gold).verdict == expected


def test_without_gold_nothing_is_recalled() -> None:
    said = [verdict("a", (), found) for found in ((), ("a",), ("b",), ("a", "b"))]
    assert said == ["silent", "supported", "unsupported", "supported"]


def test_passages_say_where_the_answer_stands(index: CorpusIndex) -> None:
    found = find_evidence(index, "Müller", "Wales", names=NAMES)
    shown = [(p.path, p.line, p.text[p.start : p.end], p.text) for p in found.passages]
    assert shown == [
        ("wiki.txt", 4, "Wales", "MÜLLER, Otto: lived in Wales."),
        ("wiki.txt", 4, "Wales", "Died in Wales."),
    ]
    assert (found.documents, found.others) == (1, {})
    other = find_evidence(index, "Ada Finch", "Rome", names=NAMES)
    assert other.others == {"New York": 1}


def test_a_passage_of_a_long_document_has_its_own_line() -> None:
    text = "Ada Finch.\nBorn in Zoé.\nWent to\nRome. End."
    index = index_documents([Document(text, "book.txt")])
    (passage,) = find_evidence(index, "Ada Finch", "Rome", names=NAMES).passages
    assert (passage.line, passage.text) == (3, "Went to\nRome.")


def test_names_without_words_are_nowhere(index: CorpusIndex) -> None:
    assert documents_naming(index, "") == documents_naming(index, "—") == []


# Real birth places


def real_data() -> tuple[CorpusIndex, list[Example]]:
    place = os.environ.get("REGARD_BIRTHPLACES")
    if not place:
        pytest.skip("REGARD_BIRTHPLACES doesn't name the folder of the real corpus")
    folder = Path(place)
    return index_files([folder / "wiki.txt"]), read_answered(folder / "birth_dev.tsv")


def test_names_and_birth_places_share_sentences_and_lines() -> None:
    index, questions = real_data()
    names = subjects([question.text for question in questions])
    shared = {"line": 0, "sentence": 0}
    for name, question in zip(names, questions, strict=True):
        wanted = [fold_words(name), fold_words(question.answer or "")]
        texts = [index.document(number) for number in documents_naming(index, name)]
        assert texts
        sentences = [[one] for text in texts for one in split_sentences(text)]
        units = {"line": list(map(split_sentences, texts)), "sentence": sentences}
        for unit, parts in units.items():
            tokens = map(tokenize, parts)
            shared[unit] += any(all(contains(t, words) for words in wanted) for t in tokens)
    assert shared == {"line": 478, "sentence": 306}


def test_right_answers_are_recalled_where_the_line_says_them() -> None:
    index, questions = real_data()
    names = AnswerNames.of(question.answer or "" for question in questions)
    about = subjects([question.text for question in questions])
    verdicts = [
        find_evidence(index, name, q.answer or "", names=names, gold=[q.answer or ""]).verdict
        for name, q in zip(about, questions, strict=True)
    ]
    assert (verdicts.count("recalled"), verdicts.count("lucky")) == (478, 22)
