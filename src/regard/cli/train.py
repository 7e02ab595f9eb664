"""regard pretrain, finetune and train"""

import json
import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.training.loop import ExecutionOptions
    from regard.training.plan import Plan

TOKENIZER = click.option(
    "--tokenizer",
    type=options.FILLED,
    metavar="KIND[:SIZE]|RUN|hf:PATH",
    help="Tokenizer to train: characters, words or byte-pairs:SIZE; or one of a run or Hugging "
    "Face folder.",
)
MIX = click.option(
    "--mix",
    metavar="NAME=WEIGHT,…",
    help="Weights of packed corpora, by the names of their folders: web=0.7,code=0.3.",
)
TRAINING = options.together(
    options.TRUST_CODE,
    options.OUT,
    options.RECIPE,
    click.option("--resume", is_flag=True, help="Resume the run in --out."),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Build and check everything, don't train; train text tokenizes and times a few steps.",
    ),
    options.JSON,
    options.SEED,
    options.EXECUTION,
    click.option(
        "--parallel",
        type=options.Choice(["ddp", "fsdp"]),
        default="ddp",
        help="How processes of torchrun hold the model: each the whole, or a part of each weight.",
    ),
)


@click.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option("--questions", type=options.PATH, help="File of questions and answers to mix in.")
@click.option("--no-index", is_flag=True, help="Don't index the text for `regard ask`.")
@TOKENIZER
@MIX
@TRAINING
def pretrain(
    corpus: tuple[str, ...],
    questions: Path | None,
    no_index: bool,
    tokenizer: str | None,
    mix: str | None,
    out: Path,
    recipe: str | None,
    seed: int | None,
    trust_code: bool,
    **flags: Any,
) -> None:
    """Train a model on the text files CORPUS, or on corpora packed by `regard pack`.

    Settings follow as section.field=value, such as model.n_layers=6.
    """
    from regard.corpus.index import NO_INDEX, RUN_INDEX, can_index
    from regard.packing import choose_tokenizer
    from regard.training.plan import plan_training
    from regard.training.sources.choose import choose_text

    execution = _prepare(out, **flags)
    options.trust_named(recipe, trust=trust_code)
    files, settings = _split(corpus, seed)
    if not files:
        raise UserError("there is no file to train on; name one")
    kind, known = ([], None) if tokenizer is None else choose_tokenizer(tokenizer)
    source = choose_text(files, questions or (), index=not no_index, mix=mix)
    settings = [*kind, *settings]
    plan = plan_training(source, recipe, out, settings=settings, tokenizer=known)
    if _execute(plan, execution):
        if plan.data.indexed:
            click.echo(f"Index: {out / RUN_INDEX}")
        elif not no_index and not can_index():
            click.echo(NO_INDEX)


@click.command()
@click.argument("pairs", type=options.PATH)
@click.argument("settings", nargs=-1)
@click.option(
    "--from",
    "parent",
    type=options.FILLED,
    metavar="RUN|hf:PATH",
    required=True,
    help="Pretrained run, or folder of a Hugging Face model.",
)
@TRAINING
def finetune(
    pairs: Path,
    settings: tuple[str, ...],
    parent: str,
    out: Path,
    recipe: str | None,
    seed: int | None,
    trust_code: bool,
    **flags: Any,
) -> None:
    """Train the run --from on the questions of PAIRS, by default with that run's recipe.

    Training settings are those of the recipe named in the run's field finetuning.
    """
    from regard.huggingface.convert.folder import load_start
    from regard.training.plan import plan_training
    from regard.training.sources.questions import QuestionSource

    execution = _prepare(out, **flags)
    options.trust_named(recipe, trust=trust_code)
    loaded = load_start(parent, trust_code=trust_code)
    source, overrides = QuestionSource(pairs, "finetuning"), [*settings, *_seed_setting(seed)]
    _execute(plan_training(source, recipe, out, loaded, settings=overrides), execution)


