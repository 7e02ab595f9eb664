"""regard evaluate"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.runs.machine import Machine
    from regard.tasks.questions import Question


@click.command()
@options.RUN
@click.argument("pairs", type=click.Path(path_type=Path), required=False)
@click.option("--predictions", type=click.Path(path_type=Path), help="Write the answers.")
@click.option("--baseline", help="Score this answer instead; majority: the commonest in PAIRS.")
@click.option(
    "--paraphrase", "paraphrases", multiple=True, help="Another wording, {} for the subject."
)
@click.option("--report", type=click.Path(path_type=Path), help="Page to write [RUN/report.html].")
@options.SEED
@options.JSON
@options.machine_options(precision="float32")
def evaluate(
    run: Path,
    pairs: Path | None,
    predictions: Path | None,
    baseline: str | None,
    paraphrases: tuple[str, ...],
    report: Path | None,
    seed: int | None,
    json_file: Path | None,
    device: str,
    precision: str,
    threads: int | None,
) -> None:
    """Ask RUN the questions of PAIRS, score the answers, write RUN/report.html.

    Questions without answers are predicted and not scored. A .txt file is read as text, and its
    perplexity is told. A run that was trained for a task is scored by that task, on PAIRS or on the
    task's own examples for testing; of casing, a .txt file makes examples.
    """
    from regard.evaluation.evaluate import evaluate as evaluate_run
    from regard.evaluation.evaluate import evaluation_report, save_predictions
    from regard.runs.run import Run
    from regard.tasks.questions import read_questions

    options.check_places(predictions, json_file, report)
    if not baseline and _has_task(run):
        if paraphrases or report or seed is not None:
            raise UserError(
                f"{run}: was trained for a task, which has no paraphrases and no report, and takes "
                "the run's own seed"
            )
        machine = options.choose_machine(device, precision, threads)
        _task(run, pairs, predictions, json_file, machine)
        return
    if pairs is None:
        raise UserError(
            "--baseline: is scored on questions: name a file of them"
            if baseline
            else f"{run}: was trained for no task: name a file of questions, or a text"
        )
    if (pairs.suffix == ".txt" or baseline) and (predictions or paraphrases or report):
        raise UserError(
            "--predictions, --paraphrase and --report: go with answers of the run, not with a "
            "text or a --baseline"
        )
    if pairs.suffix == ".txt" and baseline:
        raise UserError("--baseline: goes with questions, not with a text")
    if pairs.suffix == ".txt":
        _perplexity(run, pairs, json_file, options.choose_machine(device, precision, threads))
        return
    questions = read_questions(pairs)
    if baseline is not None:
        _baseline(questions, baseline, json_file)
        return
    started = time.perf_counter()
    machine = options.choose_machine(device, precision, threads)
    loaded = Run.load(run, device=machine.device)
    result = evaluate_run(loaded, questions, machine, paraphrases=paraphrases, seed=seed or 0)
    if predictions is not None:
        save_predictions([answer.answered for answer in result.answers], predictions)
        click.echo(f"Predictions: {predictions}")
    figures: dict[str, object] = {"questions": len(questions)}
    if result.accuracy:
        figures |= {
            "accuracy": result.accuracy.value,
            "low": result.accuracy.low,
            "high": result.accuracy.high,
            "correct": sum(answer.correct for answer in result.answers),
        }
        click.echo(f"accuracy: {result.accuracy.percent()} of {len(questions)} questions")
    if result.confidence:
        figures["auroc"] = result.confidence.all_aurocs
        for name, area in result.confidence.all_aurocs.items():
            click.echo(f"AUROC right against wrong, by {name}: {area:.3f}")
    options.write_json(json_file, figures)
    seconds = time.perf_counter() - started
    page = report or run / "report.html"
    evaluation_report(loaded, result, machine, source=str(pairs), seconds=seconds).save(page)
    click.echo(f"Report: {page}")


def _has_task(run: Path) -> bool:
    """Whether a run was trained for a task of `regard tasks`."""
    from regard.runs.toml import read_recipe

    config = run / "config.toml"
    return config.is_file() and read_recipe(config).task is not None


def _task(
    run: Path,
    pairs: Path | None,
    predictions: Path | None,
    json_file: Path | None,
    machine: "Machine",
) -> None:
    """Score a run by its task."""
    from regard.evaluation.evaluate import save_predictions
    from regard.evaluation.tasks import score_task
    from regard.runs.run import Run

    loaded = Run.load(run, device=machine.device)
    examples = options.read_examples(pairs, loaded.recipe.task) if pairs else None
    found = score_task(loaded, machine, examples)
    if predictions is not None:
        if not found.predictions:
            raise UserError(f"--predictions: {run} is scored without answers; leave it out")
        save_predictions([prediction.text for prediction in found.predictions], predictions)
        click.echo(f"Predictions: {predictions}")
    if found.cut:
        click.echo(f"{found.cut} texts don't fit the model, and lost their ends")
    if not found.scores:
        click.echo(f"{len(found.predictions)} answers; --predictions FILE writes them")
        return
    rows = {"this run": found.scores, **found.baselines}
    for name, scores in rows.items():
        listed = ", ".join(f"{score} {interval}" for score, interval in scores.items())
        click.echo(f"{name}: {listed}")
    options.write_json(
        json_file, {n: {s: asdict(i) for s, i in scores.items()} for n, scores in rows.items()}
    )


def _baseline(questions: "Sequence[Question]", baseline: str, json_file: Path | None) -> None:
    """Score a constant answer."""
    from regard.evaluation.evaluate import baseline_accuracy
    from regard.tasks.questions import majority_answer

    guess = majority_answer(questions) if baseline == "majority" else baseline
    accuracy = baseline_accuracy(questions, guess)
    n, correct = len(questions), round(accuracy.value * len(questions))
    figures = {"baseline": guess, "accuracy": accuracy.value, "correct": correct, "questions": n}
    options.write_json(json_file, figures)
    click.echo(f"always {guess}: {correct}/{n} = {accuracy.percent()}")


def _perplexity(run: Path, text: Path, json_file: Path | None, machine: "Machine") -> None:
    """How well a run predicts a text."""
    from regard.evaluation.text import text_perplexity
    from regard.runs.run import Run
    from regard.text.corpus import read_corpus

    loaded = Run.load(run, device=machine.device)
    whole_files = loaded.recipe.data.documents == "files"
    documents = read_corpus([text], whole_files=whole_files)
    found = text_perplexity(loaded, documents, machine)
    options.write_json(
        json_file,
        {
            "perplexity": found.perplexity.value,
            "low": found.perplexity.low,
            "high": found.perplexity.high,
            "bits_per_character": found.bits_per_character,
            "tokens": found.tokens,
        },
    )
    low, high = found.perplexity.low, found.perplexity.high
    click.echo(f"perplexity: {found.perplexity.value:.3f} [{low:.3f}, {high:.3f}] a token")
    click.echo(f"bits per character: {found.bits_per_character:.3f}")
