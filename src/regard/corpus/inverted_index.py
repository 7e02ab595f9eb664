"""Inverted index: the documents that hold a word (NFKC, case-folded)."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
from jaxtyping import Int32, Int64, UInt8

from regard.corpus.words import WORD, compose, fold


@dataclass(frozen=True)
class InvertedIndex:
    """Words in the order of their UTF-8 bytes, and the numbers of each one's documents."""

    words: UInt8[np.ndarray, " bytes"]
    """All words in UTF-8, one after the other."""
    word_starts: Int64[np.ndarray, " words+1"]
    postings: Int32[np.ndarray, " postings"]
    """Numbers of documents, ascending for each word."""
    posting_starts: Int64[np.ndarray, " words+1"]

    def documents(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of the documents that hold all of these words, ascending."""
        lists = [self._documents(word) for word in set(words)]
        if not lists:
            return []
        lists.sort(key=len)
        return sorted(set(lists[0].tolist()).intersection(*(one.tolist() for one in lists[1:])))

    def _documents(self, word: str) -> Int32[np.ndarray, " documents"]:
        text, starts, wanted = self.words.data, self.word_starts, word.encode()
        numbers = range(len(starts) - 1)

        def spelling(number: int) -> bytes:
            return bytes(text[starts[number] : starts[number + 1]])

        number = bisect_left(numbers, wanted, key=spelling)
        if number == len(numbers) or spelling(number) != wanted:
            return self.postings[:0]
        return self.postings[self.posting_starts[number] : self.posting_starts[number + 1]]


def invert(documents: Iterable[str]) -> InvertedIndex:
    """Return the inverted index of documents."""
    holding: dict[str, array[int]] = {}
    for number, document in enumerate(documents):
        for word in {fold(word) for word in set(WORD.findall(compose(document)))}:
            holding.setdefault(word, array("i")).append(number)
    postings = {word.encode(): holding[word] for word in holding}
    words = sorted(postings)
    joined = array("i", chain.from_iterable(postings[word] for word in words))
    return InvertedIndex(
        words=np.frombuffer(b"".join(words), np.uint8),
        word_starts=_starts(map(len, words)),
        postings=np.array(joined, np.int32),
        posting_starts=_starts(len(postings[word]) for word in words),
    )


def _starts(sizes: Iterable[int]) -> Int64[np.ndarray, " words+1"]:
    """Return where parts of these sizes begin, and the end of the last one."""
    return np.array([0, *accumulate(sizes)], np.int64)
