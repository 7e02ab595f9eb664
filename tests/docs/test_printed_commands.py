"""The commands that pages print have their options, and settings that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from documented import blocks, parse
from regard.cli.compare import compare
from regard.cli.train import finetune, pretrain, train
from regard.comparison.grid import axes_of, base_recipe, change_grid, expand
from regard.runs.recipes import TASKS, find_recipe
from regard.tasks.examples import texts_of
from regard.text.tokenizer import train_tokenizer

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SYNOPSIS = re.compile(r"…|\[(?!\")|FIELD=|\bTASK\b|GRID")
"""A line that names what to write in place of its words."""


def commands(page: Path) -> Iterator[str]:
    """Yield the lines of a page that are commands, without redirection."""
    for block in blocks(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r" [|<>] .*", "", line.removeprefix("$ "))
            line = re.sub(r"^.*torchrun .*-m (?=regard )", "", line)
            if line.startswith("regard ") and not SYNOPSIS.search(line.partition("#")[0]):
                yield line


LINES = sorted({line for page in PAGES for line in commands(page)})


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the mechanism that pages call mine.py."""
    page = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
    (code,) = (one for one in blocks(page, "python") if one.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def settings_of(given: dict[str, Any]) -> list[str]:
    arguments = [x for name in ("settings", "corpus", "files") for x in given.get(name) or ()]
    return [one for one in arguments if "=" in one]


def test_pages_have_commands() -> None:
    assert len(LINES) > 200


def test_patterns_of_the_shell_are_quoted() -> None:
    """zsh refuses a pattern that no file matches."""
    for line in LINES:
        bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", line).partition("#")[0]
        assert not re.search(r"[*?\[]", bare), line


def test_a_command_has_its_options_and_settings() -> None:
    for line in LINES:
        command, given = parse(line)
        settings = settings_of(given)
        if command in (pretrain, finetune, train):
            usual = {pretrain: "default", finetune: "finetune"}.get(command) or given["task"]
            find_recipe(given.get("recipe") or usual, settings)
        elif command is compare and given.get("over"):
            axes = {name: given.get(name) for name in ("over", "tune", "recipe")}
            grid = change_grid(
                None, given["source"], settings, {k: v for k, v in axes.items() if v}
            )
            _, refused = expand(base_recipe(grid), axes_of(grid), grid.options)
            assert not refused


def test_a_task_that_begins_with_another_has_its_words() -> None:
    for line in LINES:
        command, given = parse(line)
        begun = TASKS.get(Path(given.get("start") or "").name)
        if command is train and begun and not given.get("files") and given["task"] in TASKS:
            first, then = (cast("Any", one.task) for one in (begun, TASKS[given["task"]]))
            known = train_tokenizer(begun.tokenizer, texts_of(first.make(0).training))
            for text in texts_of(then.make(0).test):
                known.encode(text)  # raises for a word that it lacks
