"""Which birthplaces a model recalls, by how often training reads the right one after the name.

    REGARD_BIRTHPLACES=… python benchmarks/recall.py RUN… [--out birthplaces-recall.json]

RUNs, of several seeds, are those of `regard birthplaces`. A cloze of the right phrase is read each
time that an epoch has it; the number of epochs is that of all clozes.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from regard.errors import RegardError, UserError
from regard.evaluation.answers import answer
from regard.experiments.birthplaces import Data
from regard.files import write_file
from regard.runs.run import Run, load
from regard.text.clozes import WORDS_BEFORE, clozes
from regard.training.sources.documents import repetitions
from regard.uncertainty.signals import quick_signals

BOUNDS = (1, 10, 40)
"""Least number of readings in each group but the first, in which nothing is read."""


def readings(run: Run, data: Data) -> Float[np.ndarray, " questions"]:
    """Return how often training reads a cloze with the right answer to each question."""
    objective, training = run.recipe.objective, run.recipe.training
    found = [cloze for document in data.corpus for cloze in clozes(document.text, WORDS_BEFORE)]
    times = repetitions(objective.cloze_relevance, found, data.qa_train)
    read = (training.steps or 0) * objective.clozes * (objective.question_batch or training.batch)
    counts: Counter[tuple[str, str]] = Counter()
    for cloze, n in zip(found, times, strict=True):
        counts[cloze.title, cloze.answer] += n
    asked = zip(data.names, data.text_only, strict=True)
    return np.array([counts[name, str(q.answer)] for name, q in asked]) * read / sum(times)


def by_readings(
    read: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]
) -> dict[str, tuple[int, int]]:
    """Return the numbers of right answers and of questions in each group."""
    group = np.searchsorted(BOUNDS, read, side="right")
    names = ["never", *(f"{low} to {high}" for low, high in pairwise(BOUNDS))]
    names.append(f"{BOUNDS[-1]} or more")
    return {
        name: (int(right[group == i].sum()), int((group == i).sum()))
        for i, name in enumerate(names)
    }


def measured(path: Path) -> dict[str, tuple[int, int]]:
    """Ask a run the questions of the test."""
    run = load(path)
    if not run.recipe.objective.clozes:
        raise UserError(f"{path}: is not trained on clozes; give runs of regard birthplaces")
    data = Data.read(Path(os.environ["REGARD_BIRTHPLACES"]), run.recipe)
    answers = answer(run, data.text_only, run.environment(), signals=quick_signals())
    return by_readings(readings(run, data), np.array([one.correct for one in answers]))


def table(found: Sequence[dict[str, tuple[int, int]]]) -> str:
    """Return the share of right answers in each group, of all runs, in Markdown."""
    lines = ["| readings | questions | right, by run |", "|---|---|---|"]
    for name, (_, n) in found[0].items():
        shares = ", ".join(f"{one[name][0] / n:.1%}" if n else "–" for one in found)
        lines.append(f"| {name} | {n} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/figures/birthplaces-recall.json"))
    given = parser.parse_args()
    try:
        found = [measured(path) for path in given.runs]
    except RegardError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    write_file(given.out, (json.dumps(found, indent=1) + "\n").encode())
    print(table(found))


if __name__ == "__main__":
    main()
