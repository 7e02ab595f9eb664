"""Beams and samples."""

from pathlib import Path

import pytest

from plans import plan_task
from regard.studies.finding import Verdict
from regard.studies.trained_models.task_models import (
    BEAMS,
    GREEDY,
    HIGH,
    LOW,
    PAIR,
    TOP_K,
    TOP_P,
    Score,
    beams,
    judged_methods,
    new_articles,
    recipe_for,
    samples,
    scored,
    several_summaries,
)
from regard.tasks.examples import Example

SCORES = {
    BEAMS: Score(rouge=0.8, best=0.7, different=5, alike=0.9),
    GREEDY: Score(rouge=0.85, best=0.5, different=1, alike=1),
    LOW: Score(rouge=0.82, best=0.6, different=2, alike=0.8),
    HIGH: Score(rouge=0.7, best=0.7, different=4, alike=0.6),
    TOP_K: Score(rouge=0.75, best=0.7, different=3, alike=0.85),
    TOP_P: Score(rouge=0.78, best=0.7, different=2.5, alike=0.7),
}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_methods(SCORES, 5))
    for name, change in (
        (BEAMS, {"different": 4.5}),
        (GREEDY, {"different": 1.1}),
        (HIGH, {"different": 1.9}),
        (HIGH, {"rouge": 0.9}),
        (TOP_P, {"rouge": 0.6}),
        (BEAMS, {"alike": 0.5}),
    ):
        worse = SCORES | {name: SCORES[name]._replace(**change)}
        assert not all(number.holds for number in judged_methods(worse, 5))


def test_scores_are_means_over_all_summaries() -> None:
    questions = [Example(text="x", answer="a b c"), Example(text="y", answer="d e f")]
    found = scored([["a b c", "a b c"], ["d e x", "d e f"]], questions)
    assert found.best == 1
    assert found.different == 1.5
    assert found.rouge == pytest.approx((1 + 1 + 2 / 3 + 1) / 4)
    assert found.alike == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.slow
def test_each_article_has_its_own_summaries() -> None:
    run = plan_task(Path("unused"), recipe_for("summaries", PAIR, 1, 16, 0)).run
    run.model.eval()
    texts = [article.text for article in new_articles(run)[:2]]
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
