"""How well signals tell right from wrong answers, each alone, together, and with each left out.

    python benchmarks/right_or_wrong.py QUESTIONS.tsv --trained TRAIN.tsv --runs RUN...
        [--corpus TEXT] [--paraphrase W]... [--json FILE]

RUNs, of several seeds, were trained on the questions TRAIN. The combination is fitted on four
fifths of the questions and scores the last fifth, so that no answer is scored by a fit that saw
it. With --corpus, the signals that look the answer up come in; what documents state is learned
from TRAIN. AUROCs have DeLong's 95 % interval over the questions; differences are of the same
answers. FILE has the risk of all signals together at each hundredth of coverage.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from regard.corpus.evidence import AnswerNames, learn_relation
from regard.corpus.index import CorpusIndex, index_files
from regard.evaluation.answers import answer
from regard.files import write_file
from regard.metrics import Interval, auroc, auroc_interval
from regard.runs.run import Run, load
from regard.tasks.examples import Example, read_answered, subject_of
from regard.uncertainty.abstention import fit_combination
from regard.uncertainty.calibration import SAMPLES, SUBJECTS, signal_matrix
from regard.uncertainty.metrics import augrc, paired_difference, prr, risk_at_coverage
from regard.uncertainty.signals import SignalConfig, corpus_signals

FOLDS, DRAWS = 5, 5
COVERAGES = tuple(percent / 100 for percent in range(1, 101))
LOOKED_UP = ("exposure", "support", "statement")


def look_up(
    index: CorpusIndex,
    trained: Sequence[Example],
    asked: Sequence[Example],
    given: Sequence[str],
) -> list[dict[str, float]]:
    """Return the signals of the corpus for each answer given."""
    known = [(subject_of(one.text), one.answer) for one in trained if one.answer]
    names = AnswerNames.of(answer for _, answer in known)
    relation = learn_relation(index, known, names)
    return [
        corpus_signals(index, question.text, answer, names, relation)
        for question, answer in zip(asked, given, strict=True)
    ]


def cross_fitted(
    signals: Float[np.ndarray, "n s"], right: Bool[np.ndarray, " n"], seed: int
) -> Float[np.ndarray, " n"]:
    """Return the probability of each answer by a combination that was fitted on other folds."""
    fold = np.random.default_rng(seed).permutation(len(right)) % FOLDS
    confidence = np.empty(len(right))
    for held_out in range(FOLDS):
        inside = fold == held_out
        confidence[inside] = fit_combination(signals[~inside], right[~inside])(signals[inside])
    return confidence


def measured(
    run: Run,
    asked: Sequence[Example],
    trained: Sequence[Example],
    index: CorpusIndex | None,
    wordings: Sequence[str],
) -> tuple[dict[str, Float[np.ndarray, " n"]], Bool[np.ndarray, " n"]]:
    """Return each signal of all answers, and which answers are right."""
    subjects = tuple(dict.fromkeys(subject_of(one.text) for one in trained))[:SUBJECTS]
    config = SignalConfig(subjects=subjects, wordings=tuple(wordings), samples=SAMPLES)
    answers = answer(run, asked, run.environment(), signals=config)
    signals = [one.signals for one in answers]
    if index is not None:
        found = look_up(index, trained, asked, [one.answered for one in answers])
        signals = [own | looked_up for own, looked_up in zip(signals, found, strict=True)]
    right = [one.correct for one in answers]
    columns = signal_matrix(signals, list(signals[0])).T
    return dict(zip(signals[0], columns, strict=True)), np.array(right)


def averaged_over_folds(
    signals: Float[np.ndarray, "n s"], right: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return the mean confidence over draws of the folds."""
    draws = [cross_fitted(signals, right, seed) for seed in range(DRAWS)]
    mean: Float[np.ndarray, " n"] = np.mean(draws, axis=0)
    return mean


def report(
    signals: dict[str, Float[np.ndarray, " n"]], right: Bool[np.ndarray, " n"]
) -> dict[str, list[float]]:
    """Print the table of a run; return the risks of all signals together."""
    risks = {}
    print(f"\n{right.mean():.1%} of {len(right)} answers right\n")
    print("| signal | AUROC alone | AUROC of all, minus that without it |\n|---|---|---|")
    own = [name for name in signals if name not in LOOKED_UP]
    for title, names in {"without look-up": own, "with look-up": list(signals)}.items():
        if title == "with look-up" and names == own:
            break
        together = np.column_stack([signals[name] for name in names])
        confidence = averaged_over_folds(together, right)
        for i, name in enumerate(names):
            rest = averaged_over_folds(np.delete(together, i, axis=1), right)
            added = paired_difference(confidence, rest, right, _auroc)
            alone = _interval(signals[name], right)
            print(f"| {name} | {alone} | {added} |")
        print(
            f"| **all, {title}** | **{_interval(confidence, right)}** | "
            f"AUGRC {augrc(confidence, right):.4f}, PRR {prr(confidence, right):.3f} |"
        )
        risks[title] = [risk_at_coverage(confidence, right, share) for share in COVERAGES]
    return risks


def _auroc(confidence: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"]) -> float:
    return auroc(confidence[right].tolist(), confidence[~right].tolist())


def _interval(confidence: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"]) -> Interval:
    return auroc_interval(confidence[right].tolist(), confidence[~right].tolist())


def main() -> None:
    """Measure each run and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument("--trained", type=Path, required=True)
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--paraphrase", action="append", default=[])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    asked, trained = read_answered(arguments.questions), read_answered(arguments.trained)
    index = index_files([arguments.corpus]) if arguments.corpus else None
    found = []
    for path in arguments.runs:
        print(f"\n## {path}")
        found.append(report(*measured(load(path), asked, trained, index, arguments.paraphrase)))
    if arguments.json:
        write_file(arguments.json, (json.dumps(found) + "\n").encode())


if __name__ == "__main__":
    main()
