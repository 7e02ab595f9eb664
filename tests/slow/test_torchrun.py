"""Several processes train one model as one process does.

Most are forked (`launched.py`), which takes a second where torchrun takes four; torchrun itself
starts some.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from itertools import cycle, islice, product
from pathlib import Path
from textwrap import indent

import pytest
import torch
from safetensors.torch import load_file

from launched import HELPERS, Forked, Process, environment, kill_all, workers
from regard.runs.claim import newest_claim
from tiny import MODEL
from train_many import CASES, train_many

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and finds processes in /proc"),
]

ROUNDING = 1e-11
"""Of sums in float64 in another order."""
LOG = Path("torchrun.log")
PATIENCE = 600
"""Seconds that processes may take on a busy machine."""
STEPS = 120
PRETRAINING = (
    *MODEL,
    "model.n_layers=2",
    "model.dropout=0.2",
    "data.validation=0.2",
    f"training.steps={STEPS}",
    "training.batch=5",
    "training.log_every=1",
    "training.checkpoint_every=10",
    "training.optimizer.kind=adamw",
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of all cases, trained by one process."""
    out, threads = tmp_path_factory.mktemp("alone"), torch.get_num_threads()
    torch.set_num_threads(1)
    train_many(out, "ddp", list(CASES))
    torch.set_num_threads(threads)
    return out


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pretraining of `command` without a kill, by one process."""
    folder = tmp_path_factory.mktemp("reference")
    write_corpus(folder)
    with chdir(folder):
        train_alone(command(folder, "run"))
    return folder / "run"


@pytest.mark.parametrize(
    ("processes", "kind", "names"),
    [
        (3, "ddp", list(CASES)),
        (2, "fsdp", list(CASES)),
        pytest.param(4, "fsdp", list(CASES), marks=pytest.mark.findings),
    ],
)
def test_processes_train_as_one_does(
    processes: int, kind: str, names: list[str], alone: Path, tmp_path: Path
) -> None:
    script = str(HELPERS / "train_many.py")
    launch(processes, [script, str(tmp_path), kind, *names])
    for name in names:
        assert rows_read(tmp_path / name, processes) == rows_read(alone / name, 1)
        require_close(tmp_path / name, alone / name)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.findings)])
def test_killed_processes_resume_in_any_number(kills: int, tmp_path: Path) -> None:
    """One process, the launcher alone or all of them are killed at any moment."""
    write_corpus(tmp_path)
    steps = 100 * kills
    settings = f"training.steps={steps}"
    train_alone(command(tmp_path, "alone", settings))
    draw, victims = random.Random(kills), ("one", "launcher", "all")
    for processes, victim in islice(cycle(product((2, 3, 1), victims)), 0, 4 * kills, 4):
        arguments = command(tmp_path, "killed", settings, "--resume")
        if (processes, victim) == (1, "launcher"):  # it trains on, until another has started
            arguments = prepared(SLOW, arguments)
        process = start(processes, arguments)
        kill(process, victim, tmp_path / "killed", draw)
        assert newest(tmp_path / "killed") < steps, "it ended before it was killed"
    launch(1, command(tmp_path, "killed", settings, "--resume"))
    require_close(tmp_path / "killed", tmp_path / "alone")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_same_number_of_processes_resumes_to_the_bit(kind: str, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    flags = ("--parallel", kind, "--precision", "float32", "training.steps=60")
    launch(3, command(tmp_path, "whole", *flags))
    launch(
        3, command(tmp_path, "parts", *flags, "--resume"), until=tmp_path / "parts/checkpoints/20"
    )
    unpublish_best(tmp_path / "parts")
    launch(3, prepared(SLOW_TO_OPEN, command(tmp_path, "parts", *flags, "--resume")))
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_parts_of_the_optimizer_state_are_read_by_any_number_of_processes(
    reference: Path, tmp_path: Path
) -> None:
    write_corpus(tmp_path)
    arguments = command(tmp_path, "parts", "--parallel", "fsdp", "--resume")
    checkpoints = tmp_path / "parts/checkpoints"
    for processes, step in ((3, 30), (2, 60)):
        launch(processes, arguments, until=checkpoints / str(step))
        saved = checkpoints / str(newest(tmp_path / "parts"))
        assert len(list(saved.glob("optimizer*.safetensors"))) == processes
    launch(1, arguments)
    require_close(tmp_path / "parts", reference)


def test_torchrun_resumes_by_itself(reference: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    arguments = command(tmp_path, "killed")
    process = start_torchrun(2, arguments, "--max-restarts", "2")
    wait_for(tmp_path / "killed/checkpoints/20", process)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    assert process.wait(PATIENCE) == 0
    require_close(tmp_path / "killed", reference)


def test_a_dead_process_is_named(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    process = start_torchrun(3, command(tmp_path, "run", "training.steps=5000"))
    wait_for(tmp_path / "run/checkpoints/20", process)
    victim = workers(process.pid)[1]
    os.kill(victim, signal.SIGKILL)
    printed = printed_by(process, timeout=30)
    (line,) = [line for line in printed.splitlines() if line.startswith("regard: process")]
    assert f"(pid {victim}) ended" in line
    assert "--resume" in line


def test_processes_wait_for_the_slowest(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import pathlib, time\n"
        "from regard.training.processes import join_processes\n"
        "processes, file = join_processes(), pathlib.Path('written')\n"
        "if processes.is_first:\n"
        "    time.sleep(1)\n"
        "    file.touch()\n"
        "processes.wait()\n"
        "assert file.exists()\n"
    )
    launch(2, [str(script)])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("recipe", "f'model.d_model={16 + 16 * rank}'"),
        ("--parallel", "'--parallel=' + ('ddp', 'fsdp')[rank]"),
    ],
)
def test_processes_with_other_options_stop(name: str, own: str, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    changed = f"rank = int(os.environ['RANK']); sys.argv.append({own})"
    if name == "recipe":  # torchrun itself, once
        (line,) = failure(command(tmp_path, "run"), changed, start_torchrun)
    else:
        (line,) = failure(command(tmp_path, "run"), changed)
    assert f"process 1: has another {name} than process 0" in line
    assert "exitcode: 2" in LOG.read_text()
    assert not (tmp_path / "run").exists()


def test_a_wrong_option_of_one_process_stops_all_with_one_line(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    own = "if os.environ['RANK'] == '1': sys.argv.append('training.batch=none')"
    (line,) = failure(command(tmp_path, "run"), own)
    assert "training.batch" in line
    assert "RuntimeError" not in LOG.read_text()
    assert not (tmp_path / "run").exists()


def test_a_normalizer_that_fails_in_one_process_stops_all(tmp_path: Path) -> None:
    """With fsdp, saving needs all of them, but only one has failed."""
    write_corpus(tmp_path)
    broken = "from regard.errors import NormalizerError; raise NormalizerError('zero')"
    (line,) = failure(command(tmp_path, "run", "--parallel", "fsdp"), in_step(25, 1, broken))
    assert line == "regard: zero"
    assert newest(tmp_path / "run") == 20


def test_only_the_process_that_failed_reports(tmp_path: Path) -> None:
    """The others know of the failure, and might report first."""
    write_corpus(tmp_path)
    (tmp_path / "file").touch()
    slow_report = (
        "import time, regard.cli.main as main\n"
        "report = main._may_report\n"
        "main._may_report = lambda code: (time.sleep(os.environ['RANK'] == '0'), report(code))[1]"
    )
    (line,) = failure(command(tmp_path, "file"), slow_report)
    assert "file: exists but is not a run folder" in line
    assert "exitcode: 1" not in LOG.read_text()


@pytest.mark.parametrize(("kind", "rank"), [("ddp", 0), ("fsdp", 1)])
def test_a_full_disk_stops_all_with_one_line_and_the_checkpoint_stays(
    kind: str, rank: int, reference: Path, tmp_path: Path
) -> None:
    write_corpus(tmp_path)
    arguments = command(tmp_path, "full", "--resume", "--parallel", kind)
    full = (
        "import resource, time\n"
        "while not os.path.isdir('full/checkpoints/20'): time.sleep(0.01)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    )
    (line,) = failure(arguments, SLOW_SAMPLES + in_step(25, rank, full))
    assert "full/checkpoints/30: " in line
    assert "File too large" in line
    assert newest(tmp_path / "full") == 20
    launch(2, arguments)
    require_close(tmp_path / "full", reference)


# Launching


def in_step(number: int, rank: int, statements: str) -> str:
    """Return code that lets one process run statements in a step."""
    return (
        "import regard.training.step as step\n"
        "gradients = step.accumulate_gradients\n"
        "def changed(loss, parts, *rest, calls=[]):\n"
        "    calls.append(1)\n"
        f"    if len(calls) == {number} and os.environ['RANK'] == '{rank}':\n"
        f"{indent(statements, ' ' * 8)}\n"
        "    return gradients(loss, parts, *rest)\n"
        "step.accumulate_gradients = changed"
    )


SLOW = """
import time, regard.training.step as step
gradients = step.accumulate_gradients
step.accumulate_gradients = lambda *args: (time.sleep(0.05), gradients(*args))[1]
"""

SLOW_SAMPLES = """
import time, regard.training.plan as plan, regard.training.processes as processes
processes.NOTICED, train = 1.0, plan.train
def sample(_, calls=[]):
    calls.append(1)
    time.sleep(3 * (len(calls) > 3))
    return {}
