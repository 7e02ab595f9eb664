"""A real kill -9 of `regard pack` at several moments, and two commands at a time."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from regard.text.pack import _start_worker

pytestmark = pytest.mark.slow

SMALL_BATCHES = """
import sys
from regard.cli.main import main
from regard.text import corpus, pack
corpus.BATCH, pack.RECORDED = 3_000, 2
main(sys.argv[1:])
"""
"""`regard`, with batches of some 50 documents, of which two are between records of the progress."""


def command(text: Path, out: Path, *, tokenizer: str = "byte-pairs:400") -> list[str]:
    return [
        *(sys.executable, "-c", SMALL_BATCHES, "pack", str(text), "--out", str(out)),
        *("--tokenizer", tokenizer, "--jobs", "2"),
    ]


def started(text: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(text, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    lines = (f"Document {i} has {i % 97} words, and a number: {i * i}." for i in range(20_000))
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), "utf-8")
    return path


@pytest.fixture(scope="module")
def whole(text: Path) -> dict[str, bytes]:
    """The files of an uninterrupted packing."""
    out = text.parent / "whole"
    subprocess.run(command(text, out), check=True, capture_output=True)
    return contents(out)


def is_begun(partial: Path) -> bool:
    return partial.is_dir()


def has_tokenizer(partial: Path) -> bool:
    return (partial / "tokenizer.json").is_file()


def has_tokens(kibibytes: int) -> Callable[[Path], bool]:
    def reached(partial: Path) -> bool:
        file = partial / "training.bin"
        return file.is_file() and file.stat().st_size >= kibibytes * 2**10

    return reached


def is_complete(partial: Path) -> bool:
    return (partial / "packed.json").is_file() or partial.with_name("packed").is_dir()


MOMENTS = (is_begun, has_tokenizer, has_tokens(1), has_tokens(200), has_tokens(500), is_complete)


def wait_for(
    reached: Callable[[Path], bool], partial: Path, process: subprocess.Popen[bytes]
) -> None:
    while process.poll() is None and not reached(partial):
        time.sleep(0.001)


def test_a_packing_killed_again_and_again_is_that_of_one_go(
    text: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out, killed = tmp_path / "packed", 0
    for reached in MOMENTS:
        process = started(text, out)
        wait_for(reached, tmp_path / ".packed.partial", process)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        assert not out.exists() or contents(out) == whole
    assert killed >= len(MOMENTS) - 1  # after the last moment, the end is near
    subprocess.run(command(text, out), check=True, capture_output=True)
    assert contents(out) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["packed"]


def test_workers_leave_ctrl_c_to_the_main_process(text: Path, whole: dict[str, bytes]) -> None:
    assert "tokenizer.json" in whole
    workers = ProcessPoolExecutor(
        1, get_context("spawn"), initializer=_start_worker, initargs=(text.parent / "whole",)
    )
    with workers:
        assert workers.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


def test_of_two_packings_to_a_folder_the_second_is_refused(
    text: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "packed"
    first = started(text, out)
    wait_for(has_tokenizer, tmp_path / ".packed.partial", first)
    first.send_signal(signal.SIGSTOP)
    other = command(text, out, tokenizer="characters")
    second = subprocess.run(other, capture_output=True, text=True, check=False)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert second.stderr == (
        f"regard: {out}: another process is writing it; wait until it ends, or choose another "
        "--out\n"
    )
    assert first.wait() == 0
    assert contents(out) == whole
