"""The commands as functions: what `import regard` offers.

`pretrain`, `finetune` and `train` have two halves, in `regard.training`: `plan_…` builds and checks
everything, `Plan.execute` writes the run's folder and trains.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regard.comparison.grid import CellSettings, Grid
from regard.comparison.plan import plan_comparison
from regard.comparison.scheduler import train_comparison
from regard.comparison.table import Comparison
from regard.config import convert as convert_config
from regard.decoding.beam_search import beam_search as beam_search
from regard.decoding.generate import generate as generate
from regard.evaluation.evaluate import answer as answer
from regard.evaluation.evaluate import evaluate as evaluate
from regard.evaluation.tasks import label as label
from regard.huggingface.folder import load_start
from regard.runs.environment import ExecutionEnvironment, Precision
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.runs.start import convert as convert
from regard.tasks.examples import Examples
from regard.text.corpus import Corpus
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_finetuning, plan_pretraining, plan_training


def load(
    path: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    trust_code: bool = False,
) -> Run:
    """Load the run in a folder; with `trust_code`, custom code in it may come from elsewhere.

    With the prefix "hf:", the folder is that of a Hugging Face model, and nothing is saved.
    """
    environment = ExecutionEnvironment.choose(device, threads=threads)
    run = load_start(path, trust_code=trust_code)
    run.model.to(environment.device)
    return run


def pretrain(
    corpus: Corpus,
    *,
    out: str | Path,
    questions: Examples = (),
    recipe: Recipe | str = "default",
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model on text, with questions mixed in.

    `recipe` is a name, a TOML file or a `Recipe`; `settings` override it: "model.n_layers=6".
    """
    plan = plan_pretraining(corpus, out, recipe, settings, questions=questions)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def finetune(
    run: Run,
    questions: Examples,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a pretrained model on questions. `run` isn't changed, and its recipe is the default."""
    plan = plan_finetuning(run, questions, out, recipe, settings)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def train(
    task: str,
    data: Corpus | Examples | None = None,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    test: Path | None = None,
    start: Run | str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: Precision = "auto",
) -> Run:
    """Train a model on "questions", on "text", or for a task of `regard tasks`.

    A task generates its own examples if no data are given. Of a table, a tenth is held out for
    `evaluate`, or `test` is another table for it. `start` is a run to begin with, its folder, or
    "hf:PATH" for the folder of a Hugging Face model; by default, training is from scratch.
    """
    begun = start if isinstance(start, Run) or start is None else load_start(start)
    plan = plan_training(
        task, data, out=out, recipe=recipe, settings=settings, test=test, start=begun
    )
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def compare(
    task: str,
    *,
    over: Mapping[str, Sequence[Any]],
    out: str | Path,
    tune: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 5,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
    score: str | None = None,
    within: float = 0.05,
    jobs: int | None = None,
    add: Sequence[str | Path] = (),
    cells: int | None = None,
    threads: int = 1,
    device: str = "auto",
    precision: Precision = "float32",
    executor: str | Mapping[str, Any] = "local",
) -> Comparison:
    """Train a grid of runs for a task in worker processes, and compare them.

    `over` and `tune` map fields of the recipe to values: rows of the table, and values of which
    each row takes the best by validation. What has ended in the folder `out` isn't trained anew;
    `jobs` cells are trained at a time, by default one per core. `add` are runs made by hand that
    join, `cells` confirms the number of more than 1 000. `executor` is "local", "slurm" or "ray",
    or a mapping with its resources, such as {"kind": "slurm", "mem_gb": 8}.

    Raises:
        UserError: an axis or value is impossible, the folder holds something else, or there is no
            such cluster.
    """
    grid = Grid(
        task=task,
        recipe=recipe,
        settings=tuple(settings),
        over=dict(over),
        tune=dict(tune or {}),
        seeds=seeds,
        baseline=dict(baseline or {}),
        score=score,
        within=within,
        cell=CellSettings(threads=threads, device=device, precision=precision),
    )
    place = {"kind": executor} if isinstance(executor, str) else dict(executor)
    grid = convert_config(
        msgspec.to_builtins(grid) | {"executor": place}, Grid, where="regard.compare"
    )
    planned = plan_comparison(grid, confirmed=cells)
    return train_comparison(planned, Path(out), jobs=jobs, add=[Path(run) for run in add])
