"""One cell: check that its model can be built; train and score it; resume exactly."""

import re
from math import isfinite
from pathlib import Path

import msgspec
import torch

from regard.comparison.folder import Costs, Outcome, publish, read_outcome
from regard.comparison.grid import CellSettings, Combination, Refused, distinct
from regard.device import peak_memory_mb
from regard.environment import ExecutionEnvironment
from regard.errors import NonFiniteError, UserError
from regard.evaluation.tasks import PROBE_ROWS, score_answers, score_probe, score_ranks
from regard.files import decode_json, read_table
from regard.models.builders import Embedder, LanguageModel, Model
from regard.models.head_config import with_labels
from regard.models.uninitialized import make_uninitialized
from regard.operations import OperationCounter
from regard.runs.claim import Claim, StaleClaimError
from regard.runs.recipe import Recipe, load_recipe
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.tasks.probes import ProbeConfig
from regard.tasks.registry import TextTask
from regard.training.checkpoint import Progress, newest_checkpoint
from regard.training.loop import ExecutionOptions, InterruptedTraining
from regard.training.plan import Plan, plan_training
from regard.training.sources.choose import check_task, own_source

VALIDATION = 2**32
"""Offset from a run's seed to that of its validation examples; larger than any recipe's seed."""
MODEL_SECTIONS = ("model.", "head.", "task.", "objective.")
"""Fields that decide whether a model can be built and learn its task."""
CHECKED_VOCABULARY = 16
"""Vocabulary size of the models that are built only as a check."""


# Before training


def split_refused(combinations: list[Combination]) -> tuple[list[Combination], list[Refused]]:
    """Return the combinations whose models can be built, and the others with reasons.

    Each model is built and refused once, whatever the values of axes that don't change it.
    """
    reasons: dict[bytes, str | None] = {}
    possible, refused = [], []
    for one in combinations:
        recipe = one.recipe
        key = msgspec.json.encode([recipe.task, recipe.model, recipe.head, recipe.objective])
        if key not in reasons:
            reasons[key] = _why_refused(recipe)
        if (reason := reasons[key]) is None:
            possible.append(one)
        else:
            of_model = {p: value for p, value in one.values.items() if p.startswith(MODEL_SECTIONS)}
            refused.append(Refused(values=of_model, reason=reason))
    return possible, distinct(refused)


def _why_refused(recipe: Recipe) -> str | None:
    """Build the model without weights, and return the error message if that fails."""
    assert recipe.task is not None
    try:
        check_task(recipe, recipe.task)
        head = with_labels(recipe.head, ("a", "b"))
        make_uninitialized(recipe.model, head, CHECKED_VOCABULARY)
    except UserError as error:
        return str(error)
    except RuntimeError:
        return None  # training shows it
    return None


# Training and scores


def run_cell(path: Path) -> None:
    """Train a cell from its last checkpoint, score it and write its outcome, unless it has one.

    Raises:
        StaleClaimError: another attempt has begun meanwhile; nothing was written since.
        InterruptedTraining: Ctrl-C; the state is saved.
    """
    if (before := read_outcome(path)) and before.state != "failed":
        return
    claim = Claim.take(path)
    try:
        outcome = _train_and_score(path, claim)
    except (StaleClaimError, InterruptedTraining):
        raise
    except NonFiniteError as error:
        step, reason = _failed_step(path, error), str(error)
        outcome = Outcome(state="diverged", attempt=claim.number, step=step, reason=reason)
    except Exception as error:
        step, reason = _steps_done(path), f"{type(error).__name__}: {' '.join(str(error).split())}"
        outcome = Outcome(state="failed", attempt=claim.number, step=step, reason=reason)
    publish(claim, outcome)


def _train_and_score(path: Path, claim: Claim) -> Outcome:
    plan, environment = _plan(path, claim)
    _reset_peak(environment)
    options = ExecutionOptions(
        environment=environment,
        quiet=True,
        kept_checkpoints=1,
        tensorboard=False,
        publishing=claim.publishing,
    )
    progress = plan.execute(options, resume=True)
    return Outcome(
        state="finished",
        attempt=claim.number,
        step=progress.step,
        validation=_score(plan.run, environment, "validation"),
        test=_score(plan.run, environment, "test"),
        costs=_costs(plan, progress, environment),
    )


