"""regard pretrain, finetune and train"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe
    from regard.text.tokenizer import Tokenizer
    from regard.training.stages import Plan

TOKENIZER = click.option(
    "--tokenizer", type=click.Path(path_type=Path), help="Take the tokenizer of this run."
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Build everything, train nothing.")


def _training_flags(command: Any) -> Any:
    for flag in (
        options.machine_options(precision="auto"),
        options.COMPILE,
        options.SEED,
        options.JSON,
        DRY_RUN,
        options.RESUME,
        options.RECIPE,
        options.OUT,
    ):
        command = flag(command)
    return command


@click.command()
@click.argument("corpus", nargs=-1, required=True)
@click.option(
    "--questions", type=click.Path(path_type=Path), help="Questions with answers to mix in."
)
@TOKENIZER
@_training_flags
def pretrain(
    corpus: tuple[str, ...],
    questions: Path | None,
    tokenizer: Path | None,
    out: Path,
    recipe: str | None,
    seed: int | None,
    **flags: Any,
) -> None:
    """Train a model on the text files CORPUS; settings are given as section.field=value."""
    from regard.runs.run import load_tokenizer
    from regard.tasks.questions import read_answered
    from regard.text.corpus import read_corpus
    from regard.training.stages import plan_pretraining

    files, overrides = options.split_overrides(corpus)
    chosen = options.choose_recipe(recipe, "plain", overrides, seed)
    data = chosen.data
    documents = read_corpus(
        files, whole_files=data.documents == "files", blank_lines=data.blank_lines
    )
    plan = plan_pretraining(
        documents,
        out,
        chosen,
        questions=read_answered(questions) if questions else (),
        tokenizer=load_tokenizer(tokenizer) if tokenizer else None,
    )
    _execute(plan, **flags)


@click.command()
@click.argument("pairs", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--from", "parent", type=click.Path(path_type=Path), required=True, help="The run.")
@_training_flags
def finetune(
    pairs: Path,
    overrides: tuple[str, ...],
    parent: Path,
    out: Path,
    recipe: str | None,
    seed: int | None,
    **flags: Any,
) -> None:
    """Train the run --from on the questions of PAIRS; the recipe is that run's own."""
    from regard.runs.run import Run
    from regard.tasks.questions import read_answered
    from regard.training.stages import plan_finetuning

    run = Run.load(parent)
    chosen = options.choose_recipe(recipe, str(parent / "config.toml"), overrides, seed)
    _execute(plan_finetuning(run, read_answered(pairs), out, chosen), **flags)


@click.command()
@click.argument("task")
@click.argument("files", nargs=-1)
@TOKENIZER
@_training_flags
def train(
    task: str,
    files: tuple[str, ...],
    tokenizer: Path | None,
    out: Path,
    recipe: str | None,
    seed: int | None,
    **flags: Any,
) -> None:
    """Train a model from scratch for a TASK of `regard tasks`, on FILES or on its own examples.

    TASK questions: FILES is one file of questions and answers. TASK text: FILES are any texts; a
    sample is printed at the end. Settings are given as section.field=value.
    """
    from regard.runs.recipes import TASKS
    from regard.runs.run import load_tokenizer

    default = {"questions": "plain", "text": "text"}.get(task, task)
    if default == task and task not in {"text", *TASKS}:
        known_tasks = ", ".join(["questions", "text", *TASKS])
        raise UserError(f"train {task}: there is no such task; there are: {known_tasks}")
    paths, overrides = options.split_optional(files)
    chosen = options.choose_recipe(recipe, default, overrides, seed)
    if task in TASKS:
        _check_task(task, chosen)
    if task == "text" and tokenizer:
        raise UserError("--tokenizer: goes with all tasks but text")
    if task in {"questions", "text"} and not paths:
        raise UserError(f"train {task}: there is no file to train on; name one")
    if task != "text" and len(paths) > 1:
        raise UserError(f"train {task}: takes one file, not {len(paths)}")
    known = load_tokenizer(tokenizer) if tokenizer else None
    plan = _plan(task, paths, out, chosen, known)
    if _execute(plan, **flags) and task == "text":
        _print_sample(plan)


def _plan(
    task: str, paths: "list[Path]", out: Path, recipe: "Recipe", tokenizer: "Tokenizer | None"
) -> "Plan":
    from regard.tasks.questions import read_answered, require_answers
    from regard.text.corpus import read_corpus
    from regard.training.stages import plan_questions, plan_text
    from regard.training.task_stages import plan_task

    if task == "text":
        return plan_text(read_corpus(paths, whole_files=True), out, recipe)
    if task == "questions":
        return plan_questions(read_answered(paths[0]), out, recipe, tokenizer=tokenizer)
    examples = None
    if paths:
        examples = require_answers(options.read_examples(paths[0], recipe.task))
    return plan_task(out, recipe, examples, tokenizer=tokenizer)


def _check_task(task: str, recipe: "Recipe") -> None:
    """Refuse a recipe of another task.

    Raises:
        UserError: names both.
    """
    kind = recipe.task and recipe.task.__struct_config__.tag
    if kind != task:
        found = f"task.kind={kind}" if kind else "no task"
        raise UserError(
            f"train {task}: the recipe has {found}; set task.kind={task}, or leave --recipe out"
        )


def _execute(
    plan: "Plan",
    *,
    resume: bool,
    dry_run: bool,
    json_file: Path | None,
    compile_: bool,
    device: str,
    precision: str,
    threads: int | None,
) -> bool:
    """Train, or with --dry-run only describe. Whether anything was trained."""
    options.check_places(json_file)
    chosen = options.settings(device, precision, threads, compile_)
    facts = plan.describe()
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        click.echo(f"{name.replace('_', ' ')}: {shown}")
    if dry_run:
        options.write_json(json_file, facts)
        return False
    progress = plan.execute(chosen, resume=resume)
    done = {"steps_done": progress.step, "tokens": progress.tokens, "seconds": progress.seconds}
    best = {"validation_loss": progress.best_loss, "best_step": progress.best_step}
    options.write_json(json_file, facts | done | best)
    if progress.best_loss is not None:
        click.echo(f"validation loss: {progress.best_loss:.4f} (step {progress.best_step})")
    click.echo(f"Run: {plan.run.path}")
    return True


def _print_sample(plan: "Plan") -> None:
    """A sample that begins with a few tokens of the text itself."""
    from regard.decoding import Sampling, generate

    run, (ids, *_) = plan.run, plan.stream.batch(0).inputs
    start = ids[0, : run.recipe.model.block // 8].tolist()
    (sample,) = generate(
        run.language_model,
        [start],
        max_new_tokens=run.recipe.model.block - len(start),
        sampling=Sampling(temperature=0.8, seed=run.recipe.seed),
        device=next(run.model.parameters()).device,
    )
    click.echo(f"Sample:\n{run.tokenizer.decode([*start, *sample.ids])}")
