"""The course's recipe is scored at epochs of one run, which an interruption doesn't change."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import course_epochs
from safetensors.torch import load_file
from torch import equal

from regard.runs.recipes import find_recipe
from regard.runs.run import Run
from regard.tasks.world import WorldConfig, make_world, save_world
from regard.training.loop import ExecutionOptions
from regard.training.optimizers import clip_gradients
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource

TINY = [
    *("tokenizer.unknown=bytes", "model.n_layers=1", "model.n_heads=2", "model.d_model=16"),
    *("training.checkpoint_every=1", "finetuning.steps=1"),
]


def test_each_body_is_another_model() -> None:
    models = [find_recipe("course", chosen).model for chosen in course_epochs.BODIES.values()]
    assert not [one for number, one in enumerate(models) if one in models[:number]]


def test_interrupted_epochs_are_those_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, runs, place = (tmp_path / name for name in ("world", "runs", "course-epochs.json"))
    save_world(make_world(WorldConfig(people=80, absent=20, biographies=1)), world)
    monkeypatch.setenv("REGARD_BIRTHPLACES", str(world))
    monkeypatch.setattr(course_epochs, "SETTINGS", TINY)
    arguments = ["course_epochs.py", "--body", "rotary", "--epochs", "3", "1"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--runs", str(runs), "--out", str(tmp_path)])

    def interrupted(*args: Any) -> Any:
        if args[3] == 3:  # the last epoch's only step
            raise KeyboardInterrupt
        return clip_gradients(*args)

    with monkeypatch.context() as patched:
        patched.setattr("regard.training.step.clip_gradients", interrupted)
        with pytest.raises(SystemExit, match="repeat the command to resume"):
            course_epochs.main()
    (first,) = json.loads(place.read_text("utf-8"))["scores"]
    kept = first | {"accuracy": 0.5, "low": 0.25, "high": 0.75}
    place.write_text(json.dumps({"scores": [kept]}), "utf-8")
    course_epochs.main()
    stored, last = json.loads(place.read_text("utf-8"))["scores"]
    assert stored == kept
    assert (stored["epoch"], last["epoch"]) == (1, 3)
    assert "| rotary | 0 | 1 |" in capsys.readouterr().out

    tiny = [one for one in TINY if not one.startswith("finetuning")]
    tiny += [*course_epochs.BODIES["rotary"], "training.epochs=3"]
    source = DocumentSource(world / "wiki.txt")
    plan = plan_training(source, "course", tmp_path / "whole", settings=tiny)
    assert plan.execute(ExecutionOptions.choose()).tokens == last["positions"]
    weights = [runs / "rotary-0/epoch-3", tmp_path / "whole"]
    ours, whole = (load_file(folder / "model.safetensors") for folder in weights)
    assert all(equal(ours[name], whole[name]) for name in whole)
    assert Run.load(runs / "rotary-0/epoch-3-finetuned").answers_questions


def test_the_data_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REGARD_BIRTHPLACES", raising=False)
    monkeypatch.setattr(sys, "argv", ["course_epochs.py"])
    with pytest.raises(SystemExit, match="2"):
        course_epochs.main()
    assert capsys.readouterr().err.startswith("REGARD_BIRTHPLACES: set it")
