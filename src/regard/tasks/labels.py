"""Texts and pairs of texts with labels: scores, baselines and files.

A file of pairs is TSV (text, tab, second text, tab, label) or JSONL.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from regard.errors import UserError
from regard.files import decode_json
from regard.metrics import macro_f1
from regard.tasks.bag_of_words import naive_bayes
from regard.tasks.examples import (
    LABELS,
    Example,
    majority_answer,
    parse_json,
    parse_lines,
    parse_tsv,
)
from regard.tasks.rows import LINES, Rows
from regard.tasks.split import Answers, Scores, TextTaskConfig, exact_matches
from regard.text.corpus import Document

_FORM = "a line holds a text, a tab, a second text, and after another tab the label"


class LabelTaskConfig(TextTaskConfig, frozen=True):
    """Base of tasks whose answers are labels."""

    words = LABELS

    def score(self, answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
        return {
            "accuracy": exact_matches(answered, right)["exact match"],
            "macro F1": macro_f1(answered, right, seed=seed),
        }

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        joined = [msgspec.structs.replace(q, text=_whole(q)) for q in training]
        return {
            "majority": [majority_answer(training)] * len(test),
            "naive Bayes": naive_bayes(joined, [_whole(q) for q in test]),
        }

    def stratum(self, example: Example) -> str:
        return example.answer or ""


def _whole(question: Example) -> str:
    return question.text if question.second is None else f"{question.text} {question.second}"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a JSONL file."""

    text: str
    second: str
    label: str | None = None


def read_text_pairs(path: Path) -> Rows:
    """Read pairs of texts, with their labels if known.

    Raises:
        UserError: there are no lines.
    """
    return Rows(*parse_lines(path, _pair_of_tsv, _pair_of_json, LABELS), LINES)


def read_labeled(path: Path) -> Rows:
    """Read texts and their labels, or pairs of texts if lines have three columns.

    Raises:
        UserError: there are no lines.
    """
    questions, bad = parse_lines(path, _labeled_of_tsv, _labeled_of_json, LABELS)
    pairs = [question for question in questions if question.second is not None]
    if not pairs:
        return Rows(questions, bad, LINES)
    bad += [
        f"{question.where}: has one text, but other lines have two: give all of them two"
        for question in questions
        if question.second is None
    ]
    return Rows(pairs, bad, LINES)


def require_second(question: Example) -> None:
    """Check that an example has a second text.

    Raises:
        UserError: it doesn't; the message names its place.
    """
    if question.second is None:
        raise UserError(f"{question.place}: has no second text: {_FORM}")


def _labeled_of_tsv(line: Document) -> Example:
    return _pair_of_tsv(line) if line.text.count("\t") == 2 else parse_tsv(line, LABELS)


def _labeled_of_json(line: Document) -> Example:
    return _pair_of_json(line) if "second" in _fields(line) else parse_json(line, LABELS)


def _fields(line: Document) -> dict[str, object]:
    """Return the fields of a JSON record; none if the line isn't one.

    Raises:
        UserError: the label is a number or a boolean, which a table may have, but not a line.
    """
    fields = dict[str, object]()
    with suppress(ValueError):
        fields = decode_json(line.text, dict[str, object])
    label = fields.get("label")
    if isinstance(label, int | float):
        raise UserError(
            f"{line.where}: the label {label} is no text; train with --label label, or write it in "
            "quotation marks"
        )
    return fields


def _pair_of_tsv(line: Document) -> Example:
    fields = [field.strip() for field in line.text.split("\t")]
    if not 2 <= len(fields) <= 3:
        raise UserError(f"{line.where}: has {len(fields) - 1} tabs; {_FORM}")
    return _question(line.where, *fields)


def _pair_of_json(line: Document) -> Example:
    _fields(line)
    try:
        read = decode_json(line.text, _Line)
    except ValueError as error:
        raise UserError(
            f'{line.where}: {error}; expected {{"text": …, "second": …, "label": …}}'
        ) from None
    return _question(line.where, read.text, read.second, read.label)


def _question(where: str, text: str, second: str, label: str | None = None) -> Example:
    parts = {"text": text, "second text": second, "label": label}
    for name, part in parts.items():
        if part is not None and not part.strip():
            raise UserError(f"{where}: the {name} is empty; {_FORM}")
    label = label and label.strip()
    return Example(text=text.strip(), second=second.strip(), answer=label, where=where)
