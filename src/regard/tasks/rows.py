"""Rows of a user's file: check them, and hold some out to score a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import msgspec

from regard.errors import UserError
from regard.files import decode_json
from regard.tasks.examples import Example
from regard.tasks.rng import generator, shuffled

HELD_OUT = "test.jsonl"
"""File of a run with its held-out rows."""
LINES = "lines, no header"


@dataclass(frozen=True)
class Rows:
    """The examples of a file."""

    examples: list[Example]
    bad: Sequence[str]
    """An error for each malformed row."""
    format: str
    """Description of the detected format."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of text and label in a table, if they don't have the usual names."""


def check_rows(rows: Rows, check: Callable[[Example], None], path: Path, *, skip_bad: bool) -> Rows:
    """Return rows that pass a check, which raises for examples of another task.

    Raises:
        UserError: a row is bad and not skipped, or no row is good.
    """
    good, bad = list[Example](), list(rows.bad)
    for example in rows.examples:
        try:
            check(example)
            good.append(example)
        except UserError as error:
            bad.append(str(error))
    if bad and not skip_bad:
        more = f" ({len(bad)} such rows)" if len(bad) > 1 else ""
        raise UserError(f"{bad[0]}{more}; fix it, or leave such rows out with --skip-bad")
    if not good:
        first = f"; the first: {bad[0]}" if bad else ""
        raise UserError(f"{path}: has no good row; it was read as {rows.format}{first}")
    return replace(rows, examples=good, bad=bad)


def split_rows(
    examples: Sequence[Example], share: float, seed: int, stratum: Callable[[Example], str]
) -> tuple[list[Example], list[Example]]:
    """Split examples into training and a share of each stratum for the test.

    At least one example of each stratum stays in training. Examples of one line stay together. Both
    parts keep the examples' order.
    """
    lines: dict[str, list[int]] = {}
    for i, example in enumerate(examples):
        lines.setdefault(example.where or str(i), []).append(i)
    strata: dict[str, list[list[int]]] = {}
    for places in lines.values():
        strata.setdefault(stratum(examples[places[0]]), []).append(places)
    draw, held_out, owed = generator(seed, "test rows"), set[int](), 0.0
    for rows in strata.values():
        owed += share * len(rows)  # carry fractions over, so that rare labels are held out, too
        n = min(int(owed + 1e-9), len(rows) - 1)
        owed = min(owed - n, 1.0)
        held_out.update(chain(*shuffled(draw, rows)[:n]))
    return (
        [example for i, example in enumerate(examples) if i not in held_out],
        [example for i, example in enumerate(examples) if i in held_out],
    )


def count_duplicates(training: Iterable[Example], test: Iterable[Example]) -> int:
    """Return the number of test texts that are in training too, after the same earlier turns."""
    known = {
        (example.turns[:i], text, example.second)
        for example in training
        for i, (text, _) in enumerate(example.pairs)
    }
    return sum((example.turns, example.text, example.second) in known for example in test)


def pack_rows(examples: Sequence[Example]) -> bytes:
    """Return examples as the content of a run's test.jsonl."""
    return b"".join(msgspec.json.encode(example) + b"\n" for example in examples)


def load_rows(run: Path) -> list[Example] | None:
    """Return the held-out rows of a run, if it has some.

    Raises:
        UserError: the file is damaged.
    """
    path = run / HELD_OUT
    if not path.is_file():
        return None
    try:
        lines = path.read_bytes().splitlines()
        return [decode_json(line, Example) for line in lines]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); restore it from a copy") from None
