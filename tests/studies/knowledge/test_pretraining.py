"""The study `pretraining`."""

from pathlib import Path

import pytest

from regard.metrics import Interval
from regard.studies.finding import Verdict
from regard.studies.knowledge.training_texts import (
    NOT_PRETRAINED,
    PRETRAINED,
    SPAN_CORRUPTION,
    WITHOUT_THEM,
    judged_pretraining,
    pretraining,
)


def holds(pretrained: float, not_pretrained: float, without: float, corrupted: float) -> bool:
    values = (pretrained, not_pretrained, without, corrupted)
    arms = (PRETRAINED, NOT_PRETRAINED, WITHOUT_THEM, SPAN_CORRUPTION)
    scores = {arm: Interval(v, v, v) for arm, v in zip(arms, values, strict=True)}
    return all(number.holds for number in judged_pretraining(scores, guess=0.25, n=100))


def test_the_claim_needs_every_measurement() -> None:
    assert holds(0.85, 0.1, 0.1, 0.6)
    assert holds(0.85, 0.25, 0.3, 0.6), "a guess, within three standard errors"
    assert not holds(0.3, 0.1, 0.1, 0.6), "no better than a guess"
    assert not holds(0.85, 0.1, 0.6, 0.6), "something else determines the answer"
    assert not holds(0.85, 0.6, 0.1, 0.6)
    assert not holds(0.85, 0.1, 0.1, 0.3), "span corruption stores nothing"


@pytest.mark.findings
def test_the_verdict() -> None:
    finding = pretraining()
    assert finding.verdict is Verdict.HOLDS
    assert finding.numbers[0].measured > 0.7


@pytest.mark.slow
def test_hardly_trained_it_recalls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert pretraining(people=80, steps=2).verdict is Verdict.FAILS


@pytest.mark.findings
def test_informative_names_need_no_text() -> None:
    numbers = {number.name: number for number in pretraining(correlation=1.0).numbers}
    assert not (numbers[NOT_PRETRAINED].holds and numbers[WITHOUT_THEM].holds)
