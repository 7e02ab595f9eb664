"""Files that no program of ours has written are refused in a line, or read."""

import os
import sys
from pathlib import Path

import pytest

from tiny import MODEL, STEPS, Command, refused, succeeded

BRACKETS, DIGITS = "[" * 100_000, "9" * 5000
RECIPE = ("config", "--recipe", "a.toml")
RESUME = ("train", "text", "text.txt", "--out", "new", "--resume", *MODEL, *STEPS)


@pytest.mark.parametrize(
    ("name", "content", "command", "says"),
    [
        ("a.toml", f"seed = {DIGITS}", RECIPE, "a.toml: isn't TOML: Exceeds the limit"),
        ("a.toml", f"seed = {BRACKETS}", RECIPE, "a.toml: isn't TOML: maximum recursion"),
        ("a.toml", b"seed = 1 # \xff", RECIPE, "a.toml:1: byte 0xff isn't UTF-8"),
        ("run/origin.json", BRACKETS, ("info", "run"), "origin.json: isn't JSON (maximum recurs"),
        ("run/origin.json", f'{{"a": {DIGITS}}}', ("info", "run"), "origin.json: isn't JSON (Exc"),
        ("run/tokenizer.json", BRACKETS, ("info", "run"), "tokenizer.json: is no tokenizer"),
        ("run/tokenizer_config.json", BRACKETS, ("info", "run"), "doesn't fit tokenizer.json"),
        ("run/tokenizer_config.json", b"\xff", ("info", "run"), "byte 0xff isn't UTF-8"),
        ("run/calibration.json", BRACKETS, ("ask", "run", "Ada?"), "is no calibration"),
        ("q.jsonl", BRACKETS, ("evaluate", "run", "q.jsonl"), "q.jsonl:1"),
    ],
)
@pytest.mark.usefixtures("run")
def test_a_damaged_file_is_named(
    name: str, content: str | bytes, command: tuple[str, ...], says: str, regard: Command
) -> None:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(regard(*command), says)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("model.n_layers=\udcff", "isn't UTF-8"),
        (f"model.n_layers={DIGITS}", "model.n_layers: expected an integer >= "),
        (f"model.n_layers={BRACKETS}", "model.n_layers: expected an integer >= "),
    ],
    ids=["bytes", "digits", "brackets"],
)
def test_a_hostile_setting_is_refused(setting: str, says: str, regard: Command) -> None:
    refused(regard("config", setting), says)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("claim", b"", "claim: is damaged; delete it"),
        ("claim", b"9" * 5000, "claim: is damaged; delete it"),
        ("3/state.json", b"{\xff", "checkpoints/3: is damaged"),
        ("3/state.json", BRACKETS.encode(), "checkpoints/3: is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_named(
    name: str, content: bytes, says: str, folder: Path, regard: Command
) -> None:
    succeeded(regard(*RESUME))
    (folder / "new/checkpoints" / name).write_bytes(content)
    found = regard(*RESUME)
    assert (found.code, found.err.count("Traceback")) == (2, 0)
    assert says in found.err.splitlines()[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_pipe_is_no_text(folder: Path, regard: Command) -> None:
    """It was waited for without end."""
    os.mkfifo(folder / "pipe")
    refused(regard("train", "text", "pipe", "--out", "new"), "pipe: is a pipe, and a text is read")
