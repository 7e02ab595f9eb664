"""Evidence for an answer: mentions in documents about the subject of its question.

The unit is the document that names the subject. Names and answers are compared as whole words,
NFKC-normalized and case-folded. A document that contains subject and answer need not relate them: a
relation, learned from other questions, estimates whether it does.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from regard.corpus.index import CorpusIndex, Sentence, Token, fold_words, split_sentences, tokenize
from regard.corpus.relations import Relation, fit_relation, mention_features

Verdict: TypeAlias = Literal[
    "recalled",
    "lucky",
    "confused",
    "misremembered",
    "invented",
    "supported",
    "unsupported",
    "silent",
]
VERDICTS: dict[Verdict, str] = {
    "recalled": "right, and stated in the subject's documents",
    "lucky": "right, but not stated in the subject's documents",
    "confused": "wrong, but contained in the subject's documents",
    "misremembered": "wrong, and the subject's documents contain only other answers",
    "invented": "wrong, and the subject's documents contain no answer, or there are none",
    "supported": "stated in the subject's documents; not known to be right",
    "unsupported": "not stated in the subject's documents, which contain answers",
    "silent": "the subject's documents contain no answer, or there are none",
}
"""Definitions of the verdicts; the last three are for questions without a gold answer."""
STATED = 0.5
"""Smallest probability at which a mention counts as stating its answer."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that contains an answer."""

    path: str
    line: int
    text: str
    """In Unicode's form NFKC."""
    start: int
    """Start of the answer in the text, in characters."""
    end: int


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """Another answer that documents state."""

    answer: str
    passages: tuple[Passage, ...]
    """The sentence of each mention that states it."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a corpus for an answer about a subject."""

    verdict: Verdict
    documents: int
    """Number of documents that mention the subject."""
    passages: tuple[Passage, ...]
    """The sentence of each mention of the answer in these documents."""
    others: dict[str, int]
    """Number of mentions of each other answer in these documents, commonest first."""
    lead: float
    """Largest probability that a mention states the answer, minus that for any other answer.
    Without a learned relation, each mention has probability 1; an answer without mentions has 0."""
    contradiction: Contradiction | None = None
    """The other answer stated by most mentions, if none states the answer. Requires a relation:
    otherwise, a place of work would contradict a place of birth."""


class Mention(NamedTuple):
    """An answer in a document."""

    answer: str
    tokens: Sequence[Token]
    """Words of the answer."""
    place: int
    """Index of the first word in the document."""


# Answers


@dataclass(frozen=True)
class AnswerNames:
    """Names of the possible answers, such as those of all training questions."""

    by_words: Mapping[tuple[str, ...], str]
    """Words of a name → its answer."""

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
        """Yield the answers in a document, by leftmost longest match of names.

        Names of only `excluded` words are skipped.
        """
        longest = max(map(len, self.by_words), default=0)
        place = 0
        while place < len(tokens):
            size = self._size_at(tokens[place : place + longest])
            words = tuple(token.word for token in tokens[place : place + size])
            if size and not set(words) <= set(excluded):
                yield Mention(self.by_words[words], tokens[place : place + size], place)
            place += max(size, 1)

    def _size_at(self, tokens: Sequence[Token]) -> int:
        """Return the number of words of the longest name at the beginning; 0 if there is none."""
        words = tuple(token.word for token in tokens)
        sizes = range(len(words), 0, -1)
        return next((size for size in sizes if words[:size] in self.by_words), 0)


# Documents


def documents_naming(index: CorpusIndex, name: str) -> list[int]:
    """Return the numbers of the documents that contain a name, as whole words."""
    words = fold_words(name)
    candidates = index.inverted.documents(word for word in words if word[0].isalnum())
    texts = ((number, tokenize(split_sentences(index.document(number)))) for number in candidates)
    return [number for number, tokens in texts if contains(tokens, words)]