@click.command()
@click.argument("task")
@click.argument("files", nargs=-1)
@click.option(
    "--from",
    "start",
    type=options.FILLED,
    metavar="RUN|hf:PATH",
    help="Run, or folder of a Hugging Face model, whose weights and tokenizer to begin with.",
)
@click.option(
    "--freeze",
    type=options.Choice(["body", "embeddings"]),
    help="Parameters of --from to freeze.",
)
@click.option(
    "--steps", metavar="+N", help="Continue the finished run --from for N more steps, on its data."
)
@TOKENIZER
@click.option(
    "--documents",
    type=options.DOCUMENT_KINDS,
    help="Documents of a text. Default: detected.",
)
@click.option("--text", metavar="COLUMN", help="Column or field with the text.")
@click.option("--label", metavar="COLUMN", help="Column with the label or answer.")
@click.option("--header/--no-header", default=None, help="Whether the first row names columns.")
@click.option("--skip-bad", is_flag=True, help="Leave out bad rows; of a text, bad files.")
@click.option(
    "--test", type=options.PATH, help="File to score the run on. Default: a held-out tenth."
)
@MIX
@TRAINING
def train(
    task: str,
    files: tuple[str, ...],
    start: str | None,
    freeze: str | None,
    steps: str | None,
    trust_code: bool,
    tokenizer: str | None,
    documents: str | None,
    text: str | None,
    label: str | None,
    header: bool | None,
    skip_bad: bool,
    test: Path | None,
    mix: str | None,
    out: Path,
    recipe: str | None,
    seed: int | None,
    **flags: Any,
) -> None:
    """Train a model for a TASK of `regard tasks`, on a file or on generated examples.

    TASK questions: FILES is one file of questions and answers. TASK text: FILES are files and
    folders of text, Markdown, JSONL or Parquet, or corpora packed by `regard pack`; each
    checkpoint logs a sample. Other tasks of texts: FILES is a table or has a line for each
    example; a tenth of the rows is held out for `regard evaluate`. Settings follow as
    section.field=value.
    """
    from regard.huggingface.convert.folder import load_start
    from regard.packing import choose_tokenizer
    from regard.training.plan import plan_more_steps, plan_training
    from regard.training.sources.choose import choose_source

    execution = _prepare(out, **flags)
    options.trust_named(recipe, trust=trust_code)
    more_steps = _more_steps(steps, start, recipe, tokenizer)
    paths, settings = _split(files, seed)
    kind, known = ([], None) if tokenizer is None else choose_tokenizer(tokenizer)
    settings += kind + _data_settings(task, documents, text, label, header, skip_bad, bool(paths))
    settings += [f"training.freeze={freeze}"] if freeze else []
    if task != "text" and len(paths) > 1:
        raise UserError(f"train {task}: takes one file, not {len(paths)}")
    data = paths if task == "text" else paths[0] if paths else None
    source = choose_source(task, data or None, test=test, mix=mix)
    begun = None if start is None else load_start(start, trust_code=trust_code)
    if begun and more_steps:
        plan = plan_more_steps(source, out, begun, more_steps, settings)
    else:
        plan = plan_training(source, recipe, out, begun, settings=settings, tokenizer=known)
    _execute(plan, execution, timed=task == "text")


def _more_steps(
    steps: str | None, start: str | None, recipe: str | None, tokenizer: str | None
) -> int | None:
    """Return the N of `--steps +N`.

    Raises:
        UserError: it isn't +N, or is given with options of a new training.
    """
    if steps is None:
        return None
    if not re.fullmatch(r"\+0*[1-9]\d{0,8}", steps):
        raise UserError(
            f"--steps {steps}: expected a number of more steps, as in --steps +2000; for the steps "
            "of a new training, set training.steps=2000"
        )
    if start is None:
        raise UserError(f"--steps {steps}: continues a finished run; name it by --from RUN")
    for option, value in (("--recipe", recipe), ("--tokenizer", tokenizer)):
        if value is not None:
            raise UserError(f"{option}: --steps continues {start} as it was; leave {option} out")
    return int(steps)


