"""What a model recalls, by how often it was read."""

from pathlib import Path

import numpy as np
from benchmark_files import recall
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import plan_pretraining
from regard.config import override
from regard.experiments.birthplaces import Data
from regard.runs.recipes import RECIPES
from regard.tasks.world import WorldConfig, make_world
from regard.tasks.world_files import save_world

TINY = ["tokenizer.kind=words", "model.d_model=16", "model.n_layers=1"]


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
    recipe = override(RECIPES["modern"], TINY)
    data = Data.read(tmp_path, recipe)
    plan = plan_pretraining(data.corpus, tmp_path / "run", recipe, questions=data.qa_train)
    clozes = len(plan.data.training[1].dataset)
    read = recall.readings(plan.run, data)
    epochs = 1200 * 0.65 * 256 / clozes
    times = read / epochs
    np.testing.assert_allclose(times, times.round(), atol=1e-9)
    assert times.max() > 1
