"""Questions and answers: read them, find their subjects, and encode them without truncation."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from regard.errors import UserError
from regard.files import decode_json
from regard.text.corpus import Document, read_lines
from regard.text.files import content_suffix
from regard.text.template import Template
from regard.text.tokenizer import encode_documents


class Example(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question, its answer if known, and its place in a file.

    >>> regard.Example(text="Where was Ada born?", answer="Rome").asked
    ['Where was Ada born?']
    """

    text: str
    second: str | None = None
    """The second text of a pair."""
    answer: str | None = None
    turns: tuple[tuple[str, str], ...] = ()
    """Earlier questions and answers of the conversation."""
    where: str = ""

    @property
    def place(self) -> str:
        """The place in a file for messages, or else the start of the text."""
        return self.where or repr(self.text[:40])

    @property
    def asked(self) -> list[str]:
        """Questions and answers in turn, the last question included."""
        return [*chain(*self.turns), self.text]

    @property
    def pairs(self) -> list[tuple[str, str | None]]:
        """Each question with its answer in turn, the last one included."""
        return [*self.turns, (self.text, self.answer)]


Examples: TypeAlias = str | Path | Sequence[Example]
"""Path of a file, or a sequence of examples."""


def _line(text: str, answer: str) -> type[msgspec.Struct]:
    """Make the struct of a line of a JSONL file, with these names of its fields."""
    fields = [
        ("text", str, msgspec.field(name=text)),
        ("answer", str | None, msgspec.field(name=answer, default=None)),
    ]
    return msgspec.defstruct("Line", fields, forbid_unknown_fields=True)


_LINES = {
    "article": _line("article", "summary"),
    "source": _line("source", "target"),
    "tags": _line("text", "tags"),
    "text": _line("text", "label"),
}
"""Structs of lines by the field that identifies them."""
_QUESTION = _line("question", "answer")
"""Struct of all other lines."""

Parse: TypeAlias = Callable[[Document], Example]
"""Parser of a line of a file."""


class Words(NamedTuple):
    """Names of the parts of an example, for error messages."""

    text: str
    answer: str

    @property
    def form(self) -> str:
        """Description of a TSV line."""
        return f"a {self.text}, a tab, and the {self.answer}"


QUESTIONS = Words("question", "answer")
TEXTS = Words("text", "answer")
LABELS = Words("text", "label")


def read_questions(path: Path) -> list[Example]:
    """Read questions from a TSV file (question, tab, answer) or JSONL file (question, answer).

    The fields of JSONL may also be article and summary, source and target, text and label, or text
    and tags; for conversations, turns or messages (see `parse_conversation`). Either every line
    has an answer or none has.

    Raises:
        UserError: a line is malformed, some answers are missing, or there are no questions.
    """
    questions, bad = parse_lines(path, parse_tsv, parse_json)
    if bad:
        raise UserError(bad[0])
    return questions


def parse_lines(
    path: Path, of_tsv: Parse, of_json: Parse, words: Words = QUESTIONS
) -> tuple[list[Example], list[str]]:
    """Return the questions of a TSV or JSONL file, and an error for each malformed line.

    If some have answers, a question without one is an error.

    Raises:
        UserError: the file can't be read or is empty.
    """
    parse = of_json if content_suffix(path) in {".jsonl", ".ndjson", ".json"} else of_tsv
    questions, bad = list[Example](), list[str]()
    lines = read_lines(path)
    if not lines:
        raise UserError(f"{path}: is empty; each line holds {words.form}")
    for line in lines:
        try:
            questions.append(parse(line))
        except UserError as error:
            bad.append(str(error))
    answered = [question for question in questions if question.answer is not None]
    if not answered:
        return questions, bad
    return answered, bad + [
        f"{question.where}: has no {words.answer}, but other lines have: put a tab and the "
        f"{words.answer} after the {words.text}, or remove all to have them predicted"
        for question in questions
        if question.answer is None
    ]


def read_answered(path: Path) -> list[Example]:
    """Read questions that all have answers, for training.

    Raises:
        UserError: as `read_questions`, or there are no answers.
    """
    return require_answers(read_questions(path))


def answered_examples(questions: Examples) -> Sequence[Example]:
    """Return questions for training, which may be a file.

    Raises:
        UserError: as `read_answered`.
    """
    if isinstance(questions, str | Path):
        return read_answered(Path(questions))
    return require_answers(list(questions))


def require_answers(questions: list[Example], words: Words = QUESTIONS) -> list[Example]:
    """Return questions after a check that all have answers.

    Raises:
        UserError: one has none.
    """
    missing = next((one for one in questions if one.answer is None), None)
    if missing is not None:
        raise UserError(
            f"{missing.place}: has no {words.answer}: put a tab and the "
            f"{words.answer} after the {words.text}"
        )
    return questions


