"""Models of three families: architectures, widths, several summaries."""

from pathlib import Path

import pytest

from plans import plan_task
from regard.config import override
from regard.evaluation.tasks import scored_examples
from regard.metrics import Interval
from regard.runs.run import Run
from regard.studies.finding import Measurements
from regard.studies.trained_models.task_models import (
    ALIKE,
    BEAMS,
    DECODER,
    DIFFERENT,
    ENCODER,
    FAMILIES,
    GREEDY,
    HIGH,
    LAYERS,
    LOW,
    PAIR,
    QUALITY,
    RIGHT,
    TOP_K,
    TOP_P,
    accepts,
    architectures,
    beams,
    changed_shapes,
    judged_families,
    judged_methods,
    judged_widths,
    not_worse,
    recipe_for,
    samples,
    scored,
)
from regard.tasks.examples import Example
from tiny_studies import needs_every_measurement


def scores(**changed: float) -> dict[str, dict[str, Interval]]:
    """All 0.9, but those of «task_family»."""

    def score(task: str, family: str) -> Interval:
        value = changed.get(f"{task}_{family.replace('–', '')}", 0.9)
        return Interval(value, value - 0.02, value + 0.02)

    return {task: {f: score(task, f) for f in families} for task, families in FAMILIES.items()}


def test_decoders_are_compared_outside_the_condition() -> None:
    assert all(not_worse(scores(), task, DECODER).holds for task in FAMILIES)
    better = scores(summaries_decoder=0.99)
    assert [not_worse(better, task, DECODER).holds for task in FAMILIES] == [False, *[True] * 3]


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


def test_scores_are_means_over_all_summaries() -> None:
    questions = [Example(text="x", answer="a b c"), Example(text="y", answer="d e f")]
    found = scored([["a b c", "a b c"], ["d e x", "d e f"]], questions)
    assert found[RIGHT] == 1
    assert found[DIFFERENT] == 1.5
    assert found[QUALITY] == pytest.approx((1 + 1 + 2 / 3 + 1) / 4)
    assert found[ALIKE] == pytest.approx((1 + 2 / 3) / 2)


def pair(source: int, target: int) -> Run:
    """An untrained encoder–decoder for few articles, by the widths of its sides."""
    recipe = recipe_for("summaries", PAIR, 1, target, 0, source_width=source)
    few = ["task.training=60", "task.test=20", "task.people=40", "tokenizer.unknown=unk"]
    return plan_task(Path("unused"), override(recipe, few)).run


def test_each_article_has_its_own_summaries() -> None:
    run = pair(16, 16)
    run.model.eval()
    texts = [article.text for article in scored_examples(run, None)[:2]]
    assert [len(several) for several in samples(run, texts, 3, 0, temperature=1.0)] == [3, 3]
    found = beams(run, texts, 4)
    assert [len({*several}) for several in found] == [4, 4]
    greedy = samples(run, texts, 3, 0, temperature=0.0)
    assert [len({*several}) for several in greedy] == [1, 1]


def test_architectures_needs_every_measurement() -> None:
    baselines, refused = dict.fromkeys(FAMILIES, 0.5), {ENCODER: 2, PAIR: 1}
    needs_every_measurement(
        judged_families,
        (scores(), baselines, refused),
        (scores(), baselines | {"retrieval": 0.95}, refused),
        (scores(), baselines, refused | {ENCODER: 1}),
        (scores(classification_encoder=0.7), baselines, refused),
    )


CHANGED = [f"layers.{i}.cross_attention.kv_proj.weight" for i in range(LAYERS)]


def test_widths_meet_in_the_cross_attention_only() -> None:
    wide = pair(48, 16)
    assert changed_shapes(pair(16, 16), wide) == CHANGED
    assert accepts(wide, 48)
    assert not accepts(wide, 16)


def test_different_widths_needs_every_measurement() -> None:
    def judged(other: float, changed: list[str], refused: bool = True) -> Measurements:
        values = {(64, 64): 0.8, (32, 64): 0.8, (64, 32): other}
        found = {widths: Interval(v, v - 0.01, v + 0.01) for widths, v in values.items()}
        return judged_widths(found, 0.3, changed, refused)

    needs_every_measurement(
        judged,
        (0.79, CHANGED),
        (0.4, CHANGED),  # hardly better than the baseline
        (0.8, [*CHANGED, "layers.0.o_proj.weight"]),
        (0.8, CHANGED, False),
    )


def test_several_summaries_needs_every_measurement() -> None:
    found = {
        BEAMS: {QUALITY: 0.8, RIGHT: 0.7, DIFFERENT: 5, ALIKE: 0.9},
        GREEDY: {QUALITY: 0.85, RIGHT: 0.5, DIFFERENT: 1, ALIKE: 1},
        LOW: {QUALITY: 0.82, RIGHT: 0.6, DIFFERENT: 2, ALIKE: 0.8},
        HIGH: {QUALITY: 0.7, RIGHT: 0.7, DIFFERENT: 4, ALIKE: 0.6},
        TOP_K: {QUALITY: 0.75, RIGHT: 0.7, DIFFERENT: 3, ALIKE: 0.85},
        TOP_P: {QUALITY: 0.78, RIGHT: 0.7, DIFFERENT: 2.5, ALIKE: 0.7},
    }
    changes: tuple[tuple[str, dict[str, float]], ...] = (
        (BEAMS, {DIFFERENT: 4.5}),
        (GREEDY, {DIFFERENT: 1.1}),
        (HIGH, {DIFFERENT: 1.9}),
        (HIGH, {QUALITY: 0.9}),
        (TOP_P, {QUALITY: 0.6}),
        (BEAMS, {ALIKE: 0.5}),
    )
    needs_every_measurement(
        judged_methods,
        (found, 5),
        *((found | {name: found[name] | change}, 5) for name, change in changes),
    )
