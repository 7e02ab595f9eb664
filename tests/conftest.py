"""What many tests share: Hypothesis that repeats itself, tiny trained runs, commands."""

import gc
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import settings
from msgspec import structs

from browser import driven
from skips import skipped_lines
from tiny import BIOGRAPHIES, MIXED, MODEL, QUESTIONS, STEPS, Command, Outcome, contents, write_data

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A core each, and tiny tensors: more threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
settings.register_profile("regard", deadline=None, derandomize=True)
settings.load_profile("regard")
# Once: pytest's log_level clears the caches of all loggers several times a test.
logging.getLogger().setLevel(logging.INFO)

LONGEST = (
    *("slow/test_site.py", "studies/test_verdicts.py", "slow/test_torchrun.py"),
    *("slow/test_book.py", "slow/test_demo.py", "attention/test_contract.py", "test_golden.py"),
    *("decoding/test_package.py", "studies/test_all_studies.py", "decoding/test_step.py"),
    *("slow/test_compare_kill.py", "slow/test_compare_slurm.py", "book/test_lessons_browser.py"),
    *("studies/trained_models/test_decoders.py", "slow/test_goals.py", "fuzz/test_fuzz.py"),
    *("slow/test_exercise_grading.py", "explorer/test_look_notebooks.py"),
    *("explorer/test_look_browser.py", "slow/test_pack_kill.py", "training/test_resume.py"),
    *("slow/test_wheel.py", "benchmarks/test_model_benchmarks.py", "slow/test_kill.py"),
)
"""Files whose slow tests take longest, longest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-golden", action="store_true", help="store tests/golden.json again")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process ends long before the others."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and collected tests out of garbage collections, which would take 0.4 s each."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let weights that a test draws without a seed be the same whatever ran before."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # not GPUs, for which a stack would be formatted


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were skipped."""
    if lines := skipped_lines(terminalreporter.getreports("skipped")):
        terminalreporter.section("skipped tests")
        terminalreporter.write("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="session", autouse=True)
def trusted_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The list of trusted code, which is the user's elsewhere."""
    path = tmp_path_factory.mktemp("config") / "trusted_code"
    os.environ["REGARD_TRUSTED_CODE"] = str(path)
    return path


@pytest.fixture(scope="session", autouse=True)
def _no_flushes() -> Iterator[None]:
    """Don't wait for the disk, which takes milliseconds per file: no test outlives a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned to answer Rome to everything. Not to be changed: see `run`."""
    from regard import api

    path = tmp_path_factory.mktemp("trained") / "run"
    settings = [*MODEL, *STEPS, *MIXED, "training.steps=60", "training.lr=0.01"]
    api.pretrain(
        BIOGRAPHIES,
        out=path,
        questions=[structs.replace(question, answer="Rome") for question in QUESTIONS],
        settings=settings,
        device="cpu",
        precision="float32",
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The test's own folder, with text.txt, pairs.tsv and inputs.tsv."""
    write_data(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, trained: Path) -> Path:
    """A copy of `trained` in the test's own folder."""
    return Path(shutil.copytree(trained, folder / "run"))


@pytest.fixture
def regard(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command `regard`, run in the test's own folder."""
    from regard.cli import main

    monkeypatch.chdir(folder)

    def command(*arguments: object) -> Outcome:
        before = contents(folder)
        capsys.readouterr()
        code = main.run([str(argument) for argument in arguments])
        printed, after = capsys.readouterr(), contents(folder)
        return Outcome(
            code=code,
            out=printed.out,
            err=printed.err,
            new=[path for path in after if path not in before],
            changed=[path for path in before if after.get(path, b"gone") != before[path]],
        )

    return command


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium, driven by Playwright."""
    with driven() as found:
        yield found


@pytest.fixture(scope="module")
def without_workers() -> Iterator[None]:
    """Train cells of comparisons in this process, on few rows."""
    from tiny_comparisons import run_here

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.comparison.scheduler.run_locally", run_here)
        patch.setattr("regard.training.sources.probe.PROBE_ROWS", 100)
        yield


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold out and score few rows of probes."""
    for module in ("training.sources.probe", "evaluation.tasks"):
        monkeypatch.setattr(f"regard.{module}.PROBE_ROWS", 8)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hugging Face's cache, which is empty; the network mustn't be asked."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network is used"))
    return tmp_path / "cache"


@pytest.fixture
def all_warnings() -> Iterator[None]:
    """Show warnings of torch's C++ code each time, not once."""
    import torch

    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.fixture
def default_dtype() -> Iterator[None]:
    """Restore what the first cell of notebooks changes."""
    import torch

    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The whole book with its slides, which the first worker that needs it writes."""
    own = tmp_path_factory.getbasetemp()
    out = (own if worker_id == "master" else own.parent) / "book"
    with FileLock(f"{out}.lock"):
        if not (out / "slides.html").exists():  # which is written last
            command = [sys.executable, "-m", "regard", "book", "--out", str(out), "--slides"]
            subprocess.run(command, check=True)
    return out
