"""Texts as rows of ids that fit a model; what is too long loses its end, and is counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import UserError
from regard.tasks.examples import Example
from regard.text.corpus import Document
from regard.text.tokenizer import Tokenizer, encode_documents, said_of


@dataclass(frozen=True)
class Encoded:
    """Rows of ids, the text that each id is of, the first or the second, and how many were cut."""

    rows: list[list[int]]
    segments: list[list[int]]
    cut: int = 0


@dataclass(frozen=True)
class EncodedWords:
    """Rows of ids, where in them words end, and how many rows were cut."""

    rows: list[list[int]]
    ends: list[list[int]]
    """The place of each word's last token, as far as the words fit."""
    cut: int = 0


@dataclass(frozen=True)
class EncodedPairs:
    """Rows of texts and of their answers, and how many texts were cut."""

    pairs: list[tuple[list[int], list[int]]]
    cut: int = 0


def text_room(room: int) -> int:
    """The room of a text whose answer follows it: three quarters."""
    return room - room // 4


def encode_texts(tokenizer: Tokenizer, questions: Sequence[Example], room: int) -> Encoded:
    """The texts of questions, of at most `room` ids; of two texts, the longer one is cut first.

    Raises:
        UserError: a text can't be encoded.
    """
    read = [_read(tokenizer, question) for question in questions]
    kept = [_kept(segments, room) for _, segments in read]
    return Encoded(
        [[ids[i] for i in places] for (ids, _), places in zip(read, kept, strict=True)],
        [[segments[i] for i in places] for (_, segments), places in zip(read, kept, strict=True)],
        sum(len(ids) > room for ids, _ in read),
    )


def encode_words(tokenizer: Tokenizer, questions: Sequence[Example], room: int) -> EncodedWords:
    """The texts of questions, of at most `room` ids, word by word.

    Raises:
        UserError: a text can't be encoded, or nothing is left of a word.
    """
    rows, ends = [], []
    for question in questions:
        with said_of(question.where):
            ids, words = tokenizer.encode_words(question.text)
        last = {word: place for place, word in enumerate(words)}
        for number, word in enumerate(question.text.split()):
            if number not in last:
                raise UserError(
                    f"{question.where}: the tokenizer makes nothing of the word {word!r}; remove it"
                )
        rows.append(ids)
        ends.append([place for word, place in last.items() if word >= 0 and place < room])
    return EncodedWords([row[:room] for row in rows], ends, sum(len(row) > room for row in rows))


def encode_answers(
    tokenizer: Tokenizer, questions: Sequence[Example], room: int
) -> list[list[int]]:
    """The answers of questions, none of which may be longer than `room`.

    Raises:
        UserError: an answer can't be encoded or is too long.
    """
    rows = encode_documents(tokenizer, [Document(q.answer or "", q.where) for q in questions])
    for question, row in zip(questions, rows, strict=True):
        if len(row) > room:
            raise UserError(
                f"{question.where}: the answer takes {len(row)} tokens, but the model has room for "
                f"{room}; shorten it, or train with a larger model.context_length"
            )
    return rows


def encode_joined(tokenizer: Tokenizer, questions: Sequence[Example], room: int) -> EncodedPairs:
    """Texts and answers that follow one another, text ⁇ answer ⁇, in `room` ids and one more.

    Raises:
        UserError: as `encode_answers`.
    """
    answers = encode_answers(tokenizer, questions, room - 2)
    rooms = [min(text_room(room), room - 1 - len(answer)) for answer in answers]
    texts = [
        encode_texts(tokenizer, [question], left)
        for question, left in zip(questions, rooms, strict=True)
    ]
    rows = [row for text in texts for row in text.rows]
    return EncodedPairs(list(zip(rows, answers, strict=True)), sum(text.cut for text in texts))


def _read(tokenizer: Tokenizer, question: Example) -> tuple[list[int], list[int]]:
    """The ids of a question, and which of its texts each belongs to."""
    with said_of(question.where):
        if question.second is not None:
            return tokenizer.encode_pair(question.text, question.second)
        ids = tokenizer.encode(question.text)
        return ids, [0] * len(ids)


def _kept(segments: Sequence[int], room: int) -> list[int]:
    """The places that fit the room: all, or those without the end of the longer text."""
    first = segments.index(1) if 1 in segments else len(segments)
    second = min(len(segments) - first, max(room - first, room // 2))
    return [*range(min(first, room - second)), *range(first, first + second)]
