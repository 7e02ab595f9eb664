"""Encoders and decoders of different widths."""

from pathlib import Path

import pytest

from plans import plan_task
from regard.metrics import Interval
from regard.runs.run import Run
from regard.studies.finding import Verdict
from regard.studies.trained_models.task_models import (
    LAYERS,
    PAIR,
    accepts,
    changed_shapes,
    different_widths,
    judged_widths,
    recipe_for,
)

CHANGED = [f"layers.{i}.cross_attention.kv_proj.weight" for i in range(LAYERS)]


def run(source: int, target: int) -> Run:
    recipe = recipe_for("summaries", PAIR, 1, target, 0, source_width=source)
    return plan_task(Path("unused"), recipe).run


@pytest.mark.slow
def test_widths_meet_in_the_cross_attention_only() -> None:
    wide = run(48, 16)
    assert changed_shapes(run(16, 16), wide) == CHANGED
    assert accepts(wide, 48)
    assert not accepts(wide, 16)


def test_the_claim_needs_every_measurement() -> None:
    def holding(other: float, changed: list[str], refused: bool = True) -> bool:
        values = {(64, 64): 0.8, (32, 64): 0.8, (64, 32): other}
        scores = {widths: Interval(v, v - 0.01, v + 0.01) for widths, v in values.items()}
        return all(n.holds for n in judged_widths(scores, 0.3, changed, refused))

    assert holding(0.79, CHANGED)
    assert not holding(0.4, CHANGED), "hardly better than the baseline"
    assert not holding(0.8, [*CHANGED, "layers.0.o_proj.weight"])
    assert not holding(0.8, CHANGED, refused=False)


@pytest.mark.findings
def test_the_verdict() -> None:
    assert different_widths().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_hardly_trained_no_width_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert different_widths(steps=1, width=16).verdict is Verdict.FAILS
