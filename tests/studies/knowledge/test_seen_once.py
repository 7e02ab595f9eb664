"""What a model makes up, and the lower bound of it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.knowledge.bare_facts import (
    SAMPLES,
    SHAPES,
    draw_facts,
    generated,
    judged_samples,
    miscalibration,
    read_facts,
    share_seen_once,
    slack,
    with_bound,
)

FOUND = {
    shape: with_bound(once, false, 0.1)
    for shape, once, false in zip(SHAPES, [0.0, 0.2, 0.3, 0.4], [0.1, 0.3, 0.6, 0.9], strict=True)
}
REPEATED = with_bound(0.3, 0.5, 0.2)


@given(st.lists(st.integers(0, 9), min_size=1))
def test_facts_seen_once_are_counted(drawn: list[int]) -> None:
    once = [fact for fact in drawn if drawn.count(fact) == 1]
    assert share_seen_once(drawn) == len(once) / len(drawn)


def test_the_share_seen_once_estimates_what_was_never_seen() -> None:
    rng = np.random.default_rng(0)
    weights = 1 + rng.pareto(1.0, 5000)
    true = weights / weights.sum()
    drawn = rng.choice(5000, 4000, p=true)
    missing = 1 - true[np.unique(drawn)].sum()
    # Good and Turing; the standard error is at most about 1/√n.
    assert share_seen_once(drawn.tolist()) == pytest.approx(missing, abs=4 / np.sqrt(4000))


def test_a_model_that_is_the_truth_is_calibrated() -> None:
    rng = np.random.default_rng(1)
    true = rng.dirichlet(np.ones(300))
    samples = np.log(true)[rng.choice(300, 20_000, p=true)]
    assert miscalibration(true, np.log(true), samples) < 0.03  # ten bins, 20 000 samples


def test_a_model_that_gives_nothing_to_the_truth_is_off_by_all() -> None:
    true = np.array([0.5, 0.5])
    samples = np.full(100, -1.0)
    below = miscalibration(true, np.array([-50.0, -50.0]), samples)
    assert below <= 1
    rising = np.linspace(-2, -1, 100)
    assert miscalibration(true, np.array([-50.0, -50.0]), rising) == pytest.approx(0.9)


def test_the_slack_decreases_with_the_documents() -> None:
    assert slack(100) > slack(4000) > slack(10**9) > 0


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_samples(FOUND, REPEATED))
    for shape, worse in (
        (SHAPES[1], with_bound(0.9, 0.3, 0.1)),
        (SHAPES[3], with_bound(0.4, 0.5, 0.1)),
    ):
        assert not all(number.holds for number in judged_samples({**FOUND, shape: worse}, REPEATED))
    never = with_bound(0.3, 0.7, 0.2)
    assert not all(number.holds for number in judged_samples(FOUND, never))


def test_documents_are_drawn_from_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    run = read_facts(
        draw_facts(4, ["place", "profession"], 0),
        1,
        0,
        *("model.n_layers=1", "model.d_model=8", "training.batch=4"),
    )
    made = generated(run, 0)
    assert made.shape == (SAMPLES, 4)
    assert torch.equal(made, generated(run, 0))
    start = torch.tensor([list(run.template.document.prefix)])
    with torch.inference_mode():
        expected = run.language_model(start)[0, -1].double().softmax(-1)
    first = torch.bincount(made[:, 0], minlength=len(expected)) / len(made)
    error = (expected * (1 - expected) / len(made)).sqrt()
    assert ((first - expected).abs() <= 5 * error + 1 / len(made)).all()
