"""Questions 2 to 5, 8, 10, 11, 13 and 14: architectures, weights and heads."""

from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import UserError
from regard.models.config import ModelConfig, RecurrentConfig
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.models.recurrent import RecurrentDecoder
from regard.studies.finding import Measurements, at_least, at_most, equal, refused
from regard.studies.quiz.checked import (
    BOTH_WAYS,
    DECODER,
    ENCODER,
    RNN,
    WIDTH,
    WINDOW,
    Draw,
    influence,
)
from regard.studies.tensors import largest, seeded

FAR, NEAR = 48, 6
"""Distances at which the first token's influence is compared."""
MODELS: dict[str, ModelConfig] = {"attention": DECODER, "RNN": RNN, "window": WINDOW}
HEADS: tuple[HeadConfig, ...] = (
    LMHeadConfig(),
    ClassificationHeadConfig(labels=("good", "bad")),
    TokenClassificationHeadConfig(labels=("name", "verb", "other")),
    EmbeddingHeadConfig(width=8),
)
"""Heads for the same decoder."""


def architecture_and_weights(draw: Draw) -> Measurements:
    """One architecture with two draws of weights, before and after the weights are copied."""
    one, other = draw.model(DECODER), Draw(draw.seed + 1, 2 * draw.std).model(DECODER)
    ids = draw.ids(3, 8)
    before = largest(one(ids) - other(ids))
    other.load_state_dict(one.state_dict())
    after = largest(one(ids) - other(ids))
    yield at_least("2: difference of outputs, other weights", before, 1e-3)
    yield equal("2: difference of outputs, copied weights", after, 0)


def completing(draw: Draw) -> Measurements:
    """Influence of later tokens on states at earlier positions, which predict them."""
    ids = draw.ids(8)
    seen = influence(draw.model(DECODER).body, ids)
    both = influence(draw.model(ENCODER, MaskedLMHeadConfig()).body, ids)
    yield equal("3: decoder, influence of later tokens", largest(seen.triu(1)), 0, within=1e-12)
    yield at_least("3: encoder, influence of later tokens", largest(both.triu(1)), 1e-3)
    headed = refused(lambda: draw.model(ENCODER, LMHeadConfig()), UserError)
    yield equal("3: an encoder with a head for the next token is refused", headed, 1)


def classifying(draw: Draw) -> Measurements:
    """Share of pairs of tokens in which the first token's state depends on the second token."""
    n, ids = 8, draw.ids(8)
    encoder = influence(draw.model(ENCODER, MaskedLMHeadConfig()).body, ids) > 1e-9
    decoder = influence(draw.model(DECODER).body, ids) > 1e-9
    name = "share of pairs with influence"
    yield equal(f"4: encoder, {name}", encoder.double().mean(), 1)
    yield equal(f"4: decoder, {name}", decoder.double().mean(), (n + 1) / (2 * n), 1e-12)


def dimensions(draw: Draw) -> Measurements:
    """Dimensions of a decoder's output, and their sizes."""
    rows, n = 2, 7
    hidden = draw.model(DECODER).body(draw.ids(rows, n))
    expected = (rows, n, WIDTH)
    correct = sum(size == right for size, right in zip(hidden.shape, expected, strict=False))
    yield equal("8: dimensions", hidden.ndim, 3)
    yield equal("8: correct sizes of (batch, sequence, hidden)", correct, 3)


def heads(draw: Draw) -> Measurements:
    """One body with four heads."""
    ids, lengths = draw.ids(2, 7), torch.tensor([7, 7])
    shapes, bodies = set(), set()
    for head in HEADS:
        model = draw.model(DECODER, head)
        bodies.add(tuple((name, p.shape) for name, p in model.body.named_parameters()))
        given = (ids,) if isinstance(head, LMHeadConfig) else (ids, lengths)
        shapes.add(tuple(model(*given).shape))
    yield equal("14: different bodies", len(bodies), 1)
    yield equal("14: outputs of different shape", len(shapes), len(HEADS))


def many_to_one(draw: Draw) -> Measurements:
    """Numbers of outputs for one text with either head."""
    n = 20
    ids, lengths = draw.ids(1, n), torch.tensor([n])
    one = draw.model(RNN, ClassificationHeadConfig(labels=("negative", "positive")))
    many = draw.model(RNN, TokenClassificationHeadConfig(labels=("a", "b", "c")))
    labels, transcript = one(ids, lengths), many(ids, lengths)
    yield equal("5: outputs, many to one", labels[..., 0].numel(), 1)
    yield equal("5: outputs, many to many", transcript[..., 0].numel(), n)


def not_a_number(draw: Draw) -> Measurements:
    """One training step of a linear RNN with W = wI over 64 tokens, in float32."""
    ids = draw.ids(1, 64)
    yield at_least("10: number of NaN weights, w = 8", nan_after_a_step(8.0, ids), 1)
    yield equal("10: number of NaN weights, w = ⅛", nan_after_a_step(0.125, ids), 0)


def the_crab(draw: Draw) -> Measurements:
    """Influence of each day's input on the states of all days."""
    days = draw.ids(10)
    one = influence(draw.model(RNN).body, days)
    both = influence(
        draw.model(BOTH_WAYS, TokenClassificationHeadConfig(labels=("a", "b"))).body, days
    )
    name = "11: one direction, influence of"
    yield equal(f"{name} later days", largest(one.triu(1)), 0, within=1e-12)
    yield at_least(f"{name} the day before", one.diagonal(-1).min(), 1e-6)
    yield at_least("11: both directions, influence of the next day", both.diagonal(1).min(), 1e-6)


def long_inputs(draw: Draw) -> Measurements:
    """Influence of the first token at a long distance, as a share of that at a short one."""
    shares = {
        name: float(curve[FAR] / curve[NEAR]) if curve[NEAR] > 0 else 0.0
        for name, curve in influence_curves(draw).items()
    }
    name = "share of the influence at a long distance"
    yield at_least(f"13: attention, {name}", shares["attention"], 0.01)
    yield at_most(f"13: RNN, {name}", shares["RNN"], 0.001)
    yield equal(f"13: window, {name}", shares["window"], 0)


def influence_curves(draw: Draw) -> dict[str, Tensor]:
    """Return the influence of the first token on all states, by architecture."""
    ids = draw.ids(FAR + 1)
    return {name: influence(draw.model(config).body, ids)[:, 0] for name, config in MODELS.items()}


@torch.enable_grad()
def nan_after_a_step(
    w: float, ids: Tensor, activation: Literal["identity", "tanh"] = "identity"
) -> int:
    """Return the number of NaN weights after one step of gradient descent with W = wI."""
    config = RecurrentConfig(
        cell="vanilla", activation=activation, n_layers=1, d_model=WIDTH, dropout=0.0
    )
    body = seeded(lambda: RecurrentDecoder(config, int(ids.max()) + 1), seed=0)
    for name, parameter in body.named_parameters():
        if "weight_hh" in name:
            nn.init.eye_(parameter).data.mul_(w)
    body(ids)[:, -1].square().mean().backward()
    torch.optim.SGD(body.parameters(), lr=0.1).step()
    return sum(int(parameter.isnan().sum()) for parameter in body.parameters())
