"""regard convert"""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import NormalizerError, UserError

if TYPE_CHECKING:
    from regard.evaluation.perplexity import TextScore
    from regard.runs.run import Run
    from regard.training.loop import ExecutionOptions


@click.command()
@options.RUN
@click.argument("settings", nargs=-1)
@options.NEW
@click.option("--text", type=options.PATH, help="Text to report the perplexity of.")
@click.option(
    "--steps",
    type=options.COUNT,
    help="Steps to train the new run, on the tokens of a run of `train text`.",
)
@options.EXECUTION
def convert(
    run: Path,
    settings: tuple[str, ...],
    out: Path,
    text: Path | None,
    steps: int | None,
    trust_code: bool,
    **execution: Any,
) -> None:
    """Save the weights of RUN with other SETTINGS of the model as a new run.

    SETTINGS such as model.attention.kind=elu change the mechanism, the positions, or other fields
    that don't affect weight shapes. Tensors that only the new model has are initialized from the
    seed. Prints the perplexity before, after, and after --steps of training, on a text or on the
    held-out tokens of RUN.
    """
    from regard.config import override
    from regard.runs import start
    from regard.runs.run import Run
    from regard.training.loop import ExecutionOptions
    from regard.training.sources.base import require_continuing
    from regard.training.sources.text import stored_text

    parent = Run.load(run, trust_code=trust_code)
    if steps is not None:
        stored_text(parent)
    if steps is not None or text is not None:
        require_continuing(override(parent.recipe, settings))
    chosen = ExecutionOptions.choose(**execution)
    before = _score_before(parent, text)
    made = start.convert(parent, out, settings)
    for name, tensors in (("new", "new_tensors"), ("dropped", "dropped_tensors")):
        if tensors in made.origin:
            click.echo(f"{name}: {start.shown_names(made.origin[tensors])}")
    if before:
        click.echo(f"before: {before.lines()[0]}")
        try:
            after = _score(made, parent, text)
        except NormalizerError as error:  # training may fix it
            click.echo(f"after: no perplexity: {error}")
        else:
            click.echo(f"after: {after.lines()[0] if after else 'no perplexity'}")
    else:
        click.echo(f"To score it: regard evaluate {quote(str(out))} FILE")
    if steps is not None:
        _train(made, steps, chosen)
        if score := _score(made, parent, text):
            click.echo(f"after {steps} steps: {score.lines()[0]}")
    click.echo(f"To train it: regard train TASK FILE --from {quote(str(out))} --out NEW")
    click.echo(f"Run: {out}")


def _train(made: "Run", steps: int, options: "ExecutionOptions") -> None:
    """Train a converted run; this command doesn't resume an interrupted training."""
    from regard.training.loop import InterruptedTraining
    from regard.training.plan import plan_converted

    try:
        plan_converted(made, steps).execute(options, resume=True)
    except InterruptedTraining:
        raise InterruptedTraining(
            f"stopped and saved in {made.path}. To train it: regard train text FILE --from "
            f"{quote(str(made.path))} --out NEW"
        ) from None


def _score_before(run: "Run", text: Path | None) -> "TextScore | None":
    """Score the run to convert; None if there is no text, or its own can't be scored any more.

    Raises:
        UserError: a text is given, and can't be scored.
    """
    try:
        return _score(run, run, text)
    except UserError as error:
        if text is not None:
            raise
        click.echo(f"before: no perplexity: {error}")
        return None


def _score(run: "Run", parent: "Run", text: Path | None) -> "TextScore | None":
    """Score a run on a text, or on its parent's held-out tokens; None if that isn't possible.

    Raises:
        UserError: a text is given, and the run doesn't continue texts; or it can't be read.
    """
    from regard.evaluation.perplexity import held_out_perplexity, read_texts, text_perplexity
    from regard.models.builders import LanguageModel

    if text is not None:
        if not isinstance(run.model, LanguageModel):
            raise UserError(f"--text: {run.path} has no perplexity; leave it out")
        return text_perplexity(run, read_texts(parent, text), run.environment())
    if not isinstance(run.model, LanguageModel):
        return None
    return held_out_perplexity(run, run.environment(), tokens=parent.path / "tokens")
