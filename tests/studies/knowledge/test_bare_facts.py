"""Documents of a name and values: capacity, and facts seen once."""

from math import log, log2, prod
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.runs.run import Run
from regard.studies.knowledge.bare_facts import (
    KINDS,
    NAMES,
    SAMPLES,
    SHAPES,
    draw_facts,
    generated,
    judged_bits,
    judged_samples,
    miscalibration,
    read_facts,
    share_seen_once,
    stored_bits,
    token_losses,
    with_bound,
)
from tiny_studies import needs_every_measurement

SMALL = ("model.n_layers=1", "model.d_model=8", "training.batch=4")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    return read_facts(draw_facts(20, ["place"], 0), 1, 0, *SMALL)


def test_people_are_drawn_once_with_values_of_their_kinds() -> None:
    found = draw_facts(500, ["hobby", "place"], 1)
    assert len({" ".join(text.split()[:2]) for text in found}) == 500
    for text in found:
        *name, hobby, place = text.split()
        assert " ".join(name) in NAMES
        assert hobby in KINDS["hobby"]
        assert place in KINDS["place"]
    assert found == draw_facts(500, ["hobby", "place"], 1)
    assert found != draw_facts(500, ["hobby", "place"], 2)


def test_all_words_are_single_tokens(run: Run) -> None:
    for text in draw_facts(50, list(KINDS), 5):
        assert len(run.tokenizer.encode(text)) == 2 + len(KINDS)


@torch.inference_mode()
def test_losses_are_those_of_the_next_tokens(run: Run) -> None:
    rows = [run.tokenizer.encode(text) for text in draw_facts(600, ["place"], 3)]
    found = token_losses(run, rows)
    document = run.template.document
    for i in (0, 511, 512, 599):
        ids = torch.tensor([*document.prefix, *rows[i], *document.suffix])
        logits = run.language_model(ids[None, :-1])[0].double()
        expected = F.cross_entropy(logits, ids[1:], reduction="none")
        assert torch.allclose(found[i, : len(expected)], expected, atol=1e-5)  # float32
        assert not found[i, len(expected) :].any()


VALUES = prod(map(len, (KINDS[kind] for kind in ("place", "profession", "subject", "hobby"))))


def test_a_model_without_knowledge_stores_nothing() -> None:
    assert stored_bits(100, log(len(NAMES) * VALUES)) == pytest.approx(0, abs=1e-9)


def test_full_knowledge_is_the_facts_and_the_set_of_names() -> None:
    people = 1000
    expected = people * (log2(len(NAMES) / people) + log2(VALUES))
    assert stored_bits(people, log(people)) == pytest.approx(expected)


@given(st.integers(1, 5600), st.floats(0, 40), st.floats(0.01, 5))
def test_a_higher_loss_is_less_knowledge(n: int, loss: float, more: float) -> None:
    assert stored_bits(n, loss + more) < stored_bits(n, loss)


def test_capacity_needs_every_measurement() -> None:
    needs_every_measurement(
        judged_bits,
        ({100: [1.2, 1.3], 1000: [1.9, 2.0]},),
        *(({100: [few], 1000: [many]},) for few, many in ((0.3, 2.0), (1.3, 1.0), (1.2, 3.0))),
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


def test_seen_once_needs_every_measurement() -> None:
    needs_every_measurement(
        judged_samples,
        (FOUND, REPEATED),
        (FOUND | {SHAPES[1]: with_bound(0.9, 0.3, 0.1)}, REPEATED),
        (FOUND | {SHAPES[3]: with_bound(0.4, 0.5, 0.1)}, REPEATED),
        (FOUND, with_bound(0.3, 0.7, 0.2)),
    )


def test_documents_are_drawn_from_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    run = read_facts(draw_facts(4, ["place", "profession"], 0), 1, 0, *SMALL)
    made = generated(run, 0)
    assert made.shape == (SAMPLES, 4)
    assert torch.equal(made, generated(run, 0))
    start = torch.tensor([list(run.template.document.prefix)])
    with torch.inference_mode():
        expected = run.language_model(start)[0, -1].double().softmax(-1)
    first = torch.bincount(made[:, 0], minlength=len(expected)) / len(made)
    error = (expected * (1 - expected) / len(made)).sqrt()
    assert ((first - expected).abs() <= 5 * error + 1 / len(made)).all()