def require_all_or_none(questions: Sequence[Example]) -> None:
    """Check that there are questions, and that all have answers or none has.

    Raises:
        UserError: there are none; or the message names the first question without an answer.
    """
    if not questions:
        raise UserError("there are no questions; give some")
    unknown = [question for question in questions if question.answer is None]
    if 0 < len(unknown) < len(questions):
        raise UserError(
            f"{unknown[0].place}: has no answer, but other questions have; score them apart"
        )


def with_ascii_questions(example: Example) -> Example:
    """Return an example without the characters of its questions that aren't ASCII."""
    turns = tuple((_ascii(question), answer) for question, answer in example.turns)
    return msgspec.structs.replace(example, text=_ascii(example.text), turns=turns)


def _ascii(text: str) -> str:
    return text.encode("ascii", "ignore").decode()


def majority_answer(questions: Sequence[Example]) -> str:
    """Return the most frequent answer; ties go to the first in alphabetical order.

    Raises:
        UserError: there are no answers.
    """
    counts = Counter(question.answer for question in questions if question.answer is not None)
    if not counts:
        raise UserError(f"{questions[0].place}: a baseline needs questions with answers")
    return min(counts, key=lambda answer: (-counts[answer], answer))


def parse_tsv(line: Document, words: Words = QUESTIONS) -> Example:
    """Parse a question and, after a tab, its answer.

    Raises:
        UserError: the line is malformed.
    """
    fields = line.text.split("\t")
    if len(fields) > 2:
        raise UserError(
            f"{line.where}: has {len(fields) - 1} tabs, not one; a line holds {words.form}"
        )
    text, answer = fields[0].strip(), fields[1].strip() if len(fields) == 2 else None
    if not text or answer == "":
        side = words.answer if text else words.text
        raise UserError(f"{line.where}: the {side} is empty; a line holds {words.form}")
    return Example(text=text, answer=answer, where=line.where)


def parse_json(line: Document, words: Words = QUESTIONS) -> Example:
    """Parse a JSON record with a question and its answer.

    Raises:
        UserError: the line is malformed.
    """
    try:
        fields = decode_json(line.text, dict[str, object])
        if "turns" in fields or "messages" in fields:
            return parse_conversation(fields, line.where)
        kind = next((kind for field, kind in _LINES.items() if field in fields), _QUESTION)
        read: Any = msgspec.convert(fields, kind)
    except ValueError as error:
        raise UserError(
            f'{line.where}: {error}; expected {{"question": …, "answer": …}}, or '
            "article and summary, source and target, text and label, text and tags, or turns or "
            "messages of a conversation"
        ) from None
    text, answer = read.text.strip(), read.answer and read.answer.strip()
    if not text or answer == "":
        raise UserError(f"{line.where}: the {words.text} or the {words.answer} is empty")
    return Example(text=text, answer=answer, where=line.where)


