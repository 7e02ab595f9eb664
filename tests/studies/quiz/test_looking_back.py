"""Trainings that look back: equal heads and embeddings."""

import pytest
import torch

from regard.explorer.intercept import capture_attention
from regard.positions.config import LearnedConfig
from regard.studies.figure import Chart
from regard.studies.quiz.checks import WIDTH, Draw
from regard.studies.quiz.looking_back import (
    CROSS,
    LENGTH,
    ROWS,
    TOKENS,
    config,
    equal_heads,
    make,
    rows,
    terms,
    train,
    trained,
    with_equal_heads,
)
from regard.studies.tensors import map_distance


def test_one_unequal_weight_is_enough() -> None:
    model = with_equal_heads(make(0.3, seed=0), output=True)
    with torch.no_grad():
        model.body.layers[0].self_attention.qkv_proj.weight[0, 0] += 0.1
    assert map_distance(*trained(model, steps=60, seed=0)[0][-1]) > 1e-3


def test_equal_heads_have_equal_maps_and_gradients() -> None:
    model = with_equal_heads(make(0.3, seed=4), output=True)
    text = rows(torch.Generator().manual_seed(0))
    (layer,) = capture_attention(model.body, text)
    torch.testing.assert_close(layer.weights[:, 0], layer.weights[:, 1], rtol=0, atol=1e-15)
    list(train(model, distances=(1,), steps=1, seed=0))
    gradient = model.body.layers[0].self_attention.qkv_proj.weight.grad
    for start in range(0, 3 * WIDTH, WIDTH):
        first, second = gradient[start : start + WIDTH].chunk(2)
        assert first.abs().max() > 0
        torch.testing.assert_close(first, second, rtol=0, atol=1e-14)


def test_terms_are_those_of_the_embeddings() -> None:
    model = Draw(0, 0.1).model(config(16, LearnedConfig()), tokens=TOKENS)
    x, p = model.body.embedding.weight.detach(), model.body.absolute.vectors.detach()
    cross = torch.stack([word @ position for word in x for position in p])
    assert terms(model)[CROSS] == pytest.approx(float(cross.square().mean().sqrt()))


def test_labels_are_the_tokens_back() -> None:
    """A model that knows the token two back has no loss."""

    class Knowing:
        def __init__(self) -> None:
            self.unused = torch.nn.Parameter(torch.zeros(()))

        def parameters(self) -> list[torch.nn.Parameter]:
            return [self.unused]

        def body(self, ids: torch.Tensor) -> torch.Tensor:
            return ids.roll(2, dims=1)

        def head(self, ids: torch.Tensor) -> torch.Tensor:
            return 100 * torch.nn.functional.one_hot(ids, TOKENS) + self.unused

    (loss,) = train(Knowing(), distances=(2,), steps=1, seed=0)
    assert loss == 0
    assert rows(torch.Generator().manual_seed(0)).shape == (ROWS, LENGTH)


def test_the_last_maps_are_drawn_at_the_last_step() -> None:
    figure = equal_heads(steps=15).figure
    assert figure is not None
    (panel,) = figure.panels
    assert isinstance(panel, Chart)
    assert [list(one.x) for one in panel.series] == [[0, 10, 15]] * 3
