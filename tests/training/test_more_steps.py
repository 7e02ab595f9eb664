"""More steps of a finished run continue its training: weights, optimizer, data."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from killed import Killed
from plans import plan_named
from regard.api import train
from regard.errors import UserError
from regard.runs.run import Run
from regard.training import optimizers
from regard.training.checkpoint import require_checkpoint
from regard.training.plan import Plan
from tiny import BIOGRAPHIES, MODEL, QUESTIONS
from tiny_tasks import REVIEWS, SETTINGS

FEW = [
    *(*MODEL, "data.validation=0.2"),
    *(f"training.{setting}" for setting in ("batch=3", "checkpoint_every=2", "log_every=1")),
]
CONSTANT = "training.schedule={kind='mingpt', positions=1000000, final=1}"
"""A schedule that doesn't depend on the number of steps."""
LABELS = ["head.kind=classification"]


def trained(out: Path, steps: int, task: str, data: Any, *settings: str) -> Run:
    chosen = [*FEW, f"training.steps={steps}", *settings]
    plan_named(task, data, out=out, settings=chosen).execute(SETTINGS)
    return Run.load(out)


def more(task: str, data: Any, start: Run, out: Path, steps: int = 2) -> Plan:
    return plan_named(task, data, out=out, start=start, more_steps=steps)


def same_files(one: Path, two: Path) -> bool:
    ours, theirs = (load_file(path) for path in (one, two))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def write_text(folder: Path) -> Path:
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in BIOGRAPHIES * 4), "utf-8")
    return folder / "text.txt"


@pytest.mark.parametrize("task", ["text", "questions", "classification"])
def test_it_equals_the_longer_training(tmp_path: Path, task: str) -> None:
    data: Any = {"text": write_text(tmp_path), "questions": QUESTIONS}.get(task, REVIEWS)
    settings = [CONSTANT, *(LABELS if task == "classification" else [])]
    start = trained(tmp_path / "start", 4, task, data, *settings)
    trained(tmp_path / "whole", 6, task, data, *settings)
    plan = more(task, data, start, tmp_path / "run")
    assert plan.describe()["steps_before"] == 4
    progress = plan.execute(SETTINGS)
    assert progress.step == 6
    for file in ("checkpoints/6/model", "checkpoints/6/optimizer", "model"):
        assert same_files(*(tmp_path / out / f"{file}.safetensors" for out in ("run", "whole")))
    ours, theirs = ((tmp_path / n / "config.toml").read_text("utf-8") for n in ("run", "whole"))
    assert ours == theirs
    assert len((tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()) == 6


def test_low_rank_updates_continue(tmp_path: Path) -> None:
    base = trained(tmp_path / "base", 2, "questions", QUESTIONS)
    lora = [*FEW[len(MODEL) :], CONSTANT, "training.lora.rank=2"]
    for name, steps in (("start", 4), ("whole", 6)):
        settings = [*lora, f"training.steps={steps}"]
        plan = plan_named(
            "questions", QUESTIONS, out=tmp_path / name, settings=settings, start=base
        )
        plan.execute(SETTINGS)
    more("questions", QUESTIONS, Run.load(tmp_path / "start"), tmp_path / "run").execute(SETTINGS)
    for file in ("checkpoints/6/model.safetensors", "model.safetensors"):
        assert same_files(tmp_path / "run" / file, tmp_path / "whole" / file)


@pytest.mark.parametrize("place", ["at a step", "before the checkpoint is copied"])
def test_it_is_resumed_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    start = trained(tmp_path / "start", 2, "questions", QUESTIONS)
    more("questions", QUESTIONS, start, tmp_path / "whole", 4).execute(SETTINGS)
    original = optimizers.clip_gradients

    def killing(*args: Any) -> Any:
        if place == "at a step" and args[3] < 6:
            return original(*args)
        raise Killed

    killed_in = "step.clip_gradients" if place == "at a step" else "plan.copy_checkpoint"
    with monkeypatch.context() as patched:
        patched.setattr(f"regard.training.{killed_in}", killing)
        with pytest.raises(Killed):
            more("questions", QUESTIONS, start, tmp_path / "run", 4).execute(SETTINGS)
    with pytest.raises(UserError, match="holds a run"):
        more("questions", QUESTIONS, start, tmp_path / "run", 4).execute(SETTINGS)
    more("questions", QUESTIONS, start, tmp_path / "run", 4).execute(SETTINGS, resume=True)
    last = "checkpoints/6/model.safetensors"
    assert same_files(tmp_path / "run" / last, tmp_path / "whole" / last)


def test_a_run_that_stopped_early_continues(tmp_path: Path) -> None:
    settings = ["training.patience=1", "training.lr=1"]
    start = trained(tmp_path / "start", 40, "questions", QUESTIONS, *settings)
    stopped = require_checkpoint(start.path).progress.step
    assert stopped < 40
    chosen: Any = {"device": "cpu", "precision": "float32", "more_steps": 2}
    run = train("questions", QUESTIONS, out=tmp_path / "run", start=start, **chosen)
    assert run.recipe.training.steps == stopped + 2
    assert require_checkpoint(run.path).progress.step == stopped + 2


def test_what_cannot_be_continued_is_refused(tmp_path: Path) -> None:
    start, out = trained(tmp_path / "start", 2, "questions", QUESTIONS), tmp_path / "run"

    def refuse(says: str, task: str = "questions", data: Any = QUESTIONS, **choices: Any) -> None:
        with pytest.raises(UserError, match=says):
            plan_named(task, data, out=out, start=start, **{"more_steps": 2} | choices)

    refuse("the data differs", data=QUESTIONS[1:])
    refuse("the task differs", "text", [q.text for q in QUESTIONS])
    refuse(r"training\.lr=1: --steps continues", settings=["training.lr=1"])
    refuse(r"more steps \(0\)", more_steps=0)
    start.origin["steps"] = 3
    refuse("is unfinished, at step 2 of 3")
    (start.path / "checkpoints/2").rename(tmp_path / "elsewhere")
    refuse("has no checkpoint to continue from")
    assert not out.exists()


def test_metrics_may_be_missing(tmp_path: Path) -> None:
    start = trained(tmp_path / "start", 2, "questions", QUESTIONS)
    (start.path / "metrics.jsonl").unlink()
    assert more("questions", QUESTIONS, start, tmp_path / "run").execute(SETTINGS).step == 4
