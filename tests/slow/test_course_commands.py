"""The commands of parts that ask to do something, as printed, in a folder, with less training."""

import shlex
from pathlib import Path

import pytest

from regard.cli import main
from regard.courses import Part, all_parts
from tiny_explored import tiny_folder

pytestmark = pytest.mark.slow

DONE = {
    "practical-4": ("3.a", "3.b", "3.c", "3.d", "3.e", "3.f", "4.b"),
    "eecs182-hw8": ("2.a", "2.b", "2.c", "2.d"),
    "jhu-hw5": ("4",),
}
"""Beginnings of the numbers of these parts."""
SMALL = ("model.n_layers=1", "model.d_model=16", "model.n_heads=2")
LESS = {
    "world": ("people=80", "absent=4", "biographies=1"),
    "train text": (*SMALL, "training.steps=2"),
    "train casing": ("training.steps=2",),
    "train mqar": ("training.steps=2",),
    "birthplaces": (*SMALL, "training.steps=2", "questions.epochs=1", "finetuning.epochs=1"),
}
"""Settings of commands that train, by the beginning of the command."""
MODELS = {"hf:gpt2": "hf:gpt2", "hf:bert-base-cased": "hf:bert"}
"""Folders of tiny models in place of those that a command downloads."""
CONTEXT = {"gpt2": {"n_positions": 128}, "bert": {"max_position_embeddings": 128}}
"""Sizes of these models, by family."""


def commands(part: Part) -> list[str]:
    """Return the commands of a part, each once."""
    shown = (one.by.partition(":") for one in part.shown)
    lines = [line for kind, _, line in shown if kind == "command"]
    return list(dict.fromkeys([*lines, *([part.command] if part.command else [])]))


def runnable(line: str) -> list[str]:
    """Return the arguments of a command with less training, and without a network."""
    program, *arguments = shlex.split(line)
    assert program == "regard"
    less = next((more for name, more in LESS.items() if " ".join(arguments).startswith(name)), ())
    return [*(MODELS.get(one, one) for one in arguments if one != "--download"), *less]


@pytest.mark.parametrize("course", DONE)
def test_commands_work_as_printed_in_this_order(
    course: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_BIRTHPLACES", raising=False)
    for family, sizes in CONTEXT.items():
        tiny_folder(tmp_path / family, family, head=True, words=["play"], **sizes)
    parts = [p for p in all_parts() if p.course == course and p.number.startswith(DONE[course])]
    lines = dict.fromkeys(line for part in parts for line in commands(part))
    assert lines
    for line in lines:
        assert main.run(runnable(line)) == 0, f"{line}: {capsys.readouterr().err}"
        assert capsys.readouterr().out.strip(), line
