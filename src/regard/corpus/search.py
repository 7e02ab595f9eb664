"""Exact search in an indexed corpus: occurrences of a string, longest spans of a text.

Similar to OLMoTrace (Liu et al. 2025, arXiv:2504.07096), which finds spans of a model's output in
its training text with the suffix arrays of infini-gram (Liu et al. 2024, arXiv:2401.17377).
"""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate

import msgspec
import numpy as np
from jaxtyping import Integer

from regard.corpus.index import END, CorpusIndex

CONTEXT = 100
"""Largest number of characters shown on each side of a match."""


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence with its line, truncated if long."""

    path: str
    line: int
    before: str
    match: str
    after: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a text that occurs in the corpus."""

    start: int
    """Start in the text, in characters."""
    end: int
    text: str
    count: int
    """Number of occurrences in the corpus."""


# Occurrences


def suffix_range(index: CorpusIndex, query: bytes) -> range:
    """Return the range of the suffix array whose suffixes begin with a query.

    Raises:
        ValueError: the query is empty.
    """
    if not query:
        raise ValueError("the query is empty")
    if END in query:
        return range(0)
    suffixes, beginning = index.suffixes.data, _prefixes(index, len(query))
    low = bisect_left(suffixes, query, key=beginning)
    return range(low, bisect_right(suffixes, query, low, key=beginning))


def _prefixes(index: CorpusIndex, size: int) -> Callable[[int], bytes]:
    """Return a function from a position of the text to its next bytes, at most `size`."""
    text = index.text.data
    return lambda place: bytes(text[place : place + size])


def count(index: CorpusIndex, query: bytes) -> int:
    """Return the number of occurrences of a query, overlapping ones included."""
    return len(suffix_range(index, query))


def occurrences(index: CorpusIndex, query: bytes) -> Integer[np.ndarray, " occurrences"]:
    """Return the positions of a query in the text of an index, ascending."""
    found = suffix_range(index, query)
    places: Integer[np.ndarray, " occurrences"] = np.sort(index.suffixes[found.start : found.stop])
    return places


def show(index: CorpusIndex, start: int, size: int) -> Match:
    """Return `size` bytes at a position of the text as a match, with their line."""
    end = start + size
    first, last = index.line(start, end)
    place = index.place(start)
    far = 4 * CONTEXT  # a character takes 4 bytes at most
    before = _decode(index, max(first, start - far), start, "ignore")[-CONTEXT:]
    after = _decode(index, end, max(end, min(last, end + far)), "ignore")[:CONTEXT]
    return Match(
        path=place.path,
        line=place.line,
        before=before,
        match=_decode(index, start, end, "replace"),
        after=after,
    )


def _decode(index: CorpusIndex, start: int, end: int, errors: str) -> str:
    return bytes(index.text[start:end]).decode("utf-8", errors)


# Longest spans


def longest_spans(index: CorpusIndex, text: str) -> list[Span]:
    """Return the spans of whole words that occur in the corpus, longest first.

    A span that lies in a longer one isn't listed.
    """
    data = text.encode("utf-8", "surrogateescape")
    sizes = (len(char.encode("utf-8", "surrogateescape")) for char in text)
    starts = np.array([0, *accumulate(sizes)])
    """Bytes before each character."""
    boundaries = np.array([i for i in range(len(text) + 1) if _is_boundary(text, i)])
    spans: list[Span] = []
    reached = 0
    for start in boundaries.tolist():
        if text[start : start + 1].strip() == "":
            continue
        begin = int(starts[start])
        limit = begin + _longest_prefix(index, data[begin:])
        within = boundaries[starts[boundaries] <= limit]
        span = text[start : int(within[-1])].rstrip()
        end = start + len(span)
        if span and end > reached:
            reached = end
            found = count(index, data[begin : int(starts[end])])
            spans.append(Span(start=start, end=end, text=span, count=found))
    return sorted(spans, key=lambda span: span.start - span.end)


def _is_boundary(text: str, place: int) -> bool:
    """Return whether a word may begin or end here.

    Each letter without case, such as a Chinese character, counts as a word, because many of these
    scripts don't separate words.
    """
    if place in (0, len(text)):
        return True
    before, after = text[place - 1], text[place]
    inside = before.isalnum() and after.isalnum()
    return not inside or "Lo" in (unicodedata.category(before), unicodedata.category(after))


def _longest_prefix(index: CorpusIndex, query: bytes) -> int:
    """Return the length of the longest prefix of a query that occurs, in bytes."""
    query = query.partition(END)[0]
    suffixes, beginning = index.suffixes.data, _prefixes(index, len(query))
    place = bisect_left(suffixes, query, key=beginning)
    neighbors = suffixes[max(place - 1, 0) : place + 1]
    return max(_common(query, beginning(suffix)) for suffix in neighbors)


def _common(a: bytes, b: bytes) -> int:
    """Return the length of the longest common prefix."""
    size = min(len(a), len(b))
    left, right = (np.frombuffer(one, np.uint8, size) for one in (a, b))
    differing = np.flatnonzero(left != right)
    return int(differing[0]) if len(differing) else size
