"""∂L/∂A[i, j], against what a small change of a weight does."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.attention.kernel_config import EluConfig
from regard.attention.score_config import ArgmaxConfig, BigBirdConfig
from regard.errors import UserError
from regard.explorer.calls import mechanisms
from regard.explorer.gradients import Gradient, gradient_norms, text_loss, weight_gradients
from regard.explorer.intercept import AttentionRecord, capture_attention, intercept
from regard.explorer.look import adapter_of, look
from regard.models.builders import Model, make_model
from regard.models.head_config import (
    ClassificationHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
)
from regard.positions.config import RotaryConfig, ShawVectorsConfig
from tiny_families import FAMILIES
from tiny_models import tiny_model
from tiny_recurrent import sharp
from tiny_served import TEXT, new_run

IDS = torch.tensor([[3, 1, 4, 1, 5]])
Inputs = tuple[Tensor, ...]
MODELS: dict[str, tuple[Callable[[], Model], Inputs]] = {
    "shared keys": (lambda: tiny_model(n_kv_heads=2, positions=RotaryConfig()), (IDS,)),
    "shaw": (lambda: tiny_model(positions=ShawVectorsConfig(clip=2)), (IDS,)),
    "bigbird": (lambda: tiny_model(attention=BigBirdConfig(block_size=2)), (IDS,)),
    "elu": (lambda: tiny_model(attention=EluConfig()), (IDS,)),
    "encoder": (lambda: sharp_model("encoder", MaskedLMHeadConfig()), (IDS,)),
    "encoder-decoder": (
        lambda: sharp_model("encoder-decoder", LMHeadConfig()),
        (IDS, torch.tensor([5]), IDS[:, :4]),
    ),
}


def sharp_model(family: str, head: HeadConfig) -> Model:
    return sharp(make_model(FAMILIES[family], head, 11))


def attention_gradients(model: nn.Module, loss: Callable[[], Tensor]) -> list[Gradient]:
    return weight_gradients(loss, partial(intercept, model))


def loss_with(model: Model, inputs: Inputs, layer: int, place: tuple[int, ...], by: float) -> float:
    """The loss where one weight of one layer is moved."""
    seen: list[str] = []

    def handle(record: AttentionRecord) -> Tensor:
        weights = record.weights.clone()
        if len(seen) == layer:
            weights[place] += by
        seen.append(record.layer)
        return record.output_from(weights)

    with torch.no_grad(), intercept(model.body, handle):
        return text_loss(model, *inputs).item()


@pytest.mark.parametrize("family", MODELS)
def test_gradients_are_the_slopes_of_the_loss(family: str) -> None:
    """Central differences have an error of some h² and rounding over h."""
    made, inputs = MODELS[family]
    model, h = made(), 1e-5
    found = attention_gradients(model.body, partial(text_loss, model, *inputs))
    for layer, one in enumerate(found):
        last = tuple(size - 1 for size in one.weights.shape)
        for place in {(0, 0, 0, 0), (0, 1, last[2], 0), last}:
            ends = [loss_with(model, inputs, layer, place, by) for by in (h, -h)]
            slope = (ends[0] - ends[1]) / (2 * h)
            assert float(one.gradient[place]) == pytest.approx(slope, rel=1e-5, abs=1e-8)
    for one, seen in zip(found, capture_attention(model.body, *inputs), strict=True):
        assert one.layer == seen.layer
        assert_close(one.weights, seen.weights)
        assert one.norm[0, 0] == pytest.approx(math.sqrt(float(one.gradient[0, 0].square().sum())))
        assert (one.norm > 0).any()


def test_looking_for_gradients_changes_nothing() -> None:
    model = tiny_model(attention=ArgmaxConfig())
    with torch.no_grad():
        before = model(IDS)
        attention_gradients(model.body, partial(text_loss, model, IDS))
        # Exact: the same operations on the same shapes.
        assert torch.equal(model(IDS), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    for _, mechanism in mechanisms(model.body):
        assert not {"forward", "encode_memory", "attend_memory"} & vars(mechanism).keys()


def test_a_loss_that_no_weight_changes_has_no_gradient() -> None:
    model = tiny_model()
    loss = lambda: model.body(IDS).sum() * 0.0  # noqa: E731
    assert all((one.norm == 0).all() for one in attention_gradients(model.body, loss))


def test_the_loss_is_the_mean_cross_entropy_of_the_next_token() -> None:
    model = tiny_model()
    with torch.no_grad():
        shares = model(IDS).log_softmax(-1)[0]
        expected = -shares[torch.arange(4), IDS[0, 1:]].mean()
        assert_close(text_loss(model, IDS), expected)


def test_models_and_texts_without_a_loss_are_refused() -> None:
    with pytest.raises(UserError, match="one token has no loss"):
        text_loss(tiny_model(), IDS[:, :1])
    classes = sharp_model("encoder", ClassificationHeadConfig(labels=("a", "b")))
    with pytest.raises(UserError, match="predicts tokens"):
        text_loss(classes, IDS, torch.tensor([5]))


def test_norms_are_averaged_over_texts() -> None:
    decoder = new_run("decoder")
    heads = look(decoder, TEXT).only([1], [1, 0]).panels[0].maps[0]
    found = [adapter_of(decoder).gradients(text) for text in (TEXT, "tan")]
    one, other = (gradient_norms([gradients], heads) for gradients in found)
    assert one.shape == (2,)
    assert_close(gradient_norms(found, heads), (one + other) / 2)
