"""The commands as functions: what `import regard` offers.

`pretrain`, `finetune` and `train` have two halves, in `regard.training`: `plan_…` builds and checks
everything, `Plan.execute` writes the run's folder and trains.
"""

from collections.abc import Sequence
from pathlib import Path

from regard.decoding.beam_search import beam_search as beam_search
from regard.decoding.generate import generate as generate
from regard.evaluation.evaluate import answer as answer
from regard.evaluation.evaluate import evaluate as evaluate
from regard.evaluation.tasks import label as label
from regard.huggingface.folder import load_start
from regard.runs.environment import Precision
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.runs.run import load as load
from regard.runs.start import convert as convert
from regard.tasks.examples import Examples
from regard.text.corpus import Corpus
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_finetuning, plan_pretraining, plan_training


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
