"""Probes of word classes, and labeled relations."""

import pytest
import torch

from regard.runs.run import Run
from regard.studies.finding import Measurements
from regard.studies.trained_models.reading import (
    BEFORE,
    BEST,
    CLASSES,
    DISTANCE,
    EMBEDDINGS,
    FOLDS,
    HEADS,
    LAYERS,
    TRAINED,
    UNTRAINED,
    WIDTH,
    Row,
    at_distances,
    best_on_second_half,
    cross_validated,
    judged_probe,
    judged_structures,
    mask_weights,
    masked_rows,
    plan_reader,
    samples,
    structures,
)
from regard.studies.trained_models.sentences import RELATIONS, labeled_texts, word_classes
from tiny import MASK
from tiny_studies import needs_every_measurement


@pytest.fixture(scope="module")
def reader() -> Run:
    """An untrained encoder."""
    run = plan_reader(1, 0).run
    run.model.eval()
    return run


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


def test_no_word_is_fitted_and_tested(reader: Run) -> None:
    texts = labeled_texts(0, "probe", 30)
    states, classes, _ = samples(reader, texts)
    assert {*classes.tolist()} == {*range(len(CLASSES))}
    assert states.shape == (len(classes), WIDTH)
    for words in word_classes().values():
        assert len(words) >= FOLDS, "every fold has a word of each class"
    texts_words = [word for text in texts for word in text.words]
    known = {word for words in word_classes().values() for forms in words for word in forms}
    assert len(classes) == sum(word in known for word in texts_words)


def test_the_head_is_chosen_on_other_rows_than_it_is_measured_on() -> None:
    hits = torch.tensor([[True, False]] * 4 + [[False, True]] * 4)
    share, shares = best_on_second_half(hits)
    assert (share, shares.tolist()) == (0.0, [0.0, 1.0])


def test_distances_are_a_rival() -> None:
    rows = [Row([], 5, 4, 0), Row([], 7, 6, 0), Row([], 9, 3, 0)]
    assert at_distances(rows).tolist() == [[True, False], [True, False], [False, True]]


def test_only_the_dependent_is_masked_and_all_heads_are_asked(reader: Run) -> None:
    texts = labeled_texts(0, "test", 2)
    for relation in RELATIONS:
        rows = masked_rows(reader, texts, relation)
        assert all(row.ids.count(MASK) == 1 and row.ids[row.place] == MASK for row in rows)
        (weights, *_) = mask_weights(reader, rows)
        assert weights.shape == (LAYERS * HEADS, len(rows[0].ids))
        assert torch.allclose(weights.sum(-1), torch.ones(LAYERS * HEADS), atol=1e-6)


@pytest.mark.findings
def test_most_structures_have_a_head_after_any_training() -> None:
    """Of 18 trainings on two processors, with four or eight heads, each found three or more."""
    finding = structures()
    bounds = [*finding.numbers, *finding.outside_condition]
    missed = {number.name.partition(":")[0] for number in bounds if not number.holds}
    assert len(missed) <= 2, missed


def test_linear_probe_needs_every_measurement() -> None:
    def judged(*means: float) -> Measurements:
        arms = zip((TRAINED, EMBEDDINGS, UNTRAINED), means, strict=True)
        return judged_probe({arm: torch.full((7,), mean) for arm, mean in arms})

    needs_every_measurement(
        judged, (0.9, 0.8, 0.2), (0.5, 0.8, 0.1), (0.9, 0.8, 0.4), (0.9, 0.1, 0.2)
    )


def test_structures_needs_every_measurement() -> None:
    one = {BEST: 0.95, DISTANCE: 0.5, BEFORE: 0.2}
    found = dict.fromkeys(RELATIONS, one)
    needs_every_measurement(
        judged_structures,
        (found, 0.8),
        *(
            (found | {"pronoun": one | worse}, 0.8)
            for worse in ({BEST: 0.7}, {DISTANCE: 0.9}, {BEFORE: 0.9})
        ),
    )
