"""Questions 2, 3, 4, 8 and 14: models, weights and heads."""

import torch

from regard.errors import UserError
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.studies.finding import Measurements, at_least, equal, refused
from regard.studies.quiz.checked import DECODER, ENCODER, WIDTH, Draw, influence
from regard.studies.tensors import largest

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
