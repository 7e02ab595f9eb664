"""Models and worlds of the studies of knowledge."""

from pathlib import Path

import pytest
import torch

from regard.runs.run import Run
from regard.studies.knowledge.fictional import (
    ABSENT,
    commonest,
    finetuned,
    from_scratch,
    homes,
    mentioned_places,
    place_probabilities,
    qa_train,
    small_recipe,
    small_world,
)
from regard.tasks.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return small_world(80, 1.0, 0)


@pytest.fixture
def run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    return from_scratch(world, small_recipe(1, 0), qa_train(world)[:9])


def test_with_full_correlation_all_come_from_the_home_of_their_name(world: World) -> None:
    home = homes(world)
    assert len(world.group("absent")) == ABSENT
    assert all(person.place == home[person.name] for person in world.people)


def test_commonest() -> None:
    people = small_world(80, 0.0, 3).group("text_only")
    place, share = commonest(people)
    counts = [sum(p.place == q.place for q in people) for p in people]
    assert share == max(counts) / len(people)
    assert counts[[p.place for p in people].index(place)] == max(counts)


def test_probabilities_of_places_add_up_to_1(world: World, run: Run) -> None:
    names = sorted({person.place for person in world.people})
    given = place_probabilities(run, world)
    assert given.shape == (ABSENT, len(names))
    assert torch.allclose(given.sum(1), torch.ones(ABSENT, dtype=torch.float64), atol=1e-12)


def test_a_finetuned_model_is_its_parents_child(world: World, run: Run) -> None:
    child = finetuned(run, qa_train(world)[:6])
    assert child.origin["parent"] == str(run.path)
    assert child.tokenizer.fingerprint == run.tokenizer.fingerprint


@pytest.mark.parametrize("seed", range(3))
def test_mentioned_places_are_those_of_the_text(seed: int) -> None:
    small = small_world(80, 0.0, seed)
    text = " ".join(small.documents)
    assert mentioned_places(small) == sorted({p.place for p in small.people if p.place in text})
