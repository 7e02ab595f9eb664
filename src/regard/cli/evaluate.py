"""regard evaluate"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.edits.edit import Edits
    from regard.environment import Precision
    from regard.evaluation.evaluate import Evaluation
    from regard.evaluation.perplexity import TextScore
    from regard.evaluation.tasks import TaskScore
    from regard.runs.run import Run


@click.command()
@options.RUN
@click.argument("pairs", type=options.PATH, required=False)
@click.option("--predictions", type=options.OutputFile(), help="File to write answers to.")
@click.option(
    "--baseline", help="Constant answer to score instead of the run; majority: the most common one."
)
@options.PARAPHRASE
@click.option("--report", type=options.OutputFile(), help="Page to write [RUN/report.html].")
@click.option("--skip-bad", is_flag=True, help="Leave out bad rows of PAIRS.")
@options.EDIT
@options.SEED
@options.JSON
@options.environment_options(precision="float32")
def evaluate(
    run: Path,
    pairs: Path | None,
    predictions: Path | None,
    baseline: str | None,
    paraphrases: tuple[str, ...],
    report: Path | None,
    skip_bad: bool,
    edit: Path | None,
    seed: int | None,
    json_file: Path | None,
    precision: "Precision",
    **loading: Any,
) -> None:
    """Score RUN on PAIRS, a file of questions and answers, and write RUN/report.html.

    Questions without answers are answered, not scored. For a text, the score is perplexity; a run
    of `train text` or of packed corpora is scored on its held-out tokens, on other text, or on the
    held-out documents of another packed corpus. A run trained for a task is scored by that task: on
    PAIRS, on the rows held out of its file, or on the task's own test examples. Predictions in a
    .jsonl or .csv file have confidences. Questions and rows of the training are counted, if known.

    After `regard calibrate`, the run abstains from doubtful questions. With a corpus index, each
    answer gets a verdict from the training text. With --edit, the edited model is scored without
    calibration and report.
    """
    _check_together(baseline, predictions, paraphrases, report, edit, skip_bad, seed)
    if baseline is not None:
        _baseline(pairs, baseline, json_file)
        return
    from regard.edits.edit import load_edit
    from regard.evaluation.evaluate import evaluate as score_run
    from regard.models.builders import Classifier
    from regard.runs.run import load

    edits = load_edit(edit) if edit else None
    started = time.perf_counter()
    loaded = load(run, **loading)
    _check(loaded, pairs, predictions, paraphrases, report, skip_bad, seed)
    result: Evaluation | TaskScore | TextScore
    if isinstance(loaded.model, Classifier) and loaded.recipe.task is not None:
        result = _evaluate_classifier(
            loaded, pairs, predictions, report, precision, skip_bad, edits
        )
    else:
        result = score_run(
            loaded,
            pairs,
            paraphrases=paraphrases,
            seed=seed or 0,
            skip_bad=skip_bad,
            precision=precision,
            edit=edits,
        )
        _save_predictions(result, run, predictions)
        shown = [f"Edit: {edit} ({edits.fingerprint})"] if edits else []
        click.echo("\n".join([*result.lines(), *shown]))
        if edits is None:
            _write_report(loaded, result, precision, pairs, report or run / "report.html", started)
    _write_figures(result, json_file)  # last: there may be none


def _write_figures(result: "Evaluation | TaskScore | TextScore", path: Path | None) -> None:
    if path is None:
        return
    figures = result.figures()
    if not figures:
        raise UserError("--json: needs rows with answers, which are scored; leave it out")
    options.write_json(path, figures)


def _write_report(
    run: "Run",
    result: "Evaluation | TaskScore | TextScore",
    precision: "Precision",
    pairs: Path | None,
    page: Path,
    started: float,
) -> None:
    """Write the report of an evaluation on questions; other scores have none."""
    from regard.evaluation.evaluate import Evaluation

    if not isinstance(result, Evaluation):
        return
    seconds = time.perf_counter() - started
    from regard.evaluation.report import evaluation_report

    environment = run.environment(precision)
    made = evaluation_report(run, result, environment, source=str(pairs), seconds=seconds)
    made.save(page)
    click.echo(f"Report: {page}")


def _save_predictions(
    result: "Evaluation | TaskScore | TextScore", run: Path, predictions: Path | None
) -> None:
    """Write the answers, if a file is given for them."""
    from regard.evaluation.evaluate import Evaluation, save_answers, save_rows
    from regard.evaluation.tasks import TaskScore

    if predictions is None:
        return
    if not result.answered:
        raise UserError(f"--predictions: {run} is scored without answers; leave it out")
    if isinstance(result, Evaluation):
        save_answers(result.answers, predictions)
    elif isinstance(result, TaskScore):
        rows = [{"predicted": p.text, "confidence": p.probability} for p in result.predictions]
        save_rows(rows, predictions)
    click.echo(f"Predictions: {predictions}")


def _check_together(
    baseline: str | None,
    predictions: Path | None,
    paraphrases: Sequence[str],
    report: Path | None,
    edit: Path | None,
    skip_bad: bool,
    seed: int | None,
) -> None:
    """Refuse options that exclude one another, before the run is loaded.

    Raises:
        UserError: names the options.
    """
    if report and edit:
        raise UserError("--report: isn't available for edits; leave it or --edit out")
    others = predictions, paraphrases, report, edit, skip_bad, seed is not None
    if baseline is not None and any(others):
        raise UserError(
            "--predictions, --paraphrase, --report, --edit, --skip-bad, --seed: not with --baseline"
        )


def _check(
    run: "Run",
    pairs: Path | None,
    predictions: Path | None,
    paraphrases: Sequence[str],
    report: Path | None,
    skip_bad: bool,
    seed: int | None,
) -> None:
    """Refuse options that this evaluation can't use.

    Raises:
        UserError: such an option is given; the message names it.
    """
    from regard.evaluation.evaluate import is_text
    from regard.models.builders import Classifier
    from regard.tasks.split import TextTaskConfig

    if skip_bad and (pairs is None or not isinstance(run.recipe.task, TextTaskConfig)):
        raise UserError("--skip-bad: is for a file of rows and a run of such a task; leave it out")
    if run.recipe.task is not None:
        unused = {
            "--paraphrase": paraphrases,
            "--seed": seed is not None,
            "--report": report and not isinstance(run.model, Classifier),
        }
        for option in (name for name, given in unused.items() if given):
            raise UserError(f"{option}: has no use for {run.path}, a run of a task; leave it out")
    elif (pairs is None or is_text(run, pairs)) and (
        predictions or paraphrases or report or seed is not None
    ):
        raise UserError(
            "--predictions, --paraphrase, --report and --seed: need questions, not a text"
        )


def _evaluate_classifier(
    run: "Run",
    pairs: Path | None,
    predictions: Path | None,
    report: Path | None,
    precision: "Precision",
    skip_bad: bool,
    edits: "Edits | None",
) -> "TaskScore":
    """Score labels, and write the predictions with confidences and the report."""
    from regard.evaluation.evaluate import evaluate as score_run
    from regard.evaluation.label_report import classification_report, save_labels
    from regard.evaluation.tasks import TaskScore, scored_examples

    examples = scored_examples(run, pairs, skip_bad=skip_bad)
    score = score_run(run, examples if pairs else None, precision=precision, edit=edits)
    assert isinstance(score, TaskScore)
    if report is not None and not score.scores:
        raise UserError("--report: needs rows with labels; leave it out")
    if predictions is not None:
        save_labels(examples, score.predictions, predictions)
        click.echo(f"Predictions: {predictions}")
    click.echo("\n".join(score.lines()))
    if report is not None:
        classification_report(run, examples, score.predictions).save(report)
        click.echo(f"Report: {report}")
    return score


def _baseline(pairs: Path | None, baseline: str, json_file: Path | None) -> None:
    """Score a constant answer."""
    from regard.evaluation.evaluate import baseline_accuracy
    from regard.tasks.examples import majority_answer, read_questions
    from regard.text.files import RECORDS, SUFFIXES, content_suffix

    if pairs is None or content_suffix(pairs) in SUFFIXES - RECORDS:
        raise UserError("--baseline: needs PAIRS, a file of tab-separated questions and answers")
    questions = read_questions(pairs)
    guess = majority_answer(questions) if baseline == "majority" else baseline
    accuracy = baseline_accuracy(questions, guess)
    n, correct = len(questions), round(accuracy.value * len(questions))
    figures = {"baseline": guess, "accuracy": accuracy.value, "correct": correct, "questions": n}
    options.write_json(json_file, figures)
    click.echo(f"always {guess}: {correct}/{n} = {accuracy.percent()}")
