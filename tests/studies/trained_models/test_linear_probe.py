"""Probes of word classes."""

from pathlib import Path

import pytest
import torch

from regard.studies.finding import Verdict
from regard.studies.trained_models.reading import (
    CLASSES,
    EMBEDDINGS,
    FOLDS,
    TRAINED,
    UNTRAINED,
    WIDTH,
    cross_validated,
    judged_probe,
    linear_probe,
    plan_reader,
    samples,
)
from regard.studies.trained_models.sentences import labeled_texts, word_classes


def made(n: int, *, shared: bool) -> tuple[torch.Tensor, ...]:
    """Words of which each class has a direction, or each word its own."""
    draw = torch.Generator().manual_seed(0)
    classes = torch.arange(n) % len(CLASSES)
    words = torch.arange(n) // len(CLASSES) % 8  # 8 words of each class
    numbers = classes if shared else classes + len(CLASSES) * words
    states = torch.eye(8 * len(CLASSES), dtype=torch.float64)[numbers]
    noise = 0.01 * torch.randn(states.shape, generator=draw, dtype=torch.float64)
    return states + noise, classes, words % FOLDS


def test_only_what_words_of_a_class_share_is_read() -> None:
    assert cross_validated(*made(700, shared=True)).min() == 1
    assert cross_validated(*made(700, shared=False)).mean() < 0.5, "learned by heart"


def test_no_word_is_fitted_and_tested() -> None:
    run = plan_reader(1, 0).run
    run.model.eval()
    texts = labeled_texts(0, "probe", 30)
    states, classes, _ = samples(run, texts)
    assert {*classes.tolist()} == {*range(len(CLASSES))}
    assert states.shape == (len(classes), WIDTH)
    for words in word_classes().values():
        assert len(words) >= FOLDS, "every fold has a word of each class"
    texts_words = [word for text in texts for word in text.words]
    known = {word for words in word_classes().values() for forms in words for word in forms}
    assert len(classes) == sum(word in known for word in texts_words)


def test_the_claim_needs_every_measurement() -> None:
    def holding(trained: float, embeddings: float, untrained: float) -> bool:
        means = {TRAINED: trained, EMBEDDINGS: embeddings, UNTRAINED: untrained}
        return all(
            n.holds for n in judged_probe({k: torch.full((7,), v) for k, v in means.items()})
        )

    assert holding(0.9, 0.8, 0.2)
    assert not holding(0.5, 0.8, 0.1)
    assert not holding(0.9, 0.8, 0.4)
    assert not holding(0.9, 0.1, 0.2)


@pytest.mark.findings
def test_the_verdict() -> None:
    assert linear_probe().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_hardly_trained_it_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert linear_probe(steps=2).verdict is Verdict.FAILS
