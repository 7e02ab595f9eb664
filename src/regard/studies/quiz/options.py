"""Wrong options of the quiz, each refuted by a measurement."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batch import pad_rows
from regard.studies.figure import chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, refused
from regard.studies.moods import best
from regard.studies.quiz.checks import (
    BLOCK,
    BOTH_WAYS,
    DECODER,
    ENCODER,
    MASKED_LM,
    OF_TEXTS,
    OF_TOKENS,
    PAIR,
    RNN,
    TEXTS,
    TOKENS,
    WIDTH,
    Draw,
    Std,
    after_start,
    influence,
)
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import central_differences, largest
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer

ERRORS = (AttributeError, IndexError, RuntimeError, TypeError, ValueError)
"""Errors that wrong inputs raise."""
ENTRIES = 12
"""Number of weights whose gradient is compared with finite differences."""


@study()
def wrong_options(std: Std = 0.15, seed: Seed = 0) -> EvidenceParts:
    r"""Which measurement refutes each wrong option of the quiz?

    Each wrong option predicts a value that differs from the measured one.

    $$ P(y_t \mid y_{<t}) \ne P(y_1, \dots, y_{t-1}), \quad \sum_{y_{<t}} \sum_{y_t} P(y_t \mid
    y_{<t}) = V^{t-1} \ne 1 $$

    The predictions are tested on small untrained models, activations, batches and vocabularies.

    Figure. Gradients of recurrent weights by backpropagation and by finite differences. For one
    direction and for both, all dots are on the diagonal.
    """
    draw = Draw(seed, std)
    with torch.no_grad():
        numbers = [number for refute in REFUTATIONS.values() for number in refute(draw)]
    yield from numbers
    dots = [series(*both, name, "dots") for name, both in gradients(draw).items()]
    yield chart(*dots, x="gradient by backpropagation", y="by finite differences")


def weights_alone(draw: Draw) -> Measurements:
    """Compare the same weights in two architectures, and count them."""
    causal, ids = draw.model(DECODER), draw.ids(3, 8)
    both_ways = draw.model(ENCODER, MASKED_LM)
    both_ways.body.load_state_dict(causal.body.state_dict())
    difference = largest(causal.body(ids) - both_ways.body(ids))
    counted = sum(parameter.numel() for parameter in causal.parameters())
    layers = DECODER.n_layers * (12 * WIDTH**2 + 13 * WIDTH)
    yield equal("2: parameters counted", counted, layers + 2 * WIDTH + 2 * TOKENS * WIDTH)
    yield at_least("2: difference of outputs, same weights, other architecture", difference, 1e-3)


def transcript(draw: Draw) -> Measurements:
    """Count the outputs for a recording of 20 frames with a transcript of 7 characters."""
    frames, lengths = draw.ids(1, 20), torch.tensor([20])
    labels = draw.model(RNN, OF_TEXTS)(frames, lengths)[..., 0].numel()
    characters = draw.model(PAIR)(frames, lengths, draw.ids(1, 7))[..., 0].numel()
    yield equal("5: labels for 20 frames", labels, 1)
    yield equal("5: characters of a transcript, 20 frames", characters, 7)


def order_of_parts(draw: Draw) -> Measurements:
    """Pass a text to the model, and count texts among its outputs."""
    text = refused(lambda: draw.model(DECODER)(TEXTS[0]), *ERRORS)
    yield equal("7: text refused by the model", text, 1)
    outputs = draw.model(DECODER)(draw.ids(1, 8)).flatten().tolist()
    texts = sum(isinstance(value, str) for value in outputs)
    yield equal("7: outputs of the model that are text", texts, 0)


def fewer_dimensions(draw: Draw) -> Measurements:
    """Measure the standard deviation of the output along each dimension."""
    hidden = draw.model(DECODER).body(draw.ids(2, 7))
    deviation = min(float(hidden.std(dim).mean()) for dim in range(hidden.ndim))
    yield at_least("8: smallest standard deviation along a dimension", deviation, 1e-3)


def conditions(draw: Draw) -> Measurements:
    """Sum predictions over all prefixes, and change tokens."""
    given, prefixes = next_probabilities(draw), draw.tokens ** (draw.length - 1)
    yield equal("9: sum of outputs over all prefixes", given.sum(), prefixes, within=1e-9)
    changes = influence(draw.model(RNN).body, draw.ids(draw.length + 1))
    yield at_least("9: smallest influence of an earlier token", changes[-1].min(), 1e-6)
    change = largest(changes.triu(1))
    yield equal("9: influence of the token itself and later ones", change, 0, 1e-12)
    yield at_most("9: largest probability of the token itself", given.max(), 0.99)


@torch.inference_mode()
def next_probabilities(draw: Draw) -> Float[Tensor, "prefixes tokens"]:
    """Return the predictions of an RNN for the last token of texts, after each prefix."""
    prefixes = draw.texts[:, :-1].unique(dim=0)
    found: Tensor = draw.model(RNN, tokens=draw.tokens)(after_start(prefixes))[:, -1].softmax(-1)
    return found


def large_numbers(_: Draw) -> Measurements:
    """Evaluate activations at a large number."""
    yield equal("10: number of NaN, ReLU and its gradient", count_nan(torch.relu), 0)
    yield equal("10: number of NaN, sigmoid and its gradient", count_nan(torch.sigmoid), 0)


@torch.enable_grad()
def count_nan(function: Callable[[Tensor], Tensor]) -> int:
    """Count NaN of an activation at ±10³⁸, and of its gradient."""
    z = torch.tensor([1e38, -1e38], requires_grad=True)
    value = function(z)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return int(value.isnan().sum() + gradient.isnan().sum())


def directions(draw: Draw) -> Measurements:
    """Compare gradients with finite differences, and predict moods from one of three days."""
    for name, (by_autograd, by_differences) in gradients(draw).items():
        error = largest(by_autograd - by_differences)
        yield at_most(f"11: error of the gradient by finite differences, {name}", error, 1e-6)
    # One of three days is known; which one doesn't matter, since all are alike.
    yield equal("11: accuracy with today's weather alone", best(2), 0.75, within=1e-12)


@torch.enable_grad()
def gradients(draw: Draw) -> dict[str, tuple[Float[Tensor, " w"], Float[Tensor, " w"]]]:
    """Return gradients of some recurrent weights by autograd and by central differences."""
    days, lengths = draw.ids(1, 10), torch.tensor([10])
    found = {}
    for name, config in {"one direction": RNN, "both directions": BOTH_WAYS}.items():
        model = draw.model(config, OF_TOKENS)
        weight = next(p for n, p in model.named_parameters() if "weight_hh" in n)

        def loss(model: Any = model) -> Tensor:
            scores: Tensor = model(days, lengths)
            return scores.square().sum()

        (by_autograd,) = torch.autograd.grad(loss(), weight)
        entries = weight.data.view(-1)[:ENTRIES]
        by_differences = central_differences(loss, entries, 1e-5)
        found[name] = by_autograd.flatten()[:ENTRIES], by_differences
    return found


def model_heads(draw: Draw) -> Measurements:
    """Replace the head of an encoder, and change the states at other positions."""
    ids = draw.ids(2, 7)
    one, other = (draw.model(ENCODER, head).body(ids) for head in (MASKED_LM, OF_TEXTS))
    yield equal("14: change of the states with another head", largest(one - other), 0)
    model = draw.model(DECODER)
    hidden = torch.zeros(1, 7, WIDTH, dtype=torch.float64)
    others = hidden.clone()
    others[:, 1:] = 1
    change = largest((model.head(hidden) - model.head(others))[:, 0])
    yield equal("14: influence of other positions on a head's output", change, 0)


def batches(draw: Draw) -> Measurements:
    """Make tensors of rows of different lengths, and pass a text longer than the context."""
    rows = [draw.ids(9)[:n] for n in (3, 5, 9)]
    ragged = refused(lambda: torch.tensor([row.tolist() for row in rows]), *ERRORS)
    yield equal("15: rows of different lengths refused as a tensor", ragged, 1)
    stacked = refused(lambda: torch.stack(rows), *ERRORS)
    yield equal("15: tensors of different lengths refused as a batch", stacked, 1)
    long = refused(lambda: draw.model(DECODER)(draw.ids(1, BLOCK + 1)), *ERRORS)
    yield equal("15: text longer than the context refused", long, 1)


def padded_ids(_: Draw) -> Measurements:
    """Decode the ids of one vocabulary by another, with and without padding and truncation."""
    own = train_tokenizer(WordsConfig(), TEXTS)
    other = train_tokenizer(WordsConfig(), ["Dry stones", "and a sun that shines", *TEXTS])
    ids = other.encode(TEXTS[0])
    padded = pad_rows([ids[:8], [0] * BLOCK], 0)[0].tolist()  # of 11 tokens

    def changed(row: list[int]) -> float:
        tokens = [i for i in row if i != 0]
        return sum(own.decode([i]) != other.decode([i]) for i in tokens) / len(tokens)

    name = "16: share of tokens with another meaning"
    yield at_least(name, changed(ids), 0.5)
    yield equal(f"{name}, padded and truncated", changed(padded), changed(ids))


REFUTATIONS: dict[int, Callable[[Draw], Measurements]] = {
    2: weights_alone,
    5: transcript,
    7: order_of_parts,
    8: fewer_dimensions,
    9: conditions,
    10: large_numbers,
    11: directions,
    14: model_heads,
    15: batches,
    16: padded_ids,
}
"""By question; each yields measurements that refute its wrong options."""
