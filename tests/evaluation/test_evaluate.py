"""Choosing a signal on one half and measuring it on the other."""

import numpy as np
import pytest

from regard.evaluation.evaluate import Answer, choose_signal, signal_aurocs


def answers(n: int, **signals: np.ndarray) -> list[Answer]:
    return [
        Answer(
            question=str(i),
            expected=None,
            answered="",
            signals={name: float(values[i]) for name, values in signals.items()},
        )
        for i in range(n)
    ]


def test_the_telling_signal_is_chosen() -> None:
    draw = np.random.default_rng(0)
    trusted = answers(60, good=draw.normal(3, 1, 60), noise=draw.normal(0, 1, 60))
    doubted = answers(80, good=draw.normal(0, 1, 80), noise=draw.normal(0, 1, 80))
    chosen = choose_signal(trusted, doubted)
    assert chosen.signal == "good"
    assert chosen.auroc == chosen.all_aurocs["good"] > 0.9


def test_the_best_of_many_useless_signals_is_not_reported_as_good() -> None:
    """Chosen and reported on the same people, the best of 200 would seem to tell."""
    draw = np.random.default_rng(1)
    names = [f"noise {i}" for i in range(200)]
    trusted = answers(30, **{name: draw.normal(size=30) for name in names})
    doubted = answers(30, **{name: draw.normal(size=30) for name in names})
    reported = [choose_signal(trusted, doubted, seed=seed).auroc for seed in range(20)]
    assert float(np.mean(reported)) == pytest.approx(0.5, abs=0.1)


def test_every_signal_has_its_auroc_on_all_answers() -> None:
    trusted = answers(3, good=np.array([3.0, 4, 5]), bad=np.array([0.0, 0, 2]))
    doubted = answers(2, good=np.array([1.0, 2]), bad=np.array([1.0, 1]))
    found = signal_aurocs(trusted, doubted)
    assert {name: area.value for name, area in found.items()} == {"good": 1, "bad": 1 / 3}
    assert found["good"].low < 1
    assert signal_aurocs(trusted, doubted[:1]) == {}


def test_too_few_answers_are_refused() -> None:
    one = answers(1, good=np.ones(1))
    with pytest.raises(ValueError, match="at least two"):
        choose_signal(one, one)
