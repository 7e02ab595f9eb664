"""Worker processes train cells, are replaced when they die, and end with their parent."""

import ctypes
import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from platforms import imitate
from regard import operating_system
from regard.comparison import executors, worker
from regard.comparison.executors import default_jobs, run_locally
from regard.comparison.folder import create_cell, read_outcome
from regard.comparison.grid import CellSettings
from regard.operating_system import is_running
from regard.runs.recipes import find_recipe
from tiny_comparisons import TINY

SETTINGS = CellSettings(device="cpu")


def cell(out: Path, seed: int) -> Path:
    return create_cell(out, find_recipe("mqar", [*TINY, f"seed={seed}"]), SETTINGS)


def fake_worker(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Put a module in the place of the worker's."""
    interpreter, module = folder / "python", folder / "worker.py"
    module.write_text(f"import os, sys\n{code}\n", encoding="utf-8")
    # A shell quotes the path of the interpreter, which may have spaces; a shebang can't.
    command = shlex.join([sys.executable, str(module)])
    interpreter.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))


@pytest.mark.slow
def test_a_worker_trains_one_cell_after_another(tmp_path: Path) -> None:
    cells = [cell(tmp_path, seed) for seed in range(2)]
    log = tmp_path / "log"
    assert list(run_locally(cells, jobs=1, log=log)) == cells
    outcomes = [read_outcome(one) for one in cells]
    assert [one and one.state for one in outcomes] == ["finished", "finished"], log.read_text()


def test_a_cell_whose_processes_die_fails_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "for line in sys.stdin:\n"
        "    if 'bad' in line: os.kill(os.getpid(), 9)\n"
        "    print(line, end='', flush=True)"
    )
    fake_worker(tmp_path, monkeypatch, code)
    cells = [tmp_path / name for name in ("bad", "good", "better")]
    for one in cells:
        one.mkdir()
    assert set(run_locally(cells, jobs=2, log=tmp_path / "log")) == set(cells)
    failed = read_outcome(cells[0])
    assert failed is not None
    assert failed.reason == "its process was ended by SIGKILL, 3 times"
    assert read_outcome(cells[1]) is None


def test_a_stopped_generator_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "with open(os.path.join(os.path.dirname(sys.argv[0]), 'pids'), 'a') as file:\n"
        "    print(os.getpid(), file=file)\n"
        "line = sys.stdin.readline()\n"
        "print(line, end='', flush=True)\n"
        "import time; time.sleep(600)"
    )
    fake_worker(tmp_path, monkeypatch, code)
    ended = run_locally([tmp_path / "a", tmp_path / "b"], jobs=1, log=tmp_path / "log")
    assert next(ended) == tmp_path / "a"
    ended.close()
    for pid in (tmp_path / "pids").read_text().split():
        assert not is_running(int(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_worker_ends_with_its_parent() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'regard.comparison.worker', str(os.getpid())]\n"
        "worker = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


def test_ctrl_c_lets_workers_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import signal, time\n"
        "def save(*_):\n"
        "    open(os.path.join(os.path.dirname(sys.argv[0]), 'saved'), 'w').close()\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGINT, save)\n"
        "line = sys.stdin.readline(); print(line, end='', flush=True)\n"
        "sys.stdin.readline()\n"
        "open(os.path.join(os.path.dirname(sys.argv[0]), 'begun'), 'w').close()\n"
        "time.sleep(600)"
    )
    fake_worker(tmp_path, monkeypatch, code)
    ended = run_locally([tmp_path / "a", tmp_path / "b"], jobs=1, log=tmp_path / "log")
    next(ended)
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        ended.throw(KeyboardInterrupt)
    assert (tmp_path / "saved").exists()
    assert signal.getsignal(signal.SIGINT) is not None


class DeadWorker:
    """A process that has ended; its pipes are broken, which is EINVAL on Windows."""

    returncode = 1
    stdout = io.BytesIO()

    def __init__(self) -> None:
        self.stdin = self
        self.sent: list[int] = []

    def write(self, _: bytes) -> None:
        """Fail as a broken pipe does on Windows."""
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def send_signal(self, number: int) -> None:
        """Record a signal."""
        self.sent.append(number)

    def wait(self) -> None:
        """Return at once."""

    def __enter__(self) -> "DeadWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.write(b"")