plan.train = lambda *args, **options: train(*args, **options | {"at_checkpoint": sample})
"""
"""The first process takes longer to report its fourth checkpoint than others wait for a reason."""
SLOW_TO_OPEN = """
import time, safetensors
opened = safetensors.safe_open
wait = 0.2 * (os.environ["RANK"] != "0")
safetensors.safe_open = lambda *args, **options: (time.sleep(wait), opened(*args, **options))[1]
"""
"""Other processes still list a checkpoint's files when the first one has read its own."""


def unpublish_best(run: Path) -> None:
    """Leave a run as a kill does between the two renames of a checkpoint."""
    best = run / "checkpoints" / str(newest(run)) / "best.safetensors"
    if not best.exists():
        (run / "model.safetensors").rename(best)


def prepared(statements: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command that runs statements first."""
    script = Path("prepared.py")
    lines = ("import os, sys", statements, "from regard.cli.main import main", "main(sys.argv[1:])")
    script.write_text("\n".join(lines))
    return [str(script), *arguments[2:]]


def launch(processes: int, arguments: Sequence[str], *, until: Path | None = None) -> None:
    """Run processes to their end, or kill them when a path appears."""
    process = start(processes, arguments)
    if until is not None:
        wait_for(until, process)
        kill_all(process)
    printed = printed_by(process, timeout=PATIENCE)
    assert process.returncode == (0 if until is None else -signal.SIGKILL), printed


def train_alone(arguments: Sequence[str]) -> None:
    """Train in one process that isn't forked, so that its sets have an order of their own."""
    subprocess.run([sys.executable, *arguments], env=environment(), check=True)


def start(processes: int, arguments: Sequence[str]) -> Process:
    return Forked(processes, arguments, LOG)


def start_torchrun(processes: int, arguments: Sequence[str], *flags: str) -> Process:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    command = [*torchrun, "--nproc-per-node", str(processes), *flags, *arguments]
    with LOG.open("wb") as log:  # a pipe would stay open in processes that outlive it
        return subprocess.Popen(command, env=environment(), stdout=log, stderr=log)


def printed_by(process: Process, *, timeout: float) -> str:
    process.wait(timeout)
    return LOG.read_text()


def failure(
    arguments: Sequence[str],
    statements: str,
    begin: Callable[[int, Sequence[str]], Process] = start,
) -> list[str]:
    """Run two processes, after statements in each, and return the lines of their failure."""
    process = begin(2, prepared(statements, arguments))
    printed = printed_by(process, timeout=PATIENCE)
    assert process.returncode
    return [line for line in printed.splitlines() if line.startswith("regard:")]


def command(folder: Path, out: str, *flags: str) -> list[str]:
    """A pretraining in float64, unless flags choose another precision."""
    files = [str(folder / "text.txt"), "--out", str(folder / out), "--no-index"]
    precision = () if "--precision" in flags else ("--precision", "float64")
    return ["-m", "regard", "pretrain", *files, *PRETRAINING, *precision, *flags]


def write_corpus(folder: Path) -> None:
    names = [first + last for first in "ABCDEFGH" for last in ("da", "no", "lirit", "f")]
    lines = [f"{name} lives in {'Oslo' * (i % 4)}, {i}.\n" for i, name in enumerate(names)]
    (folder / "text.txt").write_text("".join(lines))


def wait_for(path: Path, process: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, printed_by(process, timeout=0)
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(process: Process, victim: str, run: Path, draw: random.Random) -> None:
    """Kill one process, the launcher or all of them, soon after they have begun to train."""
    earlier, before, deadline = claims(run), None, time.monotonic() + PATIENCE
    while process.poll() is None and (before is None or newest(run) == before):
        assert time.monotonic() < deadline
        time.sleep(0.005)
        if before is None and claims(run) > earlier:  # until then, those of before may still write
            before = newest(run)
    time.sleep(draw.uniform(0, 0.05))
    match victim:
        case "one":
            os.kill(draw.choice(workers(process.pid)), signal.SIGKILL)
        case "launcher":
            process.kill()  # the processes go on, until another attempt claims the run
        case _:
            kill_all(process)
    process.wait(PATIENCE)


def claims(run: Path) -> int:
    return newest_claim(run / "checkpoints")


def newest(run: Path) -> int:
    folder = run / "checkpoints"
    steps = (
        [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        if folder.is_dir()
        else []
    )
    return max(steps, default=0)


# Comparing


def require_close(run: Path, other: Path) -> None:
    """Raise unless two runs have the same losses and weights but for rounding."""
    ours, theirs = (metrics(path) for path in (run, other))
    assert [record["step"] for record in ours] == [record["step"] for record in theirs]
    for one, two in zip(ours, theirs, strict=True):
        for name in ("loss", "validation_loss", "tokens"):
            assert one.get(name, 0) == pytest.approx(two.get(name, 0), abs=ROUNDING)
    weights, expected = (load_file(path / "model.safetensors") for path in (run, other))
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=ROUNDING)


def rows_read(run: Path, processes: int) -> set[str]:
    """Return step, number, ids and labels of each row that processes have trained on."""
    files = [run.with_name(f"{run.name}.{rank}.rows") for rank in range(processes)]
    rows = {line for file in files for line in file.read_text().splitlines()}
    assert rows
    return rows


def metrics(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
