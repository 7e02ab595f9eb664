"""Recall of the course's recipe after 10, 30, 100, 300 and 650 epochs, by body.

Pretrains each body on the text to the first epoch, continues the same run to the next, and so on.
The model of each epoch is finetuned on the training questions and evaluated on the 500 of the test.
Nothing is chosen by these figures. Repeated, the command resumes where it was interrupted; stored
scores are kept.

    REGARD_BIRTHPLACES=… python benchmarks/course_epochs.py [--body rotary …] [--epochs 10 30 …]
                                     [--seed 0] [--runs runs/course-epochs] [--out docs/figures]

Some five to seven hours per body on a free core with bfloat16. Prints a table and writes
course-epochs.json.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.errors import RegardError, UserError
from regard.evaluation.evaluate import evaluate_questions, save_predictions
from regard.experiments.birthplaces import Data, train_or_resume
from regard.experiments.stages import Stages, choose_stages
from regard.files import read_table, to_json, write_file
from regard.runs.run import Run
from regard.training.checkpoint import Progress
from regard.training.loop import ExecutionOptions, InterruptedTraining
from regard.training.plan import plan_more_steps, plan_training
from regard.training.sources.documents import DocumentSource
from regard.training.sources.questions import QuestionSource

BODIES: dict[str, list[str]] = {
    "transformer": [],
    "rotary": ["model.positions.kind=rotary"],
    "synthesizer": ["model.attention.kind=synthesizer"],
    "perceiver": ["model.kind=perceiver"],
}
"""The settings that choose each body."""
SETTINGS = ["training.checkpoint_every=100"]
"""Settings of all bodies: a kill costs at most 100 steps."""


def pretrained(
    data: Data, stages: Stages, epochs: Sequence[int], folder: Path, options: ExecutionOptions
) -> Iterator[tuple[int, Run, Progress]]:
    """Yield the run at each epoch; each continues a copy of the one before."""
    source, first = DocumentSource(data.corpus, index=False), f"training.epochs={epochs[0]}"
    out = folder / f"epoch-{epochs[0]}"
    plan = plan_training(source, stages.pretraining, out, settings=[first])
    steps = plan.sampler.steps // epochs[0]  # per epoch
    for epoch, following in zip(epochs, [*epochs[1:], None], strict=True):
        yield epoch, plan.run, train_or_resume(plan, options)
        if following:
            out, more = folder / f"epoch-{following}", (following - epoch) * steps
            plan = plan_more_steps(source, out, plan.run, more)


def score(
    run: Run, progress: Progress, data: Data, stages: Stages, options: ExecutionOptions
) -> dict[str, Any]:
    """Finetune and evaluate a pretrained run."""
    questions = QuestionSource(data.qa_train, "finetuning")
    out = run.path.with_name(f"{run.path.name}-finetuned")
    plan = plan_training(questions, stages.finetuning, out, run)
    finetuning = train_or_resume(plan, options)
    found = evaluate_questions(plan.run, data.text_only, options.environment, seed=run.recipe.seed)
    save_predictions([one.answered for one in found.answers], out / "dev.txt")
    share = found.accuracy
    assert share is not None  # these questions have answers
    return {
        "positions": progress.tokens,
        "questions": len(found.answers),
        **{"accuracy": share.value, "low": share.low, "high": share.high},
        "pretraining_seconds": round(progress.seconds, 1),
        "finetuning_seconds": round(finetuning.seconds, 1),
        "machine": options.environment.describe(),
    }


def row(found: dict[str, Any]) -> str:
    """Return a line of the table, in Markdown."""
    accuracy, low, high = (f"{100 * found[end]:.1f}" for end in ("accuracy", "low", "high"))
    minutes = (found["pretraining_seconds"] + found["finetuning_seconds"]) / 60
    cells = [str(found[name]) for name in ("body", "seed", "epoch")]
    cells += [f"{found['positions']:,}", f"{accuracy} % ({low} to {high})", f"{minutes:.1f}"]
    return f"| {' | '.join(cells)} |"


def stored(place: Path) -> list[dict[str, Any]]:
    """Return the scores in a file."""
    return read_table(place)["scores"] if place.exists() else []


def store(place: Path, found: dict[str, Any]) -> None:
    """Add a score to those in a file, which other processes may have written meanwhile."""
    order = list(BODIES)
    scores = [*stored(place), found]
    scores.sort(key=lambda one: (order.index(one["body"]), one["seed"], one["epoch"]))
    write_file(place, to_json({"scores": scores}) + b"\n")


def measure(given: argparse.Namespace) -> None:
    """Score each body at the epochs that aren't stored, and print the table."""
    if "REGARD_BIRTHPLACES" not in os.environ:
        raise UserError("REGARD_BIRTHPLACES: set it to the folder of the real corpus")
    options = ExecutionOptions.choose()
    given.out.mkdir(parents=True, exist_ok=True)
    place = given.out / "course-epochs.json"
    for body in given.body:
        of = {"body": body, "seed": given.seed}
        kept = {one["epoch"] for one in stored(place) if of.items() <= one.items()}
        last = max(set(given.epochs) - kept, default=0)
        epochs = sorted(epoch for epoch in set(given.epochs) if epoch <= last)
        if not epochs:
            continue
        stages = choose_stages("course", [*SETTINGS, *BODIES[body], f"seed={given.seed}"])
        data = Data.read(Path(os.environ["REGARD_BIRTHPLACES"]), stages.pretraining)
        folder = given.runs / f"{body}-{given.seed}"
        for epoch, run, progress in pretrained(data, stages, epochs, folder, options):
            if epoch not in kept:
                store(place, of | {"epoch": epoch} | score(run, progress, data, stages, options))
    print("| body | seed | epoch | positions | accuracy (95 %) | minutes |")
    print("|---|---|---|---|---|---|", *map(row, stored(place)), sep="\n")


def main() -> None:
    """Measure, or say in one line why not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--body", nargs="+", choices=BODIES, default=["transformer", "rotary"])
    parser.add_argument("--epochs", nargs="+", type=int, default=[10, 30, 100, 300, 650])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/course-epochs"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    try:
        measure(given)
    except (InterruptedTraining, KeyboardInterrupt):
        sys.exit(f"stopped and saved in {given.runs}; repeat the command to resume")
    except RegardError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
