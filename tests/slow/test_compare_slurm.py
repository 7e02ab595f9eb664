"""submitit's jobs, on its cluster of local processes, give what worker processes give."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock

from regard.comparison.config import SlurmConfig
from regard.comparison.executors import run_locally
from regard.comparison.folder import create_cell, read_outcome
from regard.comparison.grid import CellSettings
from regard.comparison.plan import plan_comparison
from regard.comparison.scheduler import train_comparison
from regard.comparison.slurm_jobs import run_on_slurm
from regard.comparison.table import MEASURED, Comparison
from regard.operating_system import is_running
from regard.runs.recipes import find_recipe
from tiny import contents
from tiny_comparisons import KIND, TINY, tiny_grid

pytest.importorskip("submitit", reason="the extra slurm isn't installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]

LOCAL = SlurmConfig(cluster="local")
STEPS = ("training.steps=300", "training.checkpoint_every=50", "training.log_every=50")


def unmeasured(found: Comparison) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if k not in MEASURED} for row in found.table()]


def test_tables_are_equal(tmp_path: Path) -> None:
    usual = {"seeds": 1, "tune": {}, "cell": {"device": "cpu"}}
    here, slurm = (
        train_comparison(plan_comparison(tiny_grid(**usual, **executor)), out, jobs=jobs)
        for executor, out, jobs in (
            ({}, tmp_path / "here", 1),
            ({"executor": {"kind": "slurm", "cluster": "local"}}, tmp_path / "slurm", None),
        )
    )
    assert unmeasured(slurm) == unmeasured(here)
    assert [row[KIND] for row in slurm.table()] == ["softmax", "elu"]
    assert weights(tmp_path / "slurm") == weights(tmp_path / "here")


def weights(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("cells/*/model.safetensors")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cell = make_cell(tmp_path_factory.mktemp("alone"))
    list(run_locally([cell], jobs=1, log=cell.parent / "log"))
    return cell


def make_cell(out: Path) -> Path:
    return create_cell(out, find_recipe("mqar", [*TINY, *STEPS]), CellSettings(device="cpu"))


def start_scheduler(cell: Path, jobs: Path) -> "subprocess.Popen[bytes]":
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from regard.comparison.config import SlurmConfig\n"
        "from regard.comparison.slurm_jobs import run_on_slurm\n"
        "config = SlurmConfig(cluster='local')\n"
        "folder = Path(sys.argv[2])\n"
        "list(run_on_slurm([Path(sys.argv[1])], config, folder=folder, threads=1, jobs=1))\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(cell), str(jobs)])


def training_process(cell: Path, jobs: Path, scheduler: "subprocess.Popen[bytes]") -> int:
    """Wait for the first checkpoint of a cell; return the id of the process that trains it."""
    found: list[int] = []
    while not found:  # before the checkpoint: reading all processes takes a while
        assert scheduler.poll() is None
        paths = Path("/proc").glob("[0-9]*/cmdline")
        found = [int(path.parent.name) for path in paths if is_task(path, jobs)]
        time.sleep(0.01)
    while not list((cell / "checkpoints").glob("*")):
        assert scheduler.poll() is None
        time.sleep(0.01)
    (pid,) = found
    return pid


def is_task(cmdline: Path, jobs: Path) -> bool:
    try:
        arguments = cmdline.read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"submitit.core._submit" in arguments and os.fsencode(jobs) in arguments


def signal_between_writes(pid: int, cell: Path, number: int) -> None:
    """Signal a process while it writes nothing, as a stopped one would hold the lock."""
    with FileLock(cell / ".publishing.lock"):
        os.kill(pid, number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2], ids=["killed", "preempted"])
def test_a_cell_resumes_in_another_job(number: int, uninterrupted: Path, tmp_path: Path) -> None:
    cell, jobs = make_cell(tmp_path), tmp_path / "jobs"
    with start_scheduler(cell, jobs) as scheduler, ExitStack() as at_the_end:
        at_the_end.callback(scheduler.kill)
        os.kill(training_process(cell, jobs, scheduler), number)
        assert scheduler.wait() == 0
    check(cell, uninterrupted)


def check(cell: Path, uninterrupted: Path) -> None:
    outcome, alone = read_outcome(cell), read_outcome(uninterrupted)
    assert outcome is not None
    assert alone is not None
    assert (outcome.state, outcome.attempt) == ("finished", 2)
    assert (outcome.validation, outcome.test) == (alone.validation, alone.test)
    name = "model.safetensors"
    assert (cell / name).read_bytes() == (uninterrupted / name).read_bytes()


def test_a_job_that_outlives_its_command_writes_nothing(
    uninterrupted: Path, tmp_path: Path
) -> None:
    cell, jobs = make_cell(tmp_path), tmp_path / "jobs"
    with start_scheduler(cell, jobs) as scheduler, ExitStack() as at_the_end:
        at_the_end.callback(scheduler.kill)
        orphan = training_process(cell, jobs, scheduler)
        signal_between_writes(orphan, cell, signal.SIGSTOP)
        scheduler.kill()
    list(run_on_slurm([cell], LOCAL, folder=jobs, threads=1, jobs=None))
    check(cell, uninterrupted)
    before = contents(cell)
    os.kill(orphan, signal.SIGCONT)
    while is_running(orphan):
        time.sleep(0.05)
    assert contents(cell) == before
    logs = [log.read_text("utf-8") for log in jobs.glob("*.err")]
    assert sum("attempt 1 is stale" in log for log in logs) == 1
