"""Evidence for an answer: mentions in documents about the subject of its question.

The unit is the document that names the subject. Names and answers are compared by whole words in
the form NFKC, case-folded. A document that names subject and answer need not relate them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from regard.corpus.index import CorpusIndex
from regard.corpus.words import Sentence, Token, fold_words, split_sentences, tokenize

Verdict: TypeAlias = Literal[
    "recalled",
    "lucky",
    "confused",
    "misremembered",
    "invented",
    "supported",
    "only others",
    "silent",
]
VERDICTS: dict[Verdict, str] = {
    "recalled": "right, and contained in the subject's documents",
    "lucky": "right, but not contained in the subject's documents",
    "confused": "wrong, but contained in the subject's documents",
    "misremembered": "wrong, and the subject's documents contain only other answers",
    "invented": "wrong, and the subject's documents contain no answer, or there are none",
    "supported": "contained in the subject's documents; not known to be right",
    "only others": "the subject's documents contain only other answers",
    "silent": "the subject's documents contain no answer, or there are none",
}
"""What each verdict means; the last three are for questions without a gold answer."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that contains an answer."""

    path: str
    line: int
    text: str
    """In Unicode's form NFKC."""
    start: int
    """Place of the answer in the text, in characters."""
    end: int


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a corpus for an answer about a subject."""

    verdict: Verdict
    documents: int
    """Number of documents that mention the subject."""
    passages: tuple[Passage, ...]
    """Sentences of these documents that contain the answer."""
    others: dict[str, int]
    """Number of mentions of each other answer in these documents, commonest first."""


class Mention(NamedTuple):
    """An answer in a document."""

    answer: str
    tokens: Sequence[Token]
    """Its words."""


# Answers


@dataclass(frozen=True)
class AnswerNames:
    """Names of the possible answers, such as those of all training questions."""

    by_words: Mapping[tuple[str, ...], str]
    """The answer that each name stands for."""

    @staticmethod
    def of(answers: Iterable[str], aliases: Mapping[str, str] | None = None) -> "AnswerNames":
        """Return the names of answers; `aliases` maps more names to answers."""
        names = {answer: answer for answer in answers} | dict(aliases or {})
        return AnswerNames({tuple(fold_words(name)): names[name] for name in names})

    def add(self, answers: Iterable[str]) -> "AnswerNames":
        """Return these names and those of more answers."""
        more = {tuple(fold_words(answer)): answer for answer in answers}
        return AnswerNames({**more, **self.by_words})

    def resolve(self, name: str) -> str:
        """Return the answer that a name stands for; an unknown name stands for itself."""
        return self.by_words.get(tuple(fold_words(name)), name)

    def find(self, tokens: Sequence[Token], excluded: Collection[str] = ()) -> Iterator[Mention]:
        """Return the answers in a document: of names that overlap, the longest of the first ones.

        Names made of `excluded` words alone are passed over.
        """
        longest = max(map(len, self.by_words), default=0)
        place = 0
        while place < len(tokens):
            size = self._size_at(tokens[place : place + longest])
            words = tuple(token.word for token in tokens[place : place + size])
            if size and not set(words) <= set(excluded):
                yield Mention(self.by_words[words], tokens[place : place + size])
            place += max(size, 1)

    def _size_at(self, tokens: Sequence[Token]) -> int:
        """Return the number of words of the longest name at the beginning; 0 if there is none."""
        words = tuple(token.word for token in tokens)
        sizes = range(len(words), 0, -1)
        return next((size for size in sizes if words[:size] in self.by_words), 0)


# Documents


def documents_naming(index: CorpusIndex, name: str) -> list[int]:
    """Return the numbers of the documents that hold a name, by whole words."""
    words = fold_words(name)
    candidates = index.inverted.documents(word for word in words if word[0].isalnum())
    return [number for number in candidates if _holds(index.document(number), words)]


def _holds(document: str, words: Sequence[str]) -> bool:
    return contains(tokenize(split_sentences(document)), words)


def contains(tokens: Sequence[Token], words: Sequence[str]) -> bool:
    """Whether words stand in a document one after the other."""
    text = [token.word for token in tokens]
    size = len(words)
    return any(text[i : i + size] == list(words) for i in range(len(text) - size + 1))


# Evidence


def find_evidence(
    index: CorpusIndex,
    subject: str,
    answer: str,
    *,
    names: AnswerNames,
    gold: Collection[str] = (),
) -> Evidence:
    """Look up an answer in the documents that mention the subject of its question.

    `gold` are the right answers, if they are known; without them, no verdict says whether the
    answer is right. `names` are the possible answers. Words of the subject are no answer: nothing
    says that Jack London comes from London.
    """
    names = names.add([answer, *gold])
    given, right = names.resolve(answer), {names.resolve(one) for one in gold}
    documents = documents_naming(index, subject)
    passages: list[Passage] = []
    said: Counter[str] = Counter()
    for number in documents:
        sentences = split_sentences(index.document(number))
        for mention in names.find(tokenize(sentences), fold_words(subject)):
            said[mention.answer] += 1
            if mention.answer == given:
                passages.append(_passage(index, number, sentences, mention))
    return Evidence(
        verdict=verdict(given, right, said),
        documents=len(documents),
        passages=tuple(passages),
        others={other: n for other, n in said.most_common() if other != given},
    )


def verdict(answer: str, gold: Collection[str], said: Collection[str]) -> Verdict:
    """Return the verdict on an answer, given the answers in the subject's documents.

    One of several gold answers is recalled if the documents say any of them.
    """
    if not gold:
        return "supported" if answer in said else "only others" if said else "silent"
    if answer in gold:
        return "recalled" if any(right in said for right in gold) else "lucky"
    return "confused" if answer in said else "misremembered" if said else "invented"


def _passage(
    index: CorpusIndex, number: int, sentences: Sequence[Sentence], mention: Mention
) -> Passage:
    """Return the sentence of a mention, with its place."""
    first, last = mention.tokens[0], mention.tokens[-1]
    sentence = sentences[first.sentence]
    before = index.document(number)[: sentence.offset].encode()
    place = index.place(int(index.documents[number, 0]) + len(before))
    end = last.end if last.sentence == first.sentence else len(sentence.text)
    return Passage(path=place.path, line=place.line, text=sentence.text, start=first.start, end=end)
