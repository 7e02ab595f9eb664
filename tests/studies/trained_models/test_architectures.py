"""The study `architectures`."""

from pathlib import Path

import pytest

from regard.metrics import Interval
from regard.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from regard.studies.finding import Verdict
from regard.studies.trained_models.task_models import (
    DECODER,
    ENCODER,
    FAMILIES,
    PAIR,
    RECOMMENDED,
    architectures,
    judged_beyond,
    judged_families,
    recipe_for,
)

CONFIGS = {ENCODER: EncoderConfig, DECODER: DecoderConfig, PAIR: EncoderDecoderConfig}
REFUSED = {ENCODER: 2, PAIR: 1}


def scores(**changed: float) -> dict[str, dict[str, Interval]]:
    """All 0.9, but those of «task_family»."""

    def score(task: str, family: str) -> Interval:
        value = changed.get(f"{task}_{family.replace('–', '')}", 0.9)
        return Interval(value, value - 0.02, value + 0.02)

    return {task: {f: score(task, f) for f in families} for task, families in FAMILIES.items()}


def test_each_family_gets_a_model_of_its_own() -> None:
    for task, families in FAMILIES.items():
        assert RECOMMENDED[task] in families
        for family in families:
            assert isinstance(recipe_for(task, family, 5, 32, 0).model, CONFIGS[family])


def test_the_claim_needs_every_measurement() -> None:
    without = dict.fromkeys(FAMILIES, 0.5)
    assert all(number.holds for number in judged_families(scores(), without, REFUSED))
    assert not all(
        n.holds for n in judged_families(scores(), without | {"retrieval": 0.95}, REFUSED)
    )
    assert not all(n.holds for n in judged_families(scores(), without, REFUSED | {ENCODER: 1}))
    worse = scores(classification_encoder=0.7)
    assert not all(number.holds for number in judged_families(worse, without, REFUSED))


def test_decoders_are_compared_outside_the_condition() -> None:
    assert all(number.holds for number in judged_beyond(scores()))
    better = judged_beyond(scores(summaries_decoder=0.99))
    assert [number.holds for number in better] == [False, True, True, True]


def test_the_text_is_that_of_the_stored_seeds() -> None:
    stored = architectures.stored_result()
    lead = stored.row(f"classification: {ENCODER} minus {PAIR}").values
    (behind,) = (i for i, value in enumerate(lead) if value is not None and value < 0)
    assert len(lead) == 5
    assert "with four of five seeds, isn't better" in architectures.claim
    assert f"With one seed of five the {PAIR} classifies better, by {-(lead[behind] or 0):.2f}" in (
        architectures.explanation
    )
    assert stored.row(f"classification: {ENCODER} minus best baseline").values[behind] == 0


@pytest.mark.findings
def test_the_verdict() -> None:
    assert architectures().verdict is Verdict.CONDITIONAL


@pytest.mark.slow
def test_hardly_trained_none_beats_the_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert architectures(steps=1, width=16).verdict is Verdict.FAILS
