"""How often the guarantee of `regard calibrate` is broken, and how much it answers.

    python benchmarks/guarantee.py RUN QUESTIONS.tsv [--shifted OTHERS.tsv] [--draws 1000]

The answers to QUESTIONS, which RUN wasn't trained on, are the whole population: each draw takes
`size` of them with replacement, calibrates on these, and is broken if the share of wrong answers
among those given, over the population, exceeds the bound. Coverage is compared with that of the
loosest threshold of the same confidence that keeps the bound in hindsight. OTHERS are questions of
another mix, for which there is no guarantee.
"""

import argparse
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from regard.evaluation.ask import SUBJECTS
from regard.metrics import exact_match
from regard.runs.run import Run, load
from regard.tasks.examples import Example, read_answered, subject_of
from regard.uncertainty.abstention import calibrate
from regard.uncertainty.calibration import signal_matrix
from regard.uncertainty.signals import SignalConfig, measure

BOUNDS = (0.1, 0.2, 0.3)
LEVEL = 0.95


def answered(
    run: Run, asked: Sequence[Example], subjects: Sequence[str]
) -> tuple[Float[np.ndarray, "n s"], Bool[np.ndarray, " n"]]:
    """Return the signals of all answers, and which are right; PMI compares with these subjects."""
    config = SignalConfig(subjects=tuple(subjects), samples=10)
    found = measure(run, [one.text for one in asked], run.environment(), config)
    right = [exact_match(f.answer, q.answer or "") for f, q in zip(found, asked, strict=True)]
    signals = [one.signals for one in found]
    return signal_matrix(signals, list(signals[0])), np.array(right)


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
    parser.add_argument("--shifted", type=Path)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1000)
    arguments = parser.parse_args()
    run, asked = load(arguments.run), read_answered(arguments.questions)
    others = read_answered(arguments.shifted or arguments.questions)
    subjects = tuple(dict.fromkeys(subject_of(one.text) for one in asked))[:SUBJECTS]
    (signals, right), shifted = (answered(run, group, subjects) for group in (asked, others))
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
        print(
            f"| {bound:.0%} | {broken:.1%} | {covered:.1%} | {possible:.1%} "
            f"| {covered / possible:.2f} | {elsewhere:.1%} |"
        )


if __name__ == "__main__":
    main()
