"""How often the guarantee of `regard calibrate` is broken, and how much it answers.

    python benchmarks/guarantee.py RUN QUESTIONS.tsv --trained TRAIN.tsv [--corpus TEXT]
        [--shifted OTHERS.tsv] [--draws 1000]

RUN was trained on TRAIN. The answers to other QUESTIONS are the whole population: each draw takes
`size` of them with replacement, calibrates on these, and is broken if the share of wrong answers
among those given, over the population, exceeds the bound. Coverage is compared with that of the
loosest threshold of the same confidence that keeps the bound in hindsight. OTHERS are questions of
another mix, for which there is no guarantee. With --corpus, answers are looked up.
"""

import argparse
from math import sqrt
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from right_or_wrong import measured

from regard.corpus.index import index_files
from regard.runs.run import load
from regard.tasks.examples import read_answered
from regard.uncertainty.abstention import calibrate

BOUNDS = (0.1, 0.2, 0.3)
LEVEL = 0.95


def is_broken(given: Bool[np.ndarray, " n"], right: Bool[np.ndarray, " n"], bound: float) -> bool:
    """Return whether more than the bound of the answers given is wrong."""
    return bool((given & ~right).sum() > bound * given.sum())


def best_coverage(
    confidence: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"], bound: float
) -> float:
    """Return the largest share of answers, by confidence, of which at most the bound is wrong."""
    order = np.argsort(-confidence, kind="stable")
    sure, wrong = confidence[order], np.cumsum(~right[order])
    ends = np.append(sure[1:] < sure[:-1], True)  # a threshold lets all of a tie through
    given = np.arange(1, len(right) + 1)
    kept = given[ends & (wrong <= bound * given)]
    return float(kept.max(initial=0)) / len(right)


def main() -> None:
    """Draw, calibrate and count."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--trained", type=Path, required=True)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--shifted", type=Path)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1000)
    arguments = parser.parse_args()
    run, trained = load(arguments.run), read_answered(arguments.trained)
    index = index_files([arguments.corpus]) if arguments.corpus else None

    def answered(questions: Path) -> tuple[Float[np.ndarray, "n s"], Bool[np.ndarray, " n"]]:
        columns, right = measured(run, read_answered(questions), trained, index, ())
        return np.column_stack(list(columns.values())), right

    signals, right = answered(arguments.questions)
    shifted = answered(arguments.shifted) if arguments.shifted else (signals, right)
    most = 1 - LEVEL + 3 * sqrt(LEVEL * (1 - LEVEL) / arguments.draws)
    print(f"{len(right)} answers, {right.mean():.1%} right; broken at most {most:.1%}\n")
    print("| bound | broken | coverage | in hindsight | share of it | broken on others |")
    print("|---|---|---|---|---|---|")
    for bound in BOUNDS:
        found = []
        for draw in range(arguments.draws):
            chosen = np.random.default_rng(draw).integers(len(right), size=arguments.size)
            combination, guarantee = calibrate(
                signals[chosen], right[chosen], max_error=bound, level=LEVEL, seed=draw
            )
            confidence = combination(signals)
            given = guarantee.answers(confidence)
            there = guarantee.answers(combination(shifted[0]))
            found.append(
                (
                    is_broken(given, right, bound),
                    given.mean(),
                    best_coverage(confidence, right, bound),
                    is_broken(there, shifted[1], bound),
                )
            )
        broken, covered, possible, elsewhere = np.mean(found, 0)
        other_mix = f"{elsewhere:.1%}" if arguments.shifted else "–"
        print(
            f"| {bound:.0%} | {broken:.1%} | {covered:.1%} | {possible:.1%} "
            f"| {covered / possible:.2f} | {other_mix} |"
        )


if __name__ == "__main__":
    main()