class _Turn(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    answer: str | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


def parse_conversation(fields: dict[str, object], where: str) -> Example:
    """Parse a conversation: its last turn is the question, with the earlier turns.

    Turns have a question and an answer, messages a role and a content. A system message is
    prepended to the first question, with an empty line between. The last answer may be missing.
    Other fields of the record are ignored.

    Raises:
        msgspec.ValidationError: a turn or message is malformed.
        UserError: questions and answers don't alternate, or one is empty.
    """
    if "turns" in fields:
        turns = msgspec.convert(fields["turns"], list[_Turn])
        texts = [text for turn in turns for text in (turn.question, turn.answer)]
        if texts and texts[-1] is None:
            texts.pop()
    else:
        texts = _alternating(msgspec.convert(fields["messages"], list[_Message]), where)
    stripped = [(text or "").strip() for text in texts]
    if not stripped or not all(stripped):
        raise UserError(f"{where}: a question or an answer is empty or missing")
    answer = stripped.pop() if len(stripped) % 2 == 0 else None
    earlier = tuple(zip(stripped[:-1:2], stripped[1::2], strict=True))
    return Example(text=stripped[-1], answer=answer, turns=earlier, where=where)


def _alternating(messages: Sequence[_Message], where: str) -> list[str | None]:
    """Return the contents of messages that alternate between user and assistant."""
    is_system = bool(messages) and messages[0].role == "system"
    spoken = messages[is_system:]
    for i, message in enumerate(spoken):
        expected = ("user", "assistant")[i % 2]
        if message.role != expected:
            raise UserError(
                f"{where}: message {i + 1 + is_system} is by {message.role}, expected {expected}; "
                "user and assistant alternate, after at most one system message"
            )
    texts: list[str | None] = [message.content for message in spoken]
    if is_system and texts:
        texts[0] = f"{messages[0].content.strip()}\n\n{spoken[0].content.strip()}"
    return texts


def read_history(path: Path) -> tuple[tuple[str, str], ...]:
    """Read the turns of a file with one conversation.

    Raises:
        UserError: as `read_answered`, or there are several conversations.
    """
    first, *others = read_answered(path)
    if others:
        raise UserError(
            f"{others[0].where}: is a second conversation; expected one, as a record with turns"
        )
    assert first.answer is not None
    return (*first.turns, (first.text, first.answer))


def subjects(texts: Sequence[str]) -> list[str]:
    """Return the subject of each question: the words that differ between questions of one wording.

    «Where was Ada Finch born?» and «Where was Otto Lange born?» are about «Ada Finch» and «Otto
    Lange». Empty if the questions share no first or last word, or if there is only one question.
    """
    if len(set(texts)) < 2:
        return []
    words = [re.findall(r"\s*\S+", text) for text in texts]
    shortest = min(map(len, words))
    prefix = _common(words, shortest - 1)
    suffix = _common([w[::-1] for w in words], shortest - 1 - prefix)
    if prefix + suffix == 0:
        return []
    return ["".join(w[prefix : len(w) - suffix]).strip() for w in words]


_WORD = re.compile(r"\w[\w'’.-]*")
_ASKING = frozenset(
    {"where", "when", "who", "whom", "whose", "what", "which", "why", "how", "in", "from", "at"}
    | {"is", "was", "are", "were", "do", "does", "did", "has", "have", "can", "could", "tell"}
)
"""Capitalized words that open a question and aren't part of a name."""
_PARTICLES = frozenset(
    ("al", "bin", "da", "de", "del", "den", "der", "di", "du", "ibn", "la", "of", "van", "von")
)
"""Lowercase words that may be inside a name."""


def subject_of(question: str) -> str:
    """Return the subject of one question: its longest run of capitalized words.

    Empty for a text without capitals, and for scripts that have none.
    """
    runs: list[list[re.Match[str]]] = [[]]
    for word in _WORD.finditer(question):
        if _names(word.group()) or (runs[-1] and word.group() in _PARTICLES):
            runs[-1].append(word)
        else:
            runs.append([])
    longest = max(runs, key=len)
    while longest and not _names(longest[-1].group()):
        longest.pop()
    found = question[longest[0].start() : longest[-1].end()] if longest else ""
    return re.sub(r"(['’]s|\W+)$", "", found)


def _names(word: str) -> bool:
    return word[0].isupper() and word.lower() not in _ASKING


def _common(rows: Sequence[Sequence[str]], most: int) -> int:
    """Return the number of first words that all rows share, at most `most`."""
    n = 0
    while n < most and len({row[n] for row in rows}) == 1:
        n += 1
    return n


def texts_of(questions: Sequence[Example]) -> list[str]:
    """Return questions and answers as texts for training a tokenizer."""
    return [text for q in questions for text in (*q.asked, q.second, q.answer) if text]


def encode_pairs(
    template: Template, questions: Sequence[Example], context_length: int
) -> list[tuple[list[int], ...]]:
    """Encode prompt and completion of each question, or of each turn, without truncation.

    Raises:
        UserError: a question and its answer don't fit the context, or can't be encoded.
    """
    rows = _encode_turns(template, questions, [[*q.asked, q.answer or ""] for q in questions])
    for question, row in zip(questions, rows, strict=True):
        # The last token is never read.
        answered = len(row[-1]) - 1
        shortest = len(template.completion.prefix) + 1
        taken = sum(map(len, row[:-1])) + max(answered, shortest)
        _require_fit(question, taken, context_length)
    return rows


def encode_questions(
    template: Template, questions: Sequence[Example], context_length: int
) -> list[list[int]]:
    """Encode prompts of questions, after earlier turns if any, without truncation.

    Raises:
        UserError: a question doesn't fit the context together with an answer, or can't be encoded.
    """
    rows = _encode_turns(template, questions, [q.asked for q in questions])
    prompts = [list(chain(*row)) for row in rows]
    for question, prompt in zip(questions, prompts, strict=True):
        _require_fit(question, len(prompt) + len(template.completion.prefix) + 1, context_length)
    return prompts


def _encode_turns(
    template: Template, questions: Sequence[Example], texts: Sequence[Sequence[str]]
) -> list[tuple[list[int], ...]]:
    """Encode the texts of each question as alternating prompts and completions."""
    places = zip(questions, texts, strict=True)
    documents = [Document(text, question.place) for question, row in places for text in row]
    ids = iter(encode_documents(template.tokenizer, documents))
    return [tuple(template.encode_turns(list(islice(ids, len(row))))) for row in texts]


def _require_fit(question: Example, taken: int, context_length: int) -> None:
    if taken > context_length:
        raise UserError(
            f"{question.place}: the question takes {taken} tokens with its answer's, but the "
            f"model's context length is {context_length}; shorten it, or train with a larger "
            "model.context_length"
        )
