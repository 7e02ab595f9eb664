"""What each part of the recipe "modern" contributes, on the real birthplaces.

Trains with half the recipe's steps and one part changed at a time, with a quarter and one part
alone, and shorter and longer, which shows accuracy against time. The training questions about 500
people are held out and asked; the 500 questions of the test are not. Interrupted runs are resumed
when the command is repeated.

    REGARD_BIRTHPLACES=… python benchmarks/birthplaces.py [--only NAME] [--seed 0] [--seed 1]
                                                          [--runs runs/tried] [--out docs/figures]

Some two hours a seed on one core. Prints a table and writes birthplaces-tried.json; results of
other variants and seeds in it are kept.
"""

import itertools
import os
import re
import sys
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from trained import options, store, stored

from regard.environment import ExecutionEnvironment
from regard.errors import RegardError
from regard.experiments.birthplaces import PRETRAINED, Data, birthplaces
from regard.experiments.stages import choose_stages
from regard.training.loop import ExecutionOptions

STEPS = 600
"""Half of the recipe's."""
QUARTER = f"training.steps={STEPS // 2}"
ADAMW = "training.optimizer.kind=adamw"
NO_CLOZES = ["objective.clozes=0", "objective.cloze_relevance=0"]
LATER_QUESTIONS = ["objective.questions=0", "objective.cloze_relevance=0"]
"""Relevance is estimated from the questions, so that it needs them from the first step."""
VARIANTS: dict[str, list[str]] = {
    "half the steps": [],
    "all clozes alike": ["objective.cloze_relevance=0"],
    "AdamW in place of Muon": [ADAMW],
    "no clozes": [*NO_CLOZES, "objective.next_token=0.75"],
    "questions only afterwards": LATER_QUESTIONS,
    "clozes alone": [*LATER_QUESTIONS, ADAMW, QUARTER],
    "Muon alone": [*NO_CLOZES, *LATER_QUESTIONS, QUARTER],
    "questions alone": [*NO_CLOZES, "objective.next_token=0.75", ADAMW, QUARTER],
    "none of these": [*NO_CLOZES, *LATER_QUESTIONS, ADAMW, QUARTER],
    "clozes always with four words": ["objective.cloze_words=[4, 4]"],
    "more of the whole sentences": ["objective.next_token=0.3", "objective.clozes=0.45"],
    "learned positions": ["model.positions.kind=learned"],
    "a quarter of the steps": [QUARTER],
    "all the steps": [f"training.steps={2 * STEPS}"],
    "twice the steps": [f"training.steps={4 * STEPS}"],
}
"""What is changed, and by which settings; half the steps unless it says otherwise."""
HELD_OUT = 500


def tried(name: str, seed: int, runs: Path, environment: ExecutionEnvironment) -> dict[str, Any]:
    """Train a variant on the questions about the other people, and ask it about those held out."""
    settings = [f"training.steps={STEPS}", f"seed={seed}", *VARIANTS[name]]
    stages = choose_stages("modern", settings)
    data = Data.read(Path(os.environ["REGARD_BIRTHPLACES"]), stages.pretraining).held_out(HELD_OUT)
    folder = runs / re.sub(r"\W+", "-", f"{name} {seed}")
    arm = birthplaces(
        data, folder, stages, ExecutionOptions(environment=environment), [PRETRAINED]
    )[PRETRAINED]
    score: dict[str, Any] = msgspec.to_builtins(arm.score)
    return {"settings": VARIANTS[name], "machine": environment.describe()} | score


def row(name: str, seeds: list[dict[str, Any]]) -> str:
    """A line of the table, in Markdown."""
    each = ", ".join(f"{100 * found['accuracy']:.1f}" for found in seeds)
    mean = 100 * fmean(found["accuracy"] for found in seeds)
    minutes = fmean(found["training_seconds"] for found in seeds) / 60
    return f"| {name} | {mean:.1f} % | {each} | {seeds[0]['steps']} | {minutes:.1f} min |"


def main() -> None:
    """Try all, or some."""
    parser = options(__doc__, VARIANTS)
    parser.add_argument("--seed", action="append", type=int, help="Default: 0.")
    parser.add_argument("--runs", type=Path, default=Path("runs/tried"))
    given = parser.parse_args()
    if "REGARD_BIRTHPLACES" not in os.environ:
        sys.exit("REGARD_BIRTHPLACES doesn't name the folder of the real corpus")
    place = given.out / "birthplaces-tried.json"
    found = stored(place)
    environment = ExecutionEnvironment.choose("auto", "auto")
    for name, seed in itertools.product(given.only or VARIANTS, given.seed or [0]):
        try:
            score = tried(name, seed, given.runs, environment)
        except RegardError as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)
        others = [other for other in found.get(name, []) if other["seed"] != seed]
        found[name] = sorted([*others, score], key=itemgetter("seed"))
        store(place, found, VARIANTS)
    print("| variant | accuracy | by seed | steps | training |\n|---|---|---|---|---|")
    for name in VARIANTS:
        if name in found:
            print(row(name, found[name]))


if __name__ == "__main__":
    main()
