"""Which signal tells two kinds of answers apart, found on one half and measured on the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.evaluation.answers import Answer
from regard.metrics import auroc


@dataclass(frozen=True)
class Chosen:
    """The best signal on the first half, and the AUROC of each on the second."""

    signal: str
    auroc: float
    all_aurocs: dict[str, float]


def choose_signal(trusted: Sequence[Answer], doubted: Sequence[Answer], *, seed: int = 0) -> Chosen:
    """Choose on a random half of each kind of answers, report on the other halves.

    Raises:
        ValueError: there are fewer than two answers of a kind.
    """
    if min(len(trusted), len(doubted)) < 2:
        raise ValueError("choosing a signal needs at least two answers of each kind")
    choose_t, report_t = _halves(trusted, seed)
    choose_d, report_d = _halves(doubted, seed + 1)
    names = list(trusted[0].signals)
    on_first = {name: _auroc(name, choose_t, choose_d) for name in names}
    on_second = {name: _auroc(name, report_t, report_d) for name in names}
    best = max(names, key=lambda name: on_first[name])
    return Chosen(best, on_second[best], on_second)


def _auroc(signal: str, trusted: Sequence[Answer], doubted: Sequence[Answer]) -> float:
    return auroc([a.signals[signal] for a in trusted], [a.signals[signal] for a in doubted])


def _halves(answers: Sequence[Answer], seed: int) -> tuple[list[Answer], list[Answer]]:
    order = np.random.default_rng(seed).permutation(len(answers)).tolist()
    middle = len(order) // 2
    return [answers[i] for i in order[:middle]], [answers[i] for i in order[middle:]]
