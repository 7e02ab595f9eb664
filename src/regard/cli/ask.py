"""regard ask and regard calibrate"""

import json
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.corpus.evidence import Evidence, Passage
    from regard.environment import Precision
    from regard.evaluation.answers import Answer
    from regard.tasks.examples import Example
    from regard.uncertainty.calibration import Calibration

SHOWN = 3
"""Largest number of sentences of evidence below an answer."""


class Share(click.ParamType[float]):
    """A share between 0 and 1, or in percent."""

    name = "share"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            self.fail(
                f"{value}: expected a percentage between 0% and 100%, such as 20%", param, ctx
            )
        return share


INDEX = click.option(
    "--index", type=options.PATH, help="Index of the training text. [RUN/corpus.index, if any]"
)


@click.command()
@options.RUN
@click.argument("questions", nargs=-1, required=True)
@INDEX
@options.HISTORY
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per question.")
@options.environment_options(precision="float32")
def ask(
    run: Path,
    questions: tuple[str, ...],
    index: Path | None,
    history: Path | None,
    as_json: bool,
    precision: "Precision",
    **loading: Any,
) -> None:
    """Answer QUESTIONS with confidence and evidence; - reads them from the lines of stdin.

    A tab and the expected answer may follow a question. After `regard calibrate`, doubtful
    questions without --history are answered by "I don't know."
    """
    import msgspec

    from regard.corpus.index import RUN_INDEX
    from regard.evaluation.answers import answer
    from regard.runs.run import load
    from regard.runs.training_text import open_run_index
    from regard.tasks.examples import read_history
    from regard.uncertainty.calibration import load_calibration, require_answering

    examples = [_example(text, i) for i, text in enumerate(_lines(questions), 1)]
    if not examples:
        raise UserError("ask: there is no question; name one, or - and lines on stdin")
    loaded = load(run, **loading)
    require_answering(loaded)
    if history is not None:
        loaded = loaded.with_history(read_history(history))
    searched = open_run_index(loaded, index)
    environment = loaded.environment(precision)
    # A calibration is of single questions.
    calibration = None if history else load_calibration(run, environment)
    replies = answer(
        loaded,
        examples,
        environment,
        calibration=calibration,
        index=searched,
    )
    for reply in replies:
        if as_json:
            click.echo(json.dumps(msgspec.to_builtins(reply), ensure_ascii=False))
        else:
            click.echo("\n".join(map(_printable, _describe(reply))))
    if searched is None:
        click.echo(
            f"no evidence: {run} has no index of its text; to make one: "
            f"regard index TEXT --out {quote(str(run / RUN_INDEX))}",
            err=True,
        )


def _lines(questions: tuple[str, ...]) -> list[str]:
    from regard.files import split_lines

    if questions != ("-",):
        if empty := [i for i, text in enumerate(questions, 1) if not text.strip()]:
            raise UserError(f"ask: question {empty[0]} is empty; write a question")
        return list(questions)
    return split_lines(sys.stdin.buffer.read().decode("utf-8-sig", "replace"))


def _example(text: str, number: int) -> "Example":
    from regard.tasks.examples import Example

    question, _, gold = text.encode("utf-8", "replace").decode().partition("\t")
    answer = gold.strip() or None
    return Example(text=question.strip(), answer=answer, where=f"question {number}")


def _describe(reply: "Answer") -> list[str]:
    """Return the reply as lines."""
    evidence = reply.evidence
    if reply.best_guess is None:
        return [f"I don't know. ({reply.reason})"]
    if reply.answer is None:
        return [_abstention(reply), *(_contradiction(evidence) if evidence else [])]
    first = f"{reply.answer or '(empty)'} · confidence {reply.confidence:.2f}"
    if evidence is None:
        return [first]
    if not evidence.documents:
        return [f"{first} · {evidence.verdict} (no document names {reply.subject})"]
    lines = [f"{first} · {evidence.verdict}"]
    if n := len(evidence.passages):
        lines.append(f"  {n} sentence{'s' if n > 1 else ''} on {reply.subject} with this answer")
    lines += _sentences(evidence.passages)
    return [*lines, *_contradiction(evidence), *_others(evidence)]


