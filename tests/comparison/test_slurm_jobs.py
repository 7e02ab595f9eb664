"""SLURM jobs: options, ends and errors, with commands in the place of SLURM's."""

import os
import sys
from pathlib import Path

import pytest

from regard.comparison import jobs
from regard.comparison.config import SlurmConfig
from regard.comparison.folder import read_outcome
from regard.comparison.slurm_jobs import require_slurm, run_on_slurm
from regard.errors import UserError

COMMANDS = {
    "srun": "",
    "sbatch": 'cp "$1" "{folder}/script"; echo x >> "{folder}/jobs.txt"; '
    'echo "Submitted batch job $(wc -l < "{folder}/jobs.txt")"',
    "sacct": 'echo "JobID|State|NodeList"; for i in 1 2 3; do echo "$i|NODE_FAIL|"; done',
    "scancel": 'echo "$1" >> "{folder}/canceled"',
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the commands of a cluster on which every job dies."""
    pytest.importorskip("submitit", reason="the extra slurm isn't installed")
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in COMMANDS.items():
        write_command(folder, name, text)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def write_command(folder: Path, name: str, text: str) -> None:
    command = folder / name
    command.write_text(f"#!/bin/sh\n{text.format(folder=folder)}\n", encoding="utf-8")
    command.chmod(0o755)


def train(folder: Path, config: SlurmConfig) -> Path:
    cell = folder / "cell"
    cell.mkdir()
    found = run_on_slurm([cell], config, folder=folder / "jobs", threads=2, jobs=None)
    assert list(found) == [cell]
    return cell


def test_options_are_those_of_sbatch(slurm: Path, tmp_path: Path) -> None:
    config = SlurmConfig(
        timeout_min=90,
        mem_gb=1.5,
        gpus_per_node=1,
        slurm_partition="long",
        slurm_additional_parameters={"qos": "high"},
    )
    train(tmp_path, config)
    lines = (slurm / "script").read_text("utf-8").splitlines()
    options = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert options >= {
        *("--time=90", "--mem=1536MB", "--cpus-per-task=2", "--gpus-per-node=1"),
        *("--partition=long", "--qos=high", "--job-name=regard"),
    }
    assert not any(option.startswith("--account") for option in options)


def test_a_cell_whose_jobs_die_has_failed(slurm: Path, tmp_path: Path) -> None:
    outcome = read_outcome(train(tmp_path, SlurmConfig()))
    assert outcome is not None
    log = tmp_path / "jobs" / "3_0_log.err"
    assert outcome.reason == f"its job ended as NODE_FAIL (see {log}), 3 times"
    assert (slurm / "jobs.txt").read_text() == "x\n" * 3
    assert not list((tmp_path / "jobs").glob("*_submitted.pkl"))
    assert not (slurm / "canceled").exists()


def test_jobs_of_a_killed_command_are_canceled(slurm: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "17_submitted.pkl").touch()
    train(tmp_path, SlurmConfig())
    assert (slurm / "canceled").read_text() == "17\n"


def test_a_refused_job_is_one_line(
    slurm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_command(slurm, "sbatch", "echo 'sbatch: error: invalid partition: lung' >&2; exit 1")
    with pytest.raises(UserError, match="refuses the job: sbatch: error: invalid partition: lung"):
        train(tmp_path, SlurmConfig(slurm_partition="lung"))
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("slurm")
def test_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="there is no srun here"):
        require_slurm(SlurmConfig())
    require_slurm(SlurmConfig(cluster="local"))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[slurm\]'"):
        require_slurm(SlurmConfig())
