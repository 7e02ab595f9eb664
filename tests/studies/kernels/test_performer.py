"""The study performer."""

from pathlib import Path

import pytest

from regard.metrics import Interval
from regard.studies.finding import Evidence, Verdict
from regard.studies.kernels.performer import (
    HEADS,
    PERFORMERS,
    Model,
    Result,
    accuracy_with,
    evidence_from,
    measured,
    recipe,
)
from regard.studies.model_cache import trained
from regard.studies.study import evidence_of


def evidence(*, softmax: float, trained: float, replaced: float) -> Evidence:
    def result(accuracy: float) -> Result:
        return Result(Interval(accuracy, accuracy, accuracy), {20: 2.0, 40: 1.0})

    parts = evidence_from(
        {Model(heads): result(softmax) for heads in HEADS}
        | {of: result(trained) for of in PERFORMERS},
        dict.fromkeys(PERFORMERS, replaced),
    )
    return evidence_of(parts, "", {})


def test_the_judgment() -> None:
    usual = evidence(softmax=0.97, trained=0.93, replaced=0.2)
    assert usual.verdict is Verdict.CONDITIONAL
    assert evidence(softmax=0.97, trained=0.93, replaced=0.9).verdict is Verdict.HOLDS
    assert evidence(softmax=0.97, trained=0.86, replaced=0.2).verdict is Verdict.FAILS
    assert evidence(softmax=0.89, trained=0.89, replaced=0.2).verdict is Verdict.FAILS


def test_a_model_keeps_its_weights_when_its_attention_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    softmax, other = (recipe(Model(2, directions), 2, 4, 2e-3, 0) for directions in (None, 4))
    run = trained(softmax)
    result = measured(run)
    assert list(result.losses) == [2]
    assert accuracy_with(run, softmax) == result.accuracy.value
    assert 0 <= accuracy_with(run, other) <= 1