def _plan(path: Path, claim: Claim) -> tuple[Plan, ExecutionEnvironment]:
    """Plan the training of a cell's folder, and complete the folder's description."""
    settings = decode_json((path / "cell.json").read_bytes(), CellSettings)
    environment = ExecutionEnvironment.choose(settings.device, settings.precision, settings.threads)
    recipe = load_recipe(path)
    plan = plan_training(own_source(recipe), recipe, path)
    origin = path / "origin.json"
    described = origin.exists() and "stage" in read_table(origin)
    if not described or recipe != plan.run.recipe:  # a kill left the labels out of config.toml
        with claim.publishing():
            plan.run.save_description()
    return plan, environment


def _score(run: Run, environment: ExecutionEnvironment, part: str) -> dict[str, float]:
    """Score validation or test examples; neither are training examples."""
    task, seed = run.recipe.task, run.recipe.seed
    assert task is not None
    if isinstance(task, ProbeConfig):
        drawn = seed + 1 if part == "test" else seed + VALIDATION
        found = score_probe(run, task, environment, rows=PROBE_ROWS, seed=drawn)
    else:
        examples = _examples(task, seed, part)
        if isinstance(run.model, Embedder):
            found = score_ranks(run, examples, environment)
        else:
            found = score_answers(run, task, examples, environment)
    return {name: interval.value for name, interval in found.scores.items()}


def _examples(task: TextTask, seed: int, part: str) -> list[Example]:
    """Return the test examples, or validation examples: of another seed, none of this seed's.

    Raises:
        UserError: no example is left for validation.
    """
    own = task.make(seed)
    if part == "test":
        return list(own.test)
    known = {(example.text, example.second) for example in (*own.training, *own.test)}
    others = task.make(seed + VALIDATION).test
    new = [example for example in others if (example.text, example.second) not in known]
    if not new:
        raise UserError(
            "the task has no examples left for validation; lower task.training or task.test"
        )
    return new


def _failed_step(path: Path, error: NonFiniteError) -> int:
    """Return the step at the start of the message, or else the step after the checkpoint."""
    named = re.match(r"step (\d+):", str(error))
    return int(named[1]) if named else _steps_done(path) + 1


def _steps_done(path: Path) -> int:
    checkpoint = newest_checkpoint(path)
    return checkpoint.progress.step if checkpoint else 0


# Costs


def _costs(plan: Plan, progress: Progress, environment: ExecutionEnvironment) -> Costs:
    run, memory = plan.run, peak_memory_mb(environment.device)
    return Costs(
        parameters=run.n_parameters,
        operations=count_operations(plan, environment),
        state_bytes=state_bytes(run.model, run.recipe.model.context_length),
        seconds=round(progress.seconds, 3),
        tokens_per_second=round(progress.tokens / max(progress.seconds, 1e-9), 1),
        peak_memory_mb=round(memory, 1) if isfinite(memory) else None,
    )


@torch.no_grad()
def count_operations(plan: Plan, environment: ExecutionEnvironment) -> int:
    """Count the floating-point operations of the forward pass of one row."""
    batch = plan.sampler.batch(0)
    shortest = next(iter(batch.inputs.values())).lengths.argsort(stable=True)[:1]
    part = batch.take(shortest).to(environment.device)
    with OperationCounter() as counter:
        plan.run.model.loss(part)
    return counter.total


def state_bytes(model: Model, context_length: int) -> int | None:
    """Return the size of the decoding state of a full context; None if the model has none."""
    if not isinstance(model, LanguageModel):
        return None
    return int(model.init_state(1, context_length).bytes)


def _reset_peak(environment: ExecutionEnvironment) -> None:
    """Reset the process's peak memory, that earlier cells set, where supported (Linux, CUDA)."""
    if environment.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(environment.device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # see proc(5)
    except OSError:
        return