def test_the_broken_pipes_of_windows_count_as_a_dead_worker(tmp_path: Path) -> None:
    slot, process = executors._Slot({}, tmp_path / "log"), DeadWorker()
    slot._process = process  # type: ignore[assignment]
    assert not slot._request(process, tmp_path)  # type: ignore[arg-type]
    assert slot._end() == "its process exited with code 1"


def test_on_windows_a_worker_is_a_group_that_gets_ctrl_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate("win32", operating_system, monkeypatch)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    flags: list[int] = []

    def start(*_: Any, creationflags: int, **__: Any) -> DeadWorker:
        flags.append(creationflags)
        return DeadWorker()

    monkeypatch.setattr(subprocess, "Popen", start)
    slot = executors._Slot({}, tmp_path / "log")
    slot._process = process = slot._start()
    slot.interrupt()
    assert flags == [0x200]
    assert process.sent == [1]  # type: ignore[attr-defined]


def test_waits_for_a_cell_have_a_limit() -> None:
    """On Windows, Ctrl-C is noticed between two waits only."""

    class Ended:
        waits = 0

        def get(self, *, timeout: float) -> Path:
            assert timeout <= 1
            self.waits += 1
            if self.waits < 3:
                raise Empty
            return Path("cell")

    assert executors._next_ended(Ended()) == Path("cell")  # type: ignore[arg-type]


def test_a_signal_without_a_name_is_a_reason_too() -> None:
    assert executors._describe_end(-40) == "its process was ended by signal 40"


def test_jobs_share_the_cores() -> None:
    assert default_jobs(1) >= default_jobs(2) >= 1
    assert default_jobs(10**6) == 1


def test_slots_share_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    shares = [executors._share_of_gpus(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(3)]
    assert shares == ["2", "5", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert executors._share_of_gpus(0) == {}


def test_a_numbered_gpu_is_that_of_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    made: list[Any] = []

    class Slot(executors._Slot):
        def __init__(self, variables: Any, log: Path) -> None:
            super().__init__(variables, log)
            made.append(variables.get("CUDA_VISIBLE_DEVICES"))

        def work(self, waiting: Any, ended: Any, closed: Any) -> None:
            while waiting:
                ended.put(waiting.popleft())

    monkeypatch.setattr(executors, "_Slot", Slot)
    for device in ("cuda", "cuda:1"):
        cells = [tmp_path / "a", tmp_path / "b"]
        assert len(list(run_locally(cells, jobs=2, log=tmp_path / "log", device=device))) == 2
    assert made == ["2", "5", None, None]


# The process itself


UNUSUAL = ["Käse", "two\nlines", "not UTF-8 \udcff"]
"""Names of folders; the last one is a name in Latin-1, as Python reads it on Linux."""
PRINT_CELLS = """
import os, sys
from regard.comparison import worker
worker.train_cell = lambda path: print(ascii(str(path)), file=sys.stderr)
sys.argv = ["worker", str(os.getppid())]
worker.main()
"""


def test_each_request_is_one_line_of_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker and executor would lose step at the second line of a path."""
    code = (
        "with open(os.path.join(os.path.dirname(sys.argv[0]), 'requests'), 'ab', 0) as file:\n"
        "    for line in sys.stdin.buffer:\n"
        "        file.write(line)\n"
        "        print(flush=True)"
    )
    fake_worker(tmp_path, monkeypatch, code)
    cells = [tmp_path / name for name in UNUSUAL]
    assert list(run_locally(cells, jobs=1, log=tmp_path / "log")) == cells
    requests = (tmp_path / "requests").read_bytes().decode("ascii").splitlines()
    assert [Path(json.loads(line)) for line in requests] == cells


@pytest.mark.slow
def test_paths_are_read_whatever_the_encoding_of_the_input() -> None:
    """On Windows, Python reads a pipe in the encoding of the system."""
    cells = [Path("/tmp", name) for name in UNUSUAL]
    with subprocess.Popen(
        [sys.executable, "-c", PRINT_CELLS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
    ) as process:
        assert all(executors._Slot._request(process, cell) for cell in cells)
        replies, printed = process.communicate()
    assert replies == b""
    assert printed.decode().splitlines() == [ascii(str(cell)) for cell in cells]


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_without_prctl_a_worker_ends_with_its_input(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(platform, worker, monkeypatch)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: pytest.fail("prctl is Linux's"))
    worker.end_with(parent=0)
