"""Beams and samples."""

from pathlib import Path

import pytest

from plans import plan_task
from regard.evaluation.tasks import scored_examples
from regard.studies.finding import Verdict
from regard.studies.trained_models.task_models import (
    ALIKE,
    BEAMS,
    DIFFERENT,
    GREEDY,
    HIGH,
    LOW,
    PAIR,
    QUALITY,
    RIGHT,
    TOP_K,
    TOP_P,
    beams,
    judged_methods,
    recipe_for,
    samples,
    scored,
    several_summaries,
)
from regard.tasks.examples import Example

SCORES = {
    BEAMS: {QUALITY: 0.8, RIGHT: 0.7, DIFFERENT: 5, ALIKE: 0.9},
    GREEDY: {QUALITY: 0.85, RIGHT: 0.5, DIFFERENT: 1, ALIKE: 1},
    LOW: {QUALITY: 0.82, RIGHT: 0.6, DIFFERENT: 2, ALIKE: 0.8},
    HIGH: {QUALITY: 0.7, RIGHT: 0.7, DIFFERENT: 4, ALIKE: 0.6},
    TOP_K: {QUALITY: 0.75, RIGHT: 0.7, DIFFERENT: 3, ALIKE: 0.85},
    TOP_P: {QUALITY: 0.78, RIGHT: 0.7, DIFFERENT: 2.5, ALIKE: 0.7},
}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_methods(SCORES, 5))
    for name, change in (
        (BEAMS, {DIFFERENT: 4.5}),
        (GREEDY, {DIFFERENT: 1.1}),
        (HIGH, {DIFFERENT: 1.9}),
        (HIGH, {QUALITY: 0.9}),
        (TOP_P, {QUALITY: 0.6}),
        (BEAMS, {ALIKE: 0.5}),
    ):
        worse = SCORES | {name: SCORES[name] | change}
        assert not all(number.holds for number in judged_methods(worse, 5))


def test_scores_are_means_over_all_summaries() -> None:
    questions = [Example(text="x", answer="a b c"), Example(text="y", answer="d e f")]
    found = scored([["a b c", "a b c"], ["d e x", "d e f"]], questions)
    assert found[RIGHT] == 1
    assert found[DIFFERENT] == 1.5
    assert found[QUALITY] == pytest.approx((1 + 1 + 2 / 3 + 1) / 4)
    assert found[ALIKE] == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.slow
def test_each_article_has_its_own_summaries() -> None:
    run = plan_task(Path("unused"), recipe_for("summaries", PAIR, 1, 16, 0)).run
    run.model.eval()
    texts = [article.text for article in scored_examples(run, None)[:2]]
    assert [len(several) for several in samples(run, texts, 3, 0, temperature=1.0)] == [3, 3]
    found = beams(run, texts, 4)
    assert [len({*several}) for several in found] == [4, 4]
    greedy = samples(run, texts, 3, 0, temperature=0.0)
    assert [len({*several}) for several in greedy] == [1, 1]


@pytest.mark.findings
def test_the_verdict() -> None:
    assert several_summaries().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_hardly_trained_it_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert several_summaries(steps=1, width=16, articles=10).verdict is Verdict.FAILS
