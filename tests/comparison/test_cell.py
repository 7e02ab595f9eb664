"""A cell is an ordinary run: resumed exactly, scored, and written by its newest attempt alone."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from msgspec import structs

from killed import Killed, kill_in_writing
from plans import plan_task
from regard.comparison import cell as cells
from regard.comparison.cell import count_operations, run_cell, state_bytes
from regard.comparison.folder import (
    Outcome,
    cell_path,
    create_cell,
    give_up,
    read_cell,
    read_outcome,
)
from regard.comparison.grid import CellSettings
from regard.errors import NonFiniteError
from regard.evaluation.tasks import score_task
from regard.models.head_config import with_labels
from regard.operations import OperationCounter
from regard.runs.claim import Claim, StaleClaimError
from regard.runs.recipe import Recipe
from regard.runs.recipes import find_recipe
from regard.runs.run import Run
from regard.training.checkpoint import newest_checkpoint
from tiny import contents
from tiny_comparisons import TINY
from tiny_tasks import CPU, task_recipe

pytestmark = pytest.mark.usefixtures("without_workers")

SETTINGS = CellSettings(device="cpu")


def tiny_recipe(*settings: str) -> Recipe:
    return find_recipe("mqar", [*TINY, *settings])


def outcome_of(path: Path) -> Outcome:
    found = read_outcome(path)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished cell. Not to be changed."""
    path = create_cell(tmp_path_factory.mktemp("whole"), tiny_recipe(), SETTINGS)
    run_cell(path)
    return path


def test_a_cell_is_a_run_with_its_scores(whole: Path) -> None:
    run, outcome = Run.load(whole), outcome_of(whole)
    assert run.recipe == tiny_recipe()
    assert (outcome.state, outcome.step) == ("finished", 4)
    scores = score_task(run, CPU).scores
    assert outcome.test == {name: interval.value for name, interval in scores.items()}
    assert outcome.validation.keys() == outcome.test.keys()
    assert whole == cell_path(whole.parents[1], run.recipe, SETTINGS)


def test_costs_are_those_of_the_run(whole: Path) -> None:
    run, costs = Run.load(whole), outcome_of(whole).costs
    assert costs is not None
    assert costs.parameters == run.n_parameters
    assert costs.state_bytes == state_bytes(run.model, run.recipe.model.context_length)
    assert costs.seconds > 0
    assert costs.tokens_per_second > 0
    matrices = [p for n, p in run.model.named_parameters() if p.dim() == 2 and "embed" not in n]
    tokens = 16
    assert costs.operations >= 2 * tokens * sum(p.numel() for p in matrices)


def test_operations_are_of_one_row_if_rows_are_negatives_of_each_other() -> None:
    plan = plan_task(Path("nowhere"), task_recipe("retrieval", "encoder, embedding"))
    batch = plan.sampler.batch(0)
    with torch.no_grad(), OperationCounter() as counter:
        plan.run.model.loss(batch)
    assert count_operations(plan, CPU) * len(batch.labels) <= counter.total


