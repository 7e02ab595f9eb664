"""The commands as functions, which `import regard` provides.

`pretrain`, `finetune` and `train` differ by their source (`regard.training.sources`) and usual
recipe. `plan_training` builds and checks everything; `Plan.execute` writes the run's folder and
trains.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from regard.comparison.grid import CellSettings, Grid, MatchedCost, change_grid
from regard.comparison.plan import plan_comparison
from regard.comparison.scheduler import train_comparison, train_suite
from regard.comparison.suite import load_suite
from regard.comparison.table import Comparison
from regard.config import convert as convert_config
from regard.decoding.beam_search import beam_search as beam_search
from regard.decoding.generate import generate as generate
from regard.decoding.package import compile as compile
from regard.environment import ExecutionEnvironment, Precision, TrainingPrecision
from regard.errors import UserError, require_list
from regard.evaluation import answers
from regard.evaluation.answers import Answer
from regard.evaluation.evaluate import evaluate as evaluate
from regard.evaluation.tasks import label as label
from regard.huggingface.convert.folder import load_start
from regard.packing import pack as pack
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.runs.start import convert as convert
from regard.tasks.examples import Example, Examples
from regard.text.corpus import Corpus
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_more_steps, plan_training
from regard.training.sources.choose import choose_source, choose_text
from regard.training.sources.questions import QuestionSource
from regard.uncertainty.calibration import require_wordings
from regard.uncertainty.signals import quick_signals


def load(
    path: str | Path,
    *,
    device: str = "auto",
    threads: int | None = None,
    trust_code: bool = False,
) -> Run:
    """Load the run in a folder; with `trust_code`, custom code in it may come from elsewhere.

    With the prefix "hf:", the folder is that of a Hugging Face model, and nothing is saved.
    `threads` is the number of threads on a CPU; the default is torch's.

    Raises:
        UserError: the folder has no run, or a damaged one; its code isn't trusted; or there is no
            such device.

    >>> regard.load("tiny").recipe.model.n_layers
    2
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
    index: bool = True,
    mix: str | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: TrainingPrecision = "auto",
) -> Run:
    """Train a model on text, with questions mixed in, or on packed corpora.

    `recipe` is a name, a TOML file or a `Recipe`; `settings` override it: "model.n_layers=6". With
    `index`, the text is indexed in the run's folder, if pydivsufsort is installed. `mix` is the
    weights of packed corpora: "web=0.7,code=0.3".

    Raises:
        UserError: the text, the questions or a setting can't be used, or `out` holds something
            else; with `resume`, other than the same recipe and data.
        NonFiniteError: a loss or gradient is NaN or infinite.

    >>> texts = ["Ada was born in Rome.", "Bob was born in Oslo."]
    >>> tiny = ["model.n_layers=1", "model.d_model=16", "model.n_heads=2", "training.steps=1"]
    >>> regard.pretrain(texts, out="people", settings=tiny).path.name
    'people'
    """
    source = choose_text(corpus, questions, index=index, mix=mix)
    plan = plan_training(source, recipe, out, settings=settings)
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
    precision: TrainingPrecision = "auto",
) -> Run:
    """Train a pretrained model on questions; `run` isn't changed.

    By default, the recipe is that of `run`, with the training of its `finetuning` recipe.

    Raises:
        UserError: as `pretrain`; or a setting changes the model of `run`.
        NonFiniteError: a loss or gradient is NaN or infinite.

    >>> questions = [regard.Example(text="Where was Ada born?", answer="Rome")]
    >>> tuned = regard.finetune(run, questions, out="tuned", settings=["training.steps=1"])
    >>> tuned.answers_questions
    True
    """
    source = QuestionSource(questions, "finetuning")
    plan = plan_training(source, recipe, out, run, settings=settings)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def train(
    task: str,
    data: Corpus | Examples | None = None,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    test: str | Path | None = None,
    start: Run | str | Path | None = None,
    more_steps: int | None = None,
    mix: str | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: TrainingPrecision = "auto",
) -> Run:
    """Train a model on "questions", on "text", or for a task of `regard tasks`.

    A task generates its own examples if no data are given. A tenth of a task's file is held out for
    `evaluate`, unless `test` is a file for it. `start` is a run to begin with, its folder, or
    "hf:PATH" for the folder of a Hugging Face model; by default, training is from scratch.
    With `more_steps`, the training of `start`, a finished run, continues on the same data. `mix` is
    the weights of packed corpora.

    Raises:
        UserError: as `pretrain`; or there is no such task, or `start` doesn't fit it.
        NonFiniteError: a loss or gradient is NaN or infinite.

    >>> tiny = ["model.n_layers=1", "model.d_model=16", "model.n_heads=2", "training.steps=1"]
    >>> regard.train("copy", out="copying", settings=[*tiny, "task.length=4"]).recipe.task
    CopyConfig(vocabulary=64, length=4)
    """
    begun = start if isinstance(start, Run) or start is None else load_start(start)
    source = choose_source(task, data, test=test, mix=mix)
    if more_steps is None:
        plan = plan_training(source, recipe, out, begun, settings=settings)
    elif begun is None or recipe is not None:
        raise UserError(
            f"more steps ({more_steps}): expected a run as start, which they continue, and no "
            "recipe"
        )
    else:
        plan = plan_more_steps(source, out, begun, more_steps, settings)
    plan.execute(ExecutionOptions.choose(device, precision), resume=resume)
    return plan.run