def _data_settings(
    task: str,
    documents: str | None,
    text: str | None,
    label: str | None,
    header: bool | None,
    skip_bad: bool,
    has_file: bool,
) -> list[str]:
    """Return the recipe settings for options of texts and tables.

    Raises:
        UserError: an option is for another task, or there is no file to read.
    """
    from regard.tasks.registry import TEXT_TASKS

    chosen: dict[str, tuple[object, str, tuple[str, ...]]] = {
        "--documents": (documents, "documents", ("text",)),
        "--text": (text, "table.text", ("text", *TEXT_TASKS)),
        "--label": (label, "table.label", TEXT_TASKS),
        "--header": (header, "table.header", TEXT_TASKS),
        "--skip-bad": (skip_bad or None, "table.skip_bad", ("text", *TEXT_TASKS)),
    }
    settings = []
    for option, (value, field, tasks) in chosen.items():
        if value is not None:
            if task not in tasks:
                names = ", ".join(tasks)
                raise UserError(
                    f"train {task}: {option} is for other tasks ({names}); leave it out"
                )
            if not has_file:
                raise UserError(f"train {task}: {option} is for a file; name one, or leave it out")
            settings.append(f"data.{field}={json.dumps(value, ensure_ascii=False)}")
    return settings


def _split(arguments: tuple[str, ...], seed: int | None) -> tuple[list[Path], list[str]]:
    """Split files from settings, `section.field=value`, unless that is a file; add the seed."""
    from regard.files import exists

    if "" in arguments:
        raise UserError("a file's name is empty; name a file, or leave it out")
    settings = [a for a in arguments if "=" in a and not exists(a)]
    files = [Path(a) for a in arguments if a not in settings]
    return files, [*settings, *_seed_setting(seed)]


def _seed_setting(seed: int | None) -> list[str]:
    return [] if seed is None else [f"seed={seed}"]


class _Execution(NamedTuple):
    """How a plan is trained, or only shown."""

    options: "ExecutionOptions"
    resume: bool
    dry_run: bool
    json_file: Path | None


def _prepare(
    out: Path, *, resume: bool, dry_run: bool, json_file: Path | None, **execution: Any
) -> _Execution:
    """Return how to train, before the data are read.

    Raises:
        UserError: the folder can't hold the run, or the device isn't available.
    """
    from regard.training.loop import ExecutionOptions
    from regard.training.plan import require_out
    from regard.training.processes import is_restart, join_processes

    join_processes()  # chooses the GPU of this process
    chosen = ExecutionOptions.choose(**execution)
    if not dry_run:
        require_out(out, resume=resume or is_restart())
    return _Execution(chosen, resume, dry_run, json_file)


def _execute(plan: "Plan", execution: _Execution, *, timed: bool = False) -> bool:
    """Print the plan and, unless it is a dry run, train; return whether it trained.

    A dry run that is `timed` takes a few steps.
    """
    from regard.training.processes import join_processes

    chosen, resume, dry_run, json_file = execution
    if not join_processes().is_first:
        if not dry_run:
            plan.execute(chosen, resume=resume)
        return False
    facts = plan.describe()
    if dry_run:
        facts |= plan.loss_before()
    print_facts(facts)
    if dry_run:
        if timed:
            needs = plan.estimate(chosen.environment)
            print_facts(needs)
            facts |= needs
        options.write_json(json_file, facts)
        return False
    progress = plan.execute(chosen, resume=resume)
    done = {"steps_done": progress.step, "tokens": progress.tokens, "seconds": progress.seconds}
    best = {"validation_loss": progress.best_loss, "best_step": progress.best_step}
    options.write_json(json_file, facts | done | best)
    if progress.best_loss is not None:
        click.echo(f"validation loss: {progress.best_loss:.4f}")
        click.echo(f"weights: of step {progress.best_step:,}, with the lowest validation loss")
    else:
        click.echo(f"weights: of the last step, {progress.step:,}; no validation loss is measured")
    if plan.run.recipe.task is not None:
        click.echo(f"To score it: regard evaluate {quote(str(plan.run.path))}")
    click.echo(f"Run: {plan.run.path}")
    return True


def print_facts(facts: dict[str, Any]) -> None:
    """Print a line for each fact."""
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        shown = f"{value:.4f}" if isinstance(value, float) else shown
        click.echo(f"{name.replace('_', ' ')}: {shown}")
