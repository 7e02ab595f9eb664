"""Heads and gradients of models that were not trained."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Attention
from regard.models.builders import Model
from regard.runs.run import Run
from regard.studies.trained_models.before_training import (
    PATTERNS,
    masked_loss,
    measured_gradients,
    rescale,
    row_gradients,
    score,
)
from regard.studies.trained_models.heads import by_layer
from regard.studies.trained_models.reading import (
    HEADS,
    LAYERS,
    WIDTH,
    Row,
    plan_decoder,
    plan_reader,
)
from regard.studies.trained_models.sentences import labeled_texts

TEXTS = [text.text for text in labeled_texts(0, "test", 4)]


@pytest.fixture(scope="module")
def reader() -> Run:
    """An untrained encoder. Not to be changed: see `model`."""
    return plan_reader(1, 0).run


def test_untrained_heads_are_nearly_uniform_and_go_where_they_may(reader: Run) -> None:
    encoder, decoder = (score(run, TEXTS) for run in (reader, plan_decoder(1, 0).run))
    assert len(encoder) == len(decoder) == LAYERS * HEADS
    assert by_layer(encoder, "entropy").mean() > 0.95
    assert float(by_layer(decoder, "causal").mean()) == pytest.approx(1, abs=1e-6)
    assert 0.4 < by_layer(encoder, "causal").mean() < 0.7
    assert by_layer(decoder, "next").mean() == 0
    for pattern in PATTERNS:
        rows = by_layer(encoder, pattern)
        assert rows.shape == (LAYERS, HEADS)
        assert rows.flatten().tolist() == [one.scores[pattern] for one in encoder], pattern


IDS, PLACE, OTHER, TARGET = ROW = Row([3, 4, 1, 5, 6, 7], 2, 4, 9)


@pytest.fixture
def model(reader: Run) -> Model:
    return copy.deepcopy(reader.model).double().eval()


def loss(model: Model) -> Tensor:
    return masked_loss(model, ROW)


def test_the_gradient_by_a_weight_is_that_of_differences(model: Model) -> None:
    attention = next(module for module in model.modules() if isinstance(module, Attention))
    _, gradient, _ = row_gradients(model, lambda: loss(model))

    def moved(step: float) -> float:
        def hook(module: Attention, args: tuple[Tensor, ...], kwargs: Any, _out: Tensor) -> Tensor:
            query, key, value = args
            weights = module.weights(query, key, **kwargs)
            weights[0, 1, PLACE, OTHER] += step
            return weights @ value

        handle = attention.register_forward_hook(hook, with_kwargs=True)
        with torch.no_grad():
            found = float(loss(model))
        handle.remove()
        return found

    step = 1e-5
    slope = (moved(step) - moved(-step)) / (2 * step)
    assert gradient[1, PLACE, OTHER] == pytest.approx(slope, rel=1e-5, abs=1e-10)


def test_each_layer_has_a_gradient_and_no_output_changes(model: Model) -> None:
    losses = [loss(model)]

    def kept() -> Tensor:
        losses.append(loss(model))
        return losses[-1]

    weights, gradient, _ = row_gradients(model, kept)
    assert losses[1].item() == pytest.approx(losses[0].item(), abs=1e-12)
    assert weights.shape == gradient.shape == (2 * HEADS, len(IDS), len(IDS))


def test_scores_deviate_as_predicted_and_maps_are_even(model: Model) -> None:
    ids = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:24].tolist()
    found = measured_gradients(model, [Row(ids, 0, 5, 7)])
    assert found.spread == pytest.approx(WIDTH * 0.02**2, rel=0.2)
    assert found.entropy.min() > 0.999
    assert found.error < 1e-12
    rescale(model, 20)
    assert measured_gradients(model, [Row(ids, 0, 5, 7)]).entropy.min() < 0.7
