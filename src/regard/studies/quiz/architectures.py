"""Questions 2, 3, 4, 8 and 14: models, weights and heads."""

import torch

from regard.errors import UserError
from regard.models.config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.studies.finding import at_least, equal, refused
from regard.studies.quiz.checked import DECODER, ENCODER, WIDTH, Check, Draw, checked, influence
from regard.studies.tensors import largest

HEADS: tuple[HeadConfig, ...] = (
    LMHeadConfig(),
    ClassificationHeadConfig(labels=("good", "bad")),
    TokenClassificationHeadConfig(labels=("name", "verb", "other")),
    EmbeddingHeadConfig(width=8),
)
"""Heads that fit one and the same decoder."""


@checked
def architecture_and_weights(draw: Draw) -> Check:
    """What are model, architecture and weights?

    The architecture is the succession of functions, weights are their parameters.
    """
    one, other = draw.model(DECODER), Draw(draw.seed + 1, 2 * draw.std).model(DECODER)
    ids = draw.ids(3, 8)
    before = largest(one(ids) - other(ids))
    other.load_state_dict(one.state_dict())
    after = largest(one(ids) - other(ids))
    yield "one architecture, two draws of weights; then the weights are copied"
    yield at_least("2: difference that other weights make", before, 1e-3)
    yield equal("2: the same after copying the weights", after, 0)


@checked
def completing(draw: Draw) -> Check:
    """Which model completes a prompt with text?

    A decoder.
    """
    ids = draw.ids(8)
    seen = influence(draw.model(DECODER).body, ids)
    both = influence(draw.model(ENCODER, MaskedLMHeadConfig()).body, ids)
    yield "what a later token changes at earlier positions, where it is to be predicted"
    yield equal("3: decoder, change by later tokens", largest(seen.triu(1)), 0, within=1e-12)
    yield at_least("3: encoder, change by later tokens", largest(both.triu(1)), 1e-3)
    headed = refused(lambda: draw.model(ENCODER, LMHeadConfig()), UserError)
    yield equal("3: an encoder with a head for the next token is refused", headed, 1)


@checked
def classifying(draw: Draw) -> Check:
    """Which model classifies a text?

    An encoder: each of its states has seen all of the text. (Of a decoder, the last.)
    """
    n, ids = 8, draw.ids(8)
    encoder = influence(draw.model(ENCODER, MaskedLMHeadConfig()).body, ids) > 1e-9
    decoder = influence(draw.model(DECODER).body, ids) > 1e-9
    yield "share of pairs of tokens of which the first one's state depends on the second"
    yield equal("4: encoder, pairs that see each other", encoder.double().mean(), 1)
    yield equal("4: decoder, the same", decoder.double().mean(), (n + 1) / (2 * n), 1e-12)


@checked
def dimensions(draw: Draw) -> Check:
    """How many dimensions has the output of a decoder, and which?

    3: batch, sequence and hidden size.
    """
    rows, n = 2, 7
    hidden = draw.model(DECODER).body(draw.ids(rows, n))
    wanted = (rows, n, WIDTH)
    right = sum(size == want for size, want in zip(hidden.shape, wanted, strict=False))
    yield f"the output for {rows} texts of {n} tokens at width {WIDTH}: {tuple(hidden.shape)}"
    yield equal("8: dimensions", hidden.ndim, 3)
    yield equal("8: of the sizes (batch, sequence, hidden), right", right, 3)


@checked
def heads(draw: Draw) -> Check:
    """What is a model head?

    A layer or few that turn the hidden states into the output of a task.
    """
    ids, lengths = draw.ids(2, 7), torch.tensor([7, 7])
    shapes, bodies = set(), set()
    for head in HEADS:
        model = draw.model(DECODER, head)
        bodies.add(tuple((name, p.shape) for name, p in model.body.named_parameters()))
        given = (ids,) if isinstance(head, LMHeadConfig) else (ids, lengths)
        shapes.add(tuple(model(*given).shape))
    yield (
        "one body with four heads; outputs of shapes "
        + ", ".join("×".join(map(str, shape)) for shape in sorted(shapes, key=str))
    )
    yield equal("14: bodies", len(bodies), 1)
    yield equal("14: outputs of different shape", len(shapes), len(HEADS))