def test_a_cell_without_a_known_peak_memory_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows it is NaN, for which JSON has no form."""
    monkeypatch.setattr(cells, "peak_memory_mb", lambda _: float("nan"))
    path = create_cell(tmp_path, tiny_recipe(), SETTINGS)
    run_cell(path)
    costs = outcome_of(path).costs
    assert costs is not None
    assert costs.peak_memory_mb is None


def test_an_ended_cell_stays_as_it_is(whole: Path) -> None:
    before = contents(whole)
    run_cell(whole)
    assert contents(whole) == before


def test_a_failed_cell_is_tried_again(whole: Path, tmp_path: Path) -> None:
    path = create_cell(tmp_path, tiny_recipe(), SETTINGS)
    give_up(path, "its process was ended by SIGKILL, 3 times")
    assert outcome_of(path).state == "failed"
    run_cell(path)
    again, first = outcome_of(path), outcome_of(whole)
    assert again.attempt == 2
    assert (again.state, again.validation, again.test) == ("finished", first.validation, first.test)


@pytest.mark.parametrize(
    "write",
    [
        *(1, 2, 4, 7, 11),
        *(pytest.param(write, marks=pytest.mark.slow) for write in (3, 5, 6, 8, 9, 10)),
    ],
)
def test_a_cell_stopped_at_any_write_ends_as_the_uninterrupted_one(
    write: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, publishing = create_cell(tmp_path, tiny_recipe(), SETTINGS), Claim.publishing
    written = 0

    def counted(claim: Claim) -> object:
        nonlocal written
        written += 1
        if written == write:
            raise Killed
        return publishing(claim)

    monkeypatch.setattr(Claim, "publishing", counted)
    try:
        run_cell(path)
    except Killed:
        monkeypatch.undo()
        run_cell(path)
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    found, expected = outcome_of(path), outcome_of(whole)
    assert (found.validation, found.test) == (expected.validation, expected.test)


def test_divergence_is_an_outcome_with_its_step(tmp_path: Path) -> None:
    recipe = tiny_recipe("training.lr=1000", "training.max_grad_norm=inf", "training.steps=200")
    path = create_cell(tmp_path, recipe, SETTINGS)
    run_cell(path)
    outcome = outcome_of(path)
    if outcome.state == "finished":
        pytest.skip("this machine's rounding lets it train at a learning rate of 1000")
    assert outcome.state == "diverged"
    assert f"step {outcome.step}" in outcome.reason


@pytest.mark.parametrize(
    ("place", "error", "expected"),
    [
        (
            "regard.training.step.accumulate_gradients",
            NonFiniteError("the weights add up to zero"),
            ("diverged", 1, "the weights add up to zero"),
        ),
        (
            "regard.comparison.cell._score",
            torch.OutOfMemoryError("no\nmemory"),
            ("failed", 4, "OutOfMemoryError: no memory"),
        ),
    ],
    ids=["in training", "in scoring"],
)
def test_an_error_is_an_outcome(
    place: str,
    error: Exception,
    expected: tuple[str, int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = create_cell(tmp_path, tiny_recipe(), SETTINGS)
    monkeypatch.setattr(place, Mock(side_effect=error))
    run_cell(path)
    outcome = outcome_of(path)
    assert (outcome.state, outcome.step, outcome.reason) == expected


def test_a_stale_attempt_writes_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt begins and ends while this one is in its training."""
    path = create_cell(tmp_path, tiny_recipe(), SETTINGS)
    publishing = Claim.publishing
    seen: dict[str, bytes | None] = {}

    def overtaken(claim: Claim) -> object:
        checkpoint = newest_checkpoint(path) if (path / "checkpoints").exists() else None
        if claim.number == 1 and checkpoint and not seen:
            seen["began"] = None
            run_cell(path)
            seen.update(contents(path))
        return publishing(claim)

    monkeypatch.setattr(Claim, "publishing", overtaken)
    with pytest.raises(StaleClaimError, match="attempt 1 is stale"):
        run_cell(path)
    seen.pop("began")
    assert contents(path) == seen
    assert outcome_of(path).attempt == 2
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


# Names


def test_a_cell_is_named_by_all_that_its_weights_depend_on() -> None:
    recipe = tiny_recipe()
    names = [
        cell_path(Path(), recipe, SETTINGS),
        cell_path(Path(), structs.replace(recipe, seed=1), SETTINGS),
        cell_path(Path(), recipe, structs.replace(SETTINGS, threads=2)),
        cell_path(Path(), tiny_recipe("training.lr=0.5"), SETTINGS),
    ]
    assert len(set(names)) == len(names)
    assert cell_path(Path(), tiny_recipe(), CellSettings(device="cpu")) == names[0]


def test_labels_are_no_part_of_the_name() -> None:
    """A cell gets them from its examples, so only a trained one has them."""
    recipe = find_recipe("classification")
    labeled = structs.replace(recipe, head=with_labels(recipe.head, ("bad", "good")))
    assert labeled != recipe
    assert cell_path(Path(), labeled, SETTINGS) == cell_path(Path(), recipe, SETTINGS)


def test_custom_code_is_part_of_the_name_and_of_the_folder(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from regard.attention.softmax import Softmax\n\nclass Mine(Softmax):\n    name = 'mine'\n"
    )
    recipe = tiny_recipe(f"model.attention.kind={code}:Mine")
    path = create_cell(tmp_path / "out", recipe, SETTINGS)
    code.write_text(code.read_text() + "\n")
    assert cell_path(tmp_path / "out", recipe, SETTINGS) != path
    shutil.move(code, tmp_path / "elsewhere.py")
    run_cell(path)
    assert outcome_of(path).state == "finished"


FEW = ("task.training=20", "task.test=10", "training.steps=2", "training.batch=4")
BYTES = ("tokenizer.kind=byte-pairs", "tokenizer.size=300")
SMALL = ("model.d_model=16", "model.n_layers=1", "model.n_heads=2")


@pytest.mark.parametrize("task", ["classification", "casing"])
def test_cells_of_texts(task: str, tmp_path: Path) -> None:
    settings = [*FEW, *BYTES, *SMALL]
    if task == "casing":
        sides = [f"model.{side}.{one[6:]}" for side in ("encoder", "decoder") for one in SMALL]
        settings = [*FEW, *BYTES, *sides, "task.shortest=4", "task.longest=8"]
    path = create_cell(tmp_path, find_recipe(task, settings), SETTINGS)
    run_cell(path)
    outcome = outcome_of(path)
    assert outcome.state == "finished", outcome.reason
    assert outcome.validation.keys() == outcome.test.keys()
    assert read_cell(path).seed == 0


def test_a_cell_killed_before_its_labels_are_written_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = find_recipe("classification", [*FEW, *BYTES, *SMALL])
    path = create_cell(tmp_path, recipe, SETTINGS)
    kill_in_writing("config.toml", lambda: run_cell(path), monkeypatch)
    run_cell(path)
    outcome = outcome_of(path)
    assert outcome.state == "finished", outcome.reason