def answer(
    run: Run,
    questions: Iterable[str],
    *,
    paraphrases: Sequence[str] = (),
    precision: Precision = "float32",
) -> list[Answer]:
    """Answer questions, with signals that may distinguish recall from hallucination.

    `paraphrases` are other wordings, with {} for the subject. The answer to a question that can't
    be encoded is None.

    Raises:
        UserError: the run doesn't write text, or a paraphrase has no {}.

    >>> [known, unknown] = regard.answer(run, ["Where was Ada born?", "Where was Zoe born?"])
    >>> known.answer, known.confidence > 0.5
    ('Rome', True)
    >>> unknown.answer, unknown.reason
    (None, "question 2: the vocabulary has no 'Zoe'; ...")
    """
    require_list(questions, "questions")
    require_wordings(paraphrases)
    asked = [Example(text=text, where=f"question {i}") for i, text in enumerate(questions, 1)]
    signals = quick_signals(paraphrases)
    return answers.answer(run, asked, run.environment(precision), signals=signals)


def compare(
    task: str,
    *,
    over: Mapping[str, Iterable[Any]],
    out: str | Path,
    tune: Mapping[str, Iterable[Any]] | None = None,
    seeds: int = 5,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
    score: str | None = None,
    within: float = 0.05,
    match: MatchedCost | None = None,
    jobs: int | None = None,
    add: Sequence[str | Path] = (),
    cells: int | None = None,
    threads: int = 1,
    device: str = "auto",
    precision: Precision = "float32",
    executor: str | Mapping[str, Any] = "local",
) -> Comparison:
    """Train a grid of runs for a task in worker processes, and compare them.

    `over` and `tune` map fields of the recipe to values (a list, range or array): rows of the
    table, and hyperparameters, whose best values are chosen for each row by validation. Cells that
    are finished in the folder `out` aren't trained again; `jobs` cells are trained at a time, by
    default one per core. `add` are existing runs to include, `cells` confirms the number of more
    than 1,000. `match` is a cost that is equal for all models: one size of each is changed.
    `executor` is "local", "slurm" or "ray", or a mapping with its resources, such as {"kind":
    "slurm", "mem_gb": 8}.

    Raises:
        UserError: an axis or value is invalid, the folder holds something else, or there is no such
            cluster.

    A test doesn't run this example, which trains in worker processes:

    >>> axis = {"model.attention.kind": ["softmax", "elu"]}
    >>> found = regard.compare("mqar", over=axis, out="grid", seeds=3)  # doctest: +SKIP
    >>> found.best()["model.attention.kind"]  # doctest: +SKIP
    'softmax'
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
        match=match,
        cell=CellSettings(threads=threads, device=device, precision=precision),
    )
    planned = plan_comparison(_with_executor(grid, executor), confirmed=cells)
    return train_comparison(planned, Path(out), jobs=jobs, add=[Path(run) for run in add])


def compare_suite(
    suite: str,
    *,
    out: str | Path,
    settings: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int | None = None,
    cells: int | None = None,
    threads: int = 1,
    device: str = "auto",
    precision: Precision = "float32",
    executor: str | Mapping[str, Any] = "local",
) -> dict[str, Comparison]:
    """Train the grids of a suite, and return their comparisons by the name of the task.

    Each has its folder in `out`. By default, `seeds` is that of the suite. Other arguments are
    those of `compare`.

    Raises:
        UserError: there is no such suite; or as `compare`.

    A test doesn't run this example, which trains in worker processes:

    >>> found = regard.compare_suite("recall", out="suite", seeds=3)  # doctest: +SKIP
    >>> best = {task: one.best() for task, one in found.items()}  # doctest: +SKIP
    """
    changes: dict[str, Any] = {"threads": threads, "device": device, "precision": precision}
    changes |= {} if seeds is None else {"seeds": seeds}
    grids = [change_grid(grid, grid.task, settings, changes) for grid in load_suite(suite)]
    planned = [plan_comparison(_with_executor(grid, executor), confirmed=cells) for grid in grids]
    return dict(train_suite(planned, Path(out), jobs=jobs))


def _with_executor(grid: Grid, executor: str | Mapping[str, Any]) -> Grid:
    """Return a grid whose cells are trained by an executor, given by kind or with resources."""
    chosen = {"kind": executor} if isinstance(executor, str) else dict(executor)
    values = msgspec.to_builtins(grid, enc_hook=_as_list) | {"executor": chosen}
    return convert_config(values, Grid, where="regard.compare")


def _as_list(values: Any) -> Any:
    """Return the values of an axis that is a range, an array or another iterable."""
    return values.tolist() if isinstance(values, np.ndarray | np.generic) else list(values)
