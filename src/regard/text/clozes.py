"""Clozes: phrases of a document, to be predicted from its title and the words before them.

Of «Ada Finch. Ada Finch was born in Leeds in 1901 .» the cloze of Leeds is «Ada Finch. was born in»
with the answer «Leeds»; or «Ada Finch. born in», or «Ada Finch.» alone. A model trained only on
whole documents can complete them, but rarely recalls a fact without the text before it
(Allen-Zhu & Li, 2023, "Physics of language models 3.1").

The relevance of a cloze is the probability that its phrase answers a question: «Where was Ada Finch
born?» asks for Leeds alone. Common features of relevant phrases are learned from questions with
answers, and applied to all documents, including those without questions.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import exp, log
from typing import NamedTuple

Answers = Mapping[str, Collection[str]]
"""Answers of the questions about a title."""

WORDS_BEFORE = 2
"""Number of words before a phrase that are features of its relevance."""
_ALL = "all"
"""Key of the number of clozes."""

_TITLE = re.compile(r"(.+?(?<!\b\w))\. ")
"""Everything before the first full stop that doesn't follow an initial."""
_CAPITALS = "".join(filter(str.isupper, map(chr, range(0x2000))))
"""Capital letters of nearly all alphabets that have them."""
_WORD = rf"[{_CAPITALS}]\w*(?:['’-]\w+)*"
_PHRASE = re.compile(rf"(?<!\w)(?<!\w['’-]){_WORD}(?:(?: of| the| de| von| van| la)* {_WORD})*")
"""Capitalised words, and the small ones between them."""


class Cloze(NamedTuple):
    """A phrase of a document, the words before it, and the title of the document."""

    title: str
    left: tuple[str, ...]
    answer: str

    def question(self, words: int) -> str:
        """Return the title and up to `words` words before the phrase."""
        return " ".join([f"{self.title}.", *self.left[max(len(self.left) - words, 0) :]])


def clozes(text: str, most: int) -> list[Cloze]:
    """Return the clozes of a document that begins with its title and a full stop; else none.

    Up to `most` words before a phrase are kept. Phrases that are part of the title, or contain it,
    are left out.
    """
    found = _TITLE.match(text)
    if found is None:
        return []
    title, body = found[1], text[found.end() :]
    return [
        Cloze(title, _last_words(body[: phrase.start()], most), phrase[0])
        for phrase in _PHRASE.finditer(body)
        if phrase[0] not in title and title not in phrase[0]
    ]


def _last_words(text: str, most: int) -> tuple[str, ...]:
    return tuple(text.rsplit(None, most)[-most:]) if most else ()


# Relevance


def answers_by_title(titles: Collection[str], questions: Sequence[tuple[str, str]]) -> Answers:
    """Return the answers of questions, each under the longest title that it contains."""
    found: dict[str, set[str]] = defaultdict(set)
    for question, answer in questions:
        if asked := [title for title in _spans(question.split()) if title in titles]:
            found[max(asked, key=len)].add(answer)
    return found


def _spans(words: Sequence[str]) -> Iterator[str]:
    """Yield all consecutive words, with and without the punctuation around them."""
    for start in range(len(words)):
        for end in range(start, len(words)):
            span = " ".join(words[start : end + 1])
            yield span
            yield span.strip("?!.,;:¿¡«»“”\"'")


def relevance(found: Sequence[Cloze], answers: Answers) -> list[float]:
    """Return the probability that each phrase answers a question about its title.

    Naive Bayes gives the odds o_i of a phrase, from the two words before it, from whether the last
    of them is capitalized, and from whether the phrase answers a question about another title. Each
    cloze is left out of its own counts, so that a known answer doesn't bias its estimate.
    At most one phrase of a title is the answer: p_i = o_i / (1 + Σ_j o_j).
    """
    given = Counter(answer for some in answers.values() for answer in some)
    counts = {True: Counter[str](), False: Counter[str]()}
    described = []
    for cloze in found:
        right = cloze.answer in answers[cloze.title] if cloze.title in answers else None
        features = [*_words_before(cloze), f"elsewhere: {given[cloze.answer] > (right is True)}"]
        described.append((features, right))
        if right is not None:
            counts[right].update([*features, _ALL])
    odds = [
        exp(
            _log_likelihood(features, counts[True], int(right is True))
            - _log_likelihood(features, counts[False], int(right is False))
        )
        for features, right in described
    ]
    of_title: dict[str, float] = defaultdict(float)
    for cloze, its_odds in zip(found, odds, strict=True):
        of_title[cloze.title] += its_odds
    return [
        its_odds / (1 + of_title[cloze.title]) for cloze, its_odds in zip(found, odds, strict=True)
    ]


def _words_before(cloze: Cloze) -> Iterator[str]:
    """Yield features of the two words before a phrase."""
    for distance, word in enumerate(reversed(cloze.left[-WORDS_BEFORE:]), 1):
        yield f"{distance} before: {word.lower().strip('(),.;:-')}"
    yield f"capitalized: {bool(cloze.left) and cloze.left[-1][0].isupper()}"


def _log_likelihood(features: Sequence[str], counts: Counter[str], less: int) -> float:
    """Return the logarithm of the joint probability of features and label, up to a constant.

    Counts are smoothed by one half; `less` is 1 if the cloze itself is among them.
    """
    n = counts[_ALL] - less + 1
    return log(n) + sum(log((counts[feature] - less + 0.5) / n) for feature in features)