def contains(tokens: Sequence[Token], words: Sequence[str]) -> bool:
    """Return whether words occur consecutively in a document."""
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
    relation: Relation | None = None,
) -> Evidence:
    """Look up an answer in the documents that mention the subject of its question.

    `gold` are the right answers, if known; without them, verdicts don't say whether the answer is
    right. `names` are the possible answers. Words of the subject don't count as answers: the name
    Jack London isn't evidence for London. With a `relation`, a mention states an answer only with a
    probability of at least 0.5.
    """
    names = names.add([answer, *gold])
    given, right = names.resolve(answer), {names.resolve(one) for one in gold}
    documents = documents_naming(index, subject)
    said = [
        _Said(mention, relation.probability(features) if relation else 1.0, number, text.sentences)
        for number in documents
        for text in [_read(index, number, subject, names)]
        for mention, features in text.mentions
    ]
    counts = Counter(one.mention.answer for one in said)
    surest = dict.fromkeys(counts, 0.0)
    for one in said:
        surest[one.mention.answer] = max(one.sure, surest[one.mention.answer])
    stated = {name for name in counts if surest[name] >= STATED}
    others = {name: n for name, n in counts.most_common() if name != given}
    return Evidence(
        verdict=verdict(given, right, counts, stated),
        documents=len(documents),
        passages=tuple(_passage(index, one) for one in said if one.mention.answer == given),
        others=others,
        lead=surest.get(given, 0.0) - max((surest[one] for one in others), default=0.0),
        contradiction=_contradiction(index, said) if relation and given not in stated else None,
    )


class _Said(NamedTuple):
    """A mention in a document of the corpus."""

    mention: Mention
    sure: float
    """Probability that it states its answer."""
    document: int
    sentences: Sequence[Sentence]


def _contradiction(index: CorpusIndex, said: Sequence[_Said]) -> Contradiction | None:
    """Return the answer stated by most mentions; None if no mention states one."""
    stating = [one for one in said if one.sure >= STATED]
    if not stating:
        return None
    [(answer, _)] = Counter(one.mention.answer for one in stating).most_common(1)
    passages = (_passage(index, one) for one in stating if one.mention.answer == answer)
    return Contradiction(answer=answer, passages=tuple(passages))


def learn_relation(
    index: CorpusIndex, answered: Iterable[tuple[str, str]], names: AnswerNames
) -> Relation | None:
    """Fit a relation to the mentions in documents of subjects with known answers.

    Return None if their documents contain no right answer.
    """
    mentions = [
        (features, mention.answer == names.resolve(answer))
        for subject, answer in answered
        for number in documents_naming(index, subject)
        for mention, features in _read(index, number, subject, names).mentions
    ]
    return fit_relation(mentions) if any(right for _, right in mentions) else None


def verdict(
    answer: str,
    gold: Collection[str],
    said: Collection[str],
    stated: Collection[str] | None = None,
) -> Verdict:
    """Return the verdict on an answer, given the answers in the subject's documents.

    `stated` are the answers that the documents state (default: all). If there are several gold
    answers, one is recalled if the documents state any of them.
    """
    stated = said if stated is None else stated
    if not gold:
        return "supported" if answer in stated else "unsupported" if said else "silent"
    if answer in gold:
        return "recalled" if any(right in stated for right in gold) else "lucky"
    return "confused" if answer in said else "misremembered" if said else "invented"


class _Document(NamedTuple):
    """A document about a subject, and each answer in it with the words around it."""

    sentences: Sequence[Sentence]
    mentions: Sequence[tuple[Mention, frozenset[str]]]


def _read(index: CorpusIndex, number: int, subject: str, names: AnswerNames) -> _Document:
    sentences = split_sentences(index.document(number))
    tokens = tokenize(sentences)
    found = names.find(tokens, fold_words(subject))
    return _Document(
        sentences,
        [
            (one, mention_features(tokens, one.place, one.place + len(one.tokens), rank))
            for rank, one in enumerate(found)
        ],
    )


def _passage(index: CorpusIndex, said: _Said) -> Passage:
    """Return the sentence of a mention, with its place."""
    tokens = said.mention.tokens
    first, last, sentence = tokens[0], tokens[-1], said.sentences[tokens[0].sentence]
    before = index.document(said.document)[: sentence.offset].encode()
    place = index.place(int(index.documents[said.document, 0]) + len(before))
    end = last.end if last.sentence == first.sentence else len(sentence.text)
    return Passage(path=place.path, line=place.line, text=sentence.text, start=first.start, end=end)
