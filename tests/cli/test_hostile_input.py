"""Files that no program of ours has written, and values beyond any machine, are refused."""

import os
import sys
from pathlib import Path

import pytest

from regard.device import require_memory
from regard.errors import UserError
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


def test_a_damaged_checkpoint_is_named(folder: Path, regard: Command) -> None:
    succeeded(regard(*RESUME))
    for name, content, says in [
        ("3/state.json", b"{\xff", "checkpoints/3: is damaged"),
        ("3/state.json", BRACKETS.encode(), "checkpoints/3: is damaged"),
        ("claim", b"", "claim: is damaged; delete it"),
        ("claim", b"9" * 5000, "claim: is damaged; delete it"),
    ]:
        path = folder / "new/checkpoints" / name
        before = path.read_bytes()
        path.write_bytes(content)
        found = regard(*RESUME)
        assert (found.code, found.err.count("Traceback")) == (2, 0)
        assert says in found.err.splitlines()[-1]
        path.write_bytes(before)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_pipe_is_no_text(folder: Path, regard: Command) -> None:
    """It was waited for without end."""
    os.mkfifo(folder / "pipe")
    refused(regard("train", "text", "pipe", "--out", "new"), "pipe: is a pipe, and a text is read")


# Values that no machine has the memory for, before any is taken


DRY = ("pretrain", "text.txt", "--out", "new", "--dry-run")
COPY = ("train", "copy", "--out", "new", "--dry-run")


@pytest.mark.usefixtures("run")
def test_a_value_beyond_the_machine_is_refused(regard: Command) -> None:
    for command, says in [
        (
            (*DRY, "model.context_length=4294967295"),
            "model.context_length: expected an integer <=",
        ),
        ((*DRY, "model.n_layers=99999999999999999999999"), "model.n_layers"),
        ((*DRY, "model.n_layers=1000000000"), "layers of softmax, 8 heads"),
        ((*DRY, "model.d_model=1000000000"), "width 1000000000"),
        ((*DRY, "training.epochs=1000000000"), "choose at most 100,000,000"),
        ((*COPY, "training.steps=9223372036854775807"), "training.steps: expected an integer <="),
        ((*COPY, "training.batch=1000000000"), "training.batch=1000000000: needs at least"),
        ((*COPY, "task.length=1000000000000"), "task.length: expected an integer <= 16777216"),
        ((*DRY, "tokenizer.kind=byte-pairs", "tokenizer.size=99999999999"), "tokenizer.size"),
        (("generate", "run", "Ada", "--num-beams", "100000000000"), "sequences of each prompt"),
        (
            ("generate", "run", "Ada", "--temperature", "1", "--num-return-sequences", "9" * 11),
            "sequences of each prompt: needs at least",
        ),
        (("generate", "run", "Ada", "--threads", "1000000"), "--threads 1,000,000: choose at most"),
        ((*COPY[:-1], "--threads", "1000000"), "--threads 1,000,000: choose at most"),
        (("compare", "copy", "--threads", "1000000", "--dry-run"), "threads 1,000,000: choose"),
    ]:
        refused(regard(*command), says)


def test_where_the_memory_is_unknown_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2**30}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)
    with pytest.raises(UserError, match=r"it: needs at least 2 GiB .* this machine has 1 GiB"):
        require_memory(2**31, "it")
    require_memory(2**30, "it")
    monkeypatch.delattr("os.sysconf")
    require_memory(2**60, "it")
