"""Texts as rows of ids that fit a model; what is too long loses its end, and is counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import UserError
from regard.tasks.questions import Question
from regard.text.corpus import Document
from regard.text.tokenizer import Tokenizer, encode_documents


@dataclass(frozen=True)
class Encoded:
    """Rows of ids, and how many of them were cut."""

    rows: list[list[int]]
    cut: int = 0


@dataclass(frozen=True)
class EncodedPairs:
    """Rows of texts and of their answers, and how many texts were cut."""

    pairs: list[tuple[list[int], list[int]]]
    cut: int = 0


def text_room(room: int) -> int:
    """The room of a text whose answer follows it: three quarters."""
    return room - room // 4


def encode_texts(tokenizer: Tokenizer, questions: Sequence[Question], room: int) -> Encoded:
    """The texts of questions, of at most `room` ids.

    Raises:
        UserError: a text can't be encoded.
    """
    rows = encode_documents(tokenizer, [Document(q.text, q.where) for q in questions])
    return Encoded([row[:room] for row in rows], sum(len(row) > room for row in rows))


def encode_answers(
    tokenizer: Tokenizer, questions: Sequence[Question], room: int
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
                f"{room}; shorten it, or train with a larger model.block"
            )
    return rows


def encode_joined(tokenizer: Tokenizer, questions: Sequence[Question], room: int) -> EncodedPairs:
    """Texts and answers that follow one another, text ⁇ answer ⁇, in `room` ids and one more.

    Raises:
        UserError: as `encode_answers`.
    """
    answers = encode_answers(tokenizer, questions, room - 2)
    texts = encode_texts(tokenizer, questions, room).rows
    rooms = [min(text_room(room), room - 1 - len(answer)) for answer in answers]
    cut = sum(len(text) > left for text, left in zip(texts, rooms, strict=True))
    rows = zip(texts, answers, rooms, strict=True)
    return EncodedPairs([(text[:left], answer) for text, answer, left in rows], cut)
