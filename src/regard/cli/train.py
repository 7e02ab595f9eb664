"""regard pretrain, finetune and train"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.training.plan import Plan

TOKENIZER = click.option(
    "--tokenizer",
    type=options.PATH,
    metavar="RUN",
    help="Run whose tokenizer to use, instead of a new one.",
)
TRAINING = options.together(
    options.OUT,
    options.RECIPE,
    click.option("--resume", is_flag=True, help="Resume the run in --out."),
    click.option("--dry-run", is_flag=True, help="Build and check everything, don't train."),
    options.JSON,
    options.SEED,
    options.EXECUTION,
)


@click.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option("--questions", type=options.PATH, help="File of questions and answers to mix in.")
@TOKENIZER
@TRAINING
def pretrain(
    corpus: tuple[str, ...],
    questions: Path | None,
    tokenizer: Path | None,
    out: Path,
    recipe: str | None,
    seed: int | None,
    **flags: Any,
) -> None:
    """Train a model on the text files CORPUS.

    Settings follow as section.field=value, such as model.n_layers=6.
    """
    from regard.training.plan import plan_pretraining

    files, settings = _split(corpus, seed)
    if not files:
        raise UserError("there is no file to train on; name one")
    plan = plan_pretraining(
        files, out, recipe or "default", settings, questions=questions or (), tokenizer=tokenizer
    )
    _execute(plan, **flags)


@click.command()
@click.argument("pairs", type=options.PATH)
@click.argument("settings", nargs=-1)
@options.TRUST_CODE
@click.option(
    "--from",
    "parent",
    type=options.PATH,
    metavar="RUN",
    required=True,
    help="Pretrained run.",
)
@TRAINING
def finetune(
    pairs: Path,
    settings: tuple[str, ...],
    parent: Path,
    out: Path,
    recipe: str | None,
    seed: int | None,
    trust_code: bool,
    **flags: Any,
) -> None:
    """Train the run --from on the questions of PAIRS, by default with that run's recipe."""
    from regard.runs.run import Run
    from regard.training.plan import plan_finetuning

    overrides = [*settings, *_seed_setting(seed)]
    loaded = Run.load(parent, trust_code=trust_code)
    _execute(plan_finetuning(loaded, pairs, out, recipe, overrides), **flags)


@click.command()
@click.argument("task")
@click.argument("files", nargs=-1)
@TOKENIZER
@TRAINING
def train(
    task: str,
    files: tuple[str, ...],
    tokenizer: Path | None,
    out: Path,
    recipe: str | None,
    seed: int | None,
    **flags: Any,
) -> None:
    """Train a model from scratch for a TASK of `regard tasks`, on a file or on generated examples.

    TASK questions: FILES is one file of questions and answers. TASK text: FILES are any texts; the
    command ends with a sample. Settings follow as section.field=value.
    """
    from regard.training.plan import plan_training

    paths, settings = _split(files, seed)
    if task != "text" and len(paths) > 1:
        raise UserError(f"train {task}: takes one file, not {len(paths)}")
    data = paths if task == "text" else paths[0] if paths else None
    plan = plan_training(
        task, data or None, out=out, recipe=recipe, settings=settings, tokenizer=tokenizer
    )
    if _execute(plan, **flags) and task == "text":
        _print_sample(plan)


def _split(arguments: tuple[str, ...], seed: int | None) -> tuple[list[Path], list[str]]:
    """Split files from settings, `section.field=value`, unless that is a file; add the seed."""
    settings = [a for a in arguments if "=" in a and not Path(a).exists()]
    files = [Path(a) for a in arguments if a not in settings]
    return files, [*settings, *_seed_setting(seed)]


def _seed_setting(seed: int | None) -> list[str]:
    return [] if seed is None else [f"seed={seed}"]


def _execute(
    plan: "Plan",
    *,
    dry_run: bool,
    json_file: Path | None,
    resume: bool,
    **execution: Any,
) -> bool:
    """Print the plan and, unless it is a dry run, train; return whether it trained."""
    from regard.training.loop import ExecutionOptions

    facts = plan.describe()
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        click.echo(f"{name.replace('_', ' ')}: {shown}")
    if dry_run:
        if json_file:
            options.write_json(json_file, facts)
        return False
    progress = plan.execute(ExecutionOptions.choose(**execution), resume=resume)
    done = {"steps_done": progress.step, "tokens": progress.tokens, "seconds": progress.seconds}
    best = {"validation_loss": progress.best_loss, "best_step": progress.best_step}
    if json_file:
        options.write_json(json_file, facts | done | best)
    if progress.best_loss is not None:
        click.echo(f"validation loss: {progress.best_loss:.4f} (step {progress.best_step})")
    click.echo(f"Run: {plan.run.path}")
    return True


def _print_sample(plan: "Plan") -> None:
    """Print a sample that begins with a few tokens of the training text."""
    from regard.decoding import Sampling, generate_ids

    run, batch = plan.run, plan.sampler.batch(0)
    start = batch.input_ids[0, : run.recipe.model.context_length // 8].tolist()
    (sample,) = generate_ids(
        run.language_model,
        [start],
        max_new_tokens=run.recipe.model.context_length - len(start),
        sampling=Sampling(temperature=0.8, seed=run.recipe.seed),
        device=run.device,
    )
    click.echo(f"Sample:\n{run.tokenizer.decode([*start, *sample.ids])}")
