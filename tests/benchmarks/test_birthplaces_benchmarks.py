"""What is tried on the real birth places can be tried, and is told as it was found."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmark_files import birthplaces, recall
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import plan_pretraining
from regard.config import override
from regard.experiments.birthplaces import Data
from regard.runs.recipes import RECIPES
from regard.tasks.world import WorldConfig, make_world, save_world

SCORE = {"seed": 0, "accuracy": 0.5, "steps": 600, "training_seconds": 90.0}
TINY = ["training.steps=2", "tokenizer.kind=words", "model.d_model=16", "model.n_layers=1"]


def test_each_variant_changes_something_else() -> None:
    steps = f"training.steps={birthplaces.STEPS}"
    made = [override(RECIPES["modern"], [steps, *v]) for v in birthplaces.VARIANTS.values()]
    assert RECIPES["modern"].training.steps == 2 * birthplaces.STEPS
    assert not [one for i, one in enumerate(made) if one in made[:i]]


def test_one_variant_is_added_to_what_was_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_world(make_world(WorldConfig(people=80, absent=20, biographies=1)), tmp_path / "world")
    place = tmp_path / "birthplaces-tried.json"
    place.write_text(json.dumps({"no clozes": [SCORE]}), encoding="utf-8")
    monkeypatch.setenv("REGARD_BIRTHPLACES", str(tmp_path / "world"))
    monkeypatch.setitem(birthplaces.VARIANTS, "half the steps", TINY)
    monkeypatch.setattr(birthplaces, "HELD_OUT", 5)
    seeds = ["--seed", "1", "--seed", "0"]
    paths = ["--out", str(tmp_path), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["birthplaces.py", "--only", "half the steps", *seeds, *paths])
    birthplaces.main()
    written = json.loads(place.read_text(encoding="utf-8"))
    assert list(written) == ["half the steps", "no clozes"]
    assert written["no clozes"] == [SCORE]
    assert [(one["seed"], one["steps"]) for one in written["half the steps"]] == [(0, 2), (1, 2)]
    shown = capsys.readouterr().out
    assert "| no clozes | 50.0 % | 50.0 | 600 | 1.5 min |" in shown


# What a model recalls, by how often it was read


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), min_size=1))
def test_every_question_is_in_one_group(asked: list[tuple[float, bool]]) -> None:
    read, right = (np.array(column) for column in zip(*asked, strict=True))
    found = recall.by_readings(read, right)
    assert sum(n for _, n in found.values()) == len(asked)
    assert sum(n for n, _ in found.values()) == right.sum()
    assert found["never"][1] == (read < 1).sum()


def test_readings_are_those_of_the_clozes_of_training(tmp_path: Path) -> None:
    """The plan has each relevant cloze as often as is counted."""
    save_world(make_world(WorldConfig(people=80, absent=20, biographies=1)), tmp_path)
    recipe = override(RECIPES["modern"], TINY[1:])
    data = Data.read(tmp_path, recipe)
    plan = plan_pretraining(data.corpus, tmp_path / "run", recipe, questions=data.qa_train)
    clozes = len(plan.data.training[1].dataset)
    read = recall.readings(plan.run, data)
    epochs = 1200 * 0.65 * 256 / clozes
    times = read / epochs
    np.testing.assert_allclose(times, times.round(), atol=1e-9)
    assert times.max() > 1
