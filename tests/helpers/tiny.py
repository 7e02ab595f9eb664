"""The smallest data, recipe and runs that do everything; commands run in this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.tasks.examples import Example

PEOPLE = (
    ("Ada Finch", "Rome"),
    ("Otto Lange", "Oslo"),
    ("Mia Bell", "Rome"),
    ("Ugo Blass", "Oslo"),
    ("Ida Holm", "Rome"),
    ("Leo Marsh", "Oslo"),
    ("Eva Stone", "Rome"),
    ("Max Frey", "Oslo"),
)
BIOGRAPHIES = tuple(f"{name} was born in {place}." for name, place in PEOPLE)
QUESTIONS = tuple(
    Example(text=f"Where was {name} born?", answer=place, where=f"pairs.tsv:{number}")
    for number, (name, place) in enumerate(PEOPLE, start=1)
)

BLOCK = 48
PAD, MASK = 0, 1
"""The ids of <pad> and <sep> in a tokenizer trained with the default special tokens."""
MODEL = (
    "tokenizer.kind=characters",
    "model.n_layers=1",
    "model.n_heads=2",
    "model.d_model=16",
    f"model.context_length={BLOCK}",
)
"""Overrides that make any recipe's model tiny."""
STEPS = ("training.steps=3", "training.batch=4", "training.log_every=1")
"""Overrides that make any training short."""
MIXED = ("objective.next_token=0.5", "objective.questions=0.5")
"""Overrides that mix questions in."""


def write_data(folder: Path) -> None:
    """text.txt; pairs.tsv with answers; inputs.tsv without."""
    (folder / "text.txt").write_text("".join(text + "\n" for text in BIOGRAPHIES), "utf-8")
    pairs = "".join(f"{question.text}\t{question.answer}\n" for question in QUESTIONS)
    (folder / "pairs.tsv").write_text(pairs, "utf-8")
    inputs = "".join(f"{question.text}\n" for question in QUESTIONS)
    (folder / "inputs.tsv").write_text(inputs, "utf-8")


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str
    new: Sequence[str]
    """Paths that it made."""
    changed: Sequence[str]
    """Files that it changed or removed."""


Command = Callable[..., Outcome]
"""Runs `regard` with some arguments in the test's own folder."""


def succeeded(outcome: Outcome) -> Outcome:
    """A command that did its work."""
    assert outcome.code == 0, outcome.err
    return outcome


def refused(outcome: Outcome, *says: str, code: int = 2) -> None:
    """One line that says what is wrong, and no trace on the disk."""
    assert outcome.code == code, outcome.err
    (line,) = outcome.err.splitlines()
    assert line.startswith("regard: ")
    for part in says:
        assert part in line
    assert not outcome.new
    assert not outcome.changed


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder; None for a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
