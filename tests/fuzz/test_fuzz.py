"""Damaged folders and odd recipes: a line or a result, never a traceback, a hang, or other weights.

Every file of every kind of folder is changed at random, and every field of every recipe gets odd
values. The seed is fixed; `REGARD_FUZZ=50 pytest -m slow -o faulthandler_timeout=0 tests/fuzz`
makes fifty rounds.
"""

import os
import resource
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from regard.cli.main import run
from regard.runs.recipes import RECIPES
from tiny import MODEL, STEPS, write_data
from tiny_comparisons import run_here
from tiny_folders import gpt2_pieces, with_tokenizer
from tiny_hugging_face import tiny_gpt2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no alarm"),
]

ROUNDS = int(os.environ.get("REGARD_FUZZ", "1"))
SECONDS, MEMORY = 10, 2 * 2**30
"""Limits of a command."""

Mutation = Callable[[bytes, Random], bytes]


def flip(data: bytes, draw: Random) -> bytes:
    changed = bytearray(data or b"\0")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(data: bytes, draw: Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def insert(data: bytes, draw: Random) -> bytes:
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.randbytes(draw.randrange(1, 9)) + data[place:]


def double(data: bytes, _: Random) -> bytes:
    return data + data


def digits(data: bytes, draw: Random) -> bytes:
    """A number becomes one of many digits."""
    places = [i for i, byte in enumerate(data) if chr(byte).isdigit()] or [0]
    place = draw.choice(places)
    return data[:place] + b"9" * draw.choice([10, 20, 5000]) + data[place:]


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, cut, insert, double, digits),
    lambda _, draw: draw.randbytes(64),
    lambda *_: b"[" * 100_000,
    lambda *_: b"",
)


@contextmanager
def limits() -> Iterator[None]:
    """End what takes too long or too much memory by an exception."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    handler = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)


def ended(command: Sequence[str], capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code of a command, which prints no traceback, and a line if it fails."""
    with limits(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = run(list(command))
    said = capsys.readouterr().err
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    if code:
        assert said.splitlines()[-1].startswith("regard: "), said
    return code


TINY = [*MODEL, *STEPS, "training.checkpoint_every=1", "data.validation=0.2"]
TEXT = ["train", "text", "text.txt", "--out", "text", *TINY]
PRETRAIN = ["pretrain", "text.txt", "--questions", "pairs.tsv", "--out", "asked", *TINY]
PRETRAIN += ["objective.next_token=0.5", "objective.questions=0.5"]
COMPARE = ["compare", "copy", "--out", "grid", *MODEL[1:-1], "task.length=8", "training.steps=2"]
COMMANDS: dict[str, list[list[str]]] = {
    "text": [
        ["info", "text"],
        ["evaluate", "text"],
        ["generate", "text", "Ada", "--max-new-tokens", "2"],
        [*TEXT, "--resume"],
    ],
    "asked": [
        ["ask", "asked", "Where was Mia Bell born?"],
        ["evaluate", "asked", "pairs.tsv"],
        [*PRETRAIN, "--resume"],
    ],
    "packed": [["pretrain", "packed", "--out", "new", "--dry-run", *TINY]],
    "hf": [["import-hf", "hf", "--out", "new"]],
    "grid": [["compare", "grid"]],
}
"""What reads each kind of folder."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind; the runs of text are to be resumed."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.comparison.scheduler.run_locally", run_here)
        patch.chdir(place)
        write_data(place)
        assert run([*TEXT, "--device", "cpu"]) == run([*PRETRAIN, "--device", "cpu"]) == 0
        assert run(["pack", "text.txt", "--out", "packed", "--tokenizer", "characters"]) == 0
        over = ("--over", "training.lr=0.001,0.01", "--seeds", "1")  # more cells are alike
        assert run([*COMPARE, *over, "--device", "cpu"]) == 0
    tiny_gpt2(vocab_size=gpt2_pieces("<|endoftext|>").get_vocab_size()).save_pretrained(
        place / "hf"
    )
    with_tokenizer(place / "hf", gpt2_pieces("<|endoftext|>"), {"eos": "<|endoftext|>"})
    for name in ("text", "asked"):
        shutil.copytree(place / name, place / f"{name}-done")
        shutil.rmtree(place / name / "checkpoints/3")
    return place


def others(kind: str) -> Callable[[Any, list[str]], set[str]]:
    """Return what `copytree` leaves out: the folders of other kinds."""
    return shutil.ignore_patterns(
        *(name + end for name in COMMANDS if name != kind for end in ("", "-done"))
    )


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_changed_file_is_named_or_does_no_harm(
    kind: str,
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever of a checkpoint or of tokens changes, training ends with the same weights or not."""
    monkeypatch.setattr("regard.comparison.scheduler.run_locally", run_here)
    files = sorted(p for p in (folders / kind).rglob("*") if p.is_file() and p.suffix != ".lock")
    draw = Random(kind)
    for _ in range(ROUNDS):
        for file in files:
            for mutation in draw.sample(MUTATIONS, 3):
                place = tmp_path / "case"
                shutil.copytree(folders, place, symlinks=True, ignore=others(kind))
                monkeypatch.chdir(place)
                changed = place / file.relative_to(folders)
                changed.write_bytes(mutation(changed.read_bytes(), draw))
                for command in COMMANDS[kind]:
                    code = ended(command, capsys)
                    if code == 0 and "--resume" in command and changed.parent.name in "2tokens":
                        name = f"{kind}-done/model.safetensors"
                        weights = (place / kind / "model.safetensors").read_bytes()
                        assert weights == (place / name).read_bytes(), changed
                monkeypatch.chdir(tmp_path)
                shutil.rmtree(place)


ODD = ("", "-1", "0", "1e999", "nan", "9" * 30, "true", "none", "[]", "{}", "'", "\0", "🦆", "x=y")


Field = tuple[str, object]
"""The path of a field or section, and what identifies the section that it is in."""


def fields(values: dict[str, Any], before: str = "") -> Iterator[Field]:
    """All fields and sections of a recipe."""
    section = (values.get("kind"), *values)
    for name, value in values.items():
        yield f"{before}{name}", section
        if isinstance(value, dict):
            yield from fields(value, f"{before}{name}.")


FIELDS = {name: list(fields(msgspec.to_builtins(recipe))) for name, recipe in RECIPES.items()}
FIRST = {field: name for name in reversed(FIELDS) for field in FIELDS[name]}
"""The first recipe with a field, where the field gets all odd values; elsewhere it gets two."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_odd_value_of_a_field_is_a_line(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    draw = Random(recipe)
    for field in FIELDS[recipe]:
        drawn = draw.sample(ODD, min(2 * ROUNDS, len(ODD)))
        for value in ODD if FIRST[field] == recipe else drawn:
            ended(["config", "--recipe", recipe, f"{field[0]}={value}"], capsys)
