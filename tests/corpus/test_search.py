"""Search is equal to a naive scan, for any bytes."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.corpus.index import CorpusIndex, index_documents
from regard.corpus.search import count, longest_spans, occurrences
from regard.tasks.world import WorldConfig, make_world
from regard.text.corpus import Document


def index_of(texts: Sequence[str]) -> CorpusIndex:
    return index_documents([Document(text, f"a:{i}") for i, text in enumerate(texts, 1)])


def scan(texts: Sequence[str], query: bytes) -> list[int]:
    """Where a query begins within a text, in all of them with a byte after each."""
    places, start = [], 0
    for data in (text.encode() for text in texts):
        place = data.find(query)
        while place >= 0:
            places.append(start + place)
            place = data.find(query, place + 1)
        start += len(data) + 1
    return places


CORPORA = {
    "biographies": make_world(WorldConfig(people=80, absent=0)).documents[:60],
    "repetitive": ["ab" * 40, "a" * 50, "ba\n" * 20, "b"],
    "scripts": [
        "Ñandú – 東京に住む。",
        "Он родился в Риге\nи умер там",
        "🙂🙂 ﬁ e\u0301\0",
        "\u00ff\u07ff",
    ],
}
INDEXES = {name: index_of(texts) for name, texts in CORPORA.items()}


@st.composite
def queries(draw: st.DrawFn, texts: Sequence[str]) -> bytes:
    """Parts of a corpus, parts with a changed end, and any bytes."""
    data = "\n".join(texts).encode()
    start = draw(st.integers(0, len(data) - 1))
    part = data[start : start + draw(st.integers(1, 30))]
    other = draw(st.binary(min_size=1, max_size=3))
    return draw(st.sampled_from([part, part + other, part[:-1] + other, other]))


@pytest.mark.parametrize("name", CORPORA)
@settings(max_examples=70)
@given(data=st.data())
def test_occurrences_are_those_of_a_scan(name: str, data: st.DataObject) -> None:
    """2 100 queries in all."""
    texts, index = CORPORA[name], INDEXES[name]
    for query in data.draw(st.lists(queries(texts), min_size=10, max_size=10)):
        expected = scan(texts, query)
        assert occurrences(index, query).tolist() == expected
        assert count(index, query) == len(expected)


@settings(max_examples=50)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.binary(min_size=1, max_size=3))
def test_any_corpus_is_searched(texts: list[str], query: bytes) -> None:
    index = index_of(texts)
    for one in (query, *(text.encode()[:3] for text in texts if text)):
        assert occurrences(index, one).tolist() == scan(texts, one)


def test_an_empty_query_is_refused() -> None:
    with pytest.raises(ValueError, match="the query is empty"):
        count(INDEXES["repetitive"], b"")


def test_a_query_of_10_000_bytes_is_searched() -> None:
    long = "Ada went home. " * 700
    index = index_of([long, "Ada"])
    assert count(index, long.encode()) == 1
    assert count(index, (long + "x").encode()) == 0
    (span,) = longest_spans(index, long)
    assert (span.start, span.end) == (0, len(long.rstrip()))


# Longest spans


def test_the_longest_spans_of_whole_words_are_found() -> None:
    index = index_of(["Ada Finch was born in Leeds.", "He lives in Leeds, near Bob."])
    spans = longest_spans(index, "Otto was born in Leeds, near Ada")
    assert [(span.text, span.count) for span in spans] == [
        ("was born in Leeds", 1),
        ("in Leeds, near", 1),
        ("Ada", 1),
    ]
    assert longest_spans(index, "zzz") == longest_spans(index, " ") == []


def test_spans_of_scripts_without_spaces_are_found() -> None:
    (span,) = longest_spans(INDEXES["scripts"], "私は東京に住")
    assert (span.text, span.start, span.end) == ("東京に住", 2, 6)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["a", "b", "ab", "ba", "é", ".", "\n"]), max_size=8))
def test_spans_are_maximal(parts: list[str]) -> None:
    """Each occurs as often as it says, none lies in another, and no longer one of words occurs."""
    texts = ["a b ab", "ab é. ba", "b\na"]
    index, text = index_of(texts), " ".join(parts)
    spans = longest_spans(index, text)
    for span in spans:
        assert text[span.start : span.end] == span.text
        assert span.count == len(scan(texts, span.text.encode())) > 0
    words = [(i, j) for i in range(len(text)) for j in range(i + 1, len(text) + 1)]
    for start, end in words:
        part = text[start:end]
        whole = not (_inside(text, start) or _inside(text, end)) and part == part.strip()
        if whole and scan(texts, part.encode()):
            assert any(span.start <= start and end <= span.end for span in spans)


def _inside(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