def _abstention(reply: "Answer") -> str:
    why = f"best guess {reply.best_guess or '(empty)'}, confidence {reply.confidence:.2f}"
    if reply.reason is not None:
        why += f"; {reply.reason.partition(';')[0]}"
    if reply.evidence and not reply.evidence.documents:
        why += f"; no document names {reply.subject}"
    elif reply.evidence:
        why += f"; {reply.evidence.verdict}"
    return f"I don't know. ({why})"


def _others(evidence: "Evidence") -> list[str]:
    """Return a line with other answers in the text, unless it states only the given one."""
    if evidence.passages and not evidence.contradiction:
        return []
    stated = evidence.contradiction.answer if evidence.contradiction else None
    said = [f"{name} ({n})" for name, n in evidence.others.items() if name != stated]
    return [f"  other answers: {', '.join(said[:SHOWN])}"] if said else []


def _contradiction(evidence: "Evidence") -> list[str]:
    if evidence.contradiction is None:
        return []
    answer, passages = evidence.contradiction.answer, evidence.contradiction.passages
    times = f"{len(passages)} time{'s' if len(passages) > 1 else ''}"
    return [f"  the text says {answer}, {times}", *_sentences(passages)]


def _sentences(passages: "Sequence[Passage]") -> list[str]:
    """Return the first sentences, with their places and the answer marked."""
    return [
        f"  {one.path}:{one.line} {one.text[: one.start]}*{one.text[one.start : one.end]}*"
        f"{one.text[one.end :]}"
        for one in passages[:SHOWN]
    ]


def _printable(line: str) -> str:
    """Return a line without control characters, which would affect a terminal."""
    return "".join(c if c.isprintable() else " " for c in line)


@click.command()
@options.RUN
@click.argument("questions", type=options.PATH)
@click.option(
    "--max-error", type=Share(), required=True, help="Largest share of wrong answers, such as 20%."
)
@click.option(
    "--confidence",
    "level",
    type=Share(),
    default="95%",
    help="Probability with which the guarantee holds.",
)
@options.PARAPHRASE
@INDEX
@options.SEED_0
@options.environment_options(precision="float32")
def calibrate(
    run: Path,
    questions: Path,
    max_error: float,
    level: float,
    paraphrases: tuple[str, ...],
    index: Path | None,
    seed: int,
    precision: "Precision",
    **loading: Any,
) -> None:
    """Find the confidence below which RUN abstains, on QUESTIONS that it wasn't trained on.

    `regard ask` then abstains from doubtful questions, so that at most the share --max-error of
    its answers is wrong, for questions like these. Writes RUN/calibration.json.
    """
    from regard.runs.run import load
    from regard.runs.training_text import open_run_index, trained_questions, training_files
    from regard.tasks.examples import read_answered
    from regard.uncertainty.calibration import calibrate_run, save_calibration

    examples = read_answered(questions)
    loaded = load(run, **loading)
    calibration = calibrate_run(
        loaded,
        examples,
        loaded.environment(precision),
        max_error=max_error,
        level=level,
        wordings=paraphrases,
        index=open_run_index(loaded, index),
        seed=seed,
    )
    saved = save_calibration(run, calibration)
    for line in _summary(calibration):
        click.echo(line)
    files = training_files(loaded)
    unread = [f"{path} is missing" for path in files if not path.is_file()]
    _, changed = trained_questions(loaded)
    unread += [f"{path} holds other questions than in training" for path in changed]
    for reason in unread if files else ["the files of training questions are not recorded"]:
        click.echo(f"not checked: whether training had these questions; {reason}")
    click.echo(f"Calibration: {saved}")


def _summary(calibration: "Calibration") -> list[str]:
    """Return the result of a calibration as lines."""
    found = calibration.guarantee
    goal = f"at most {found.max_error * 100:.3g}% of its answers wrong"
    sure = f"with probability {found.level * 100:.3g}%"
    if found.threshold is None:
        return [
            f"always abstains: no threshold keeps {goal}, {sure}",
            f"without any error, {found.smallest_sample} answers would do, of the "
            f"{found.questions} that test thresholds (two thirds of the questions)",
        ]
    return [
        f"answers {found.answered} of {found.questions} test questions ({found.coverage:.0%}), "
        f"{found.wrong} of them wrong: {goal}, {sure}",
        f"lowest confidence answered: {found.threshold:.3f}, the probability that this one answer "
        f"is right; the {found.max_error * 100:.3g}% are of all answers together, not of each",
    ]
