"""Questions 6, 9 and 12: probabilities given by models."""

import math
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.head_config import MaskedLMHeadConfig
from regard.studies.finding import Measurements, at_least, at_most, equal
from regard.studies.quiz.checked import ENCODER, PAIR, RNN, Draw

COMMON = 0.8
"""Share of the more frequent answer in biased data."""
START = 1
"""The token at the start of each text."""


def sources_of_bias() -> Measurements:
    """Probability of the more frequent answer after training, and after five steps without bias."""
    # The model gives two answers the probabilities σ(z) and σ(−z), and learns z.
    parent = trained(0.0, COMMON, steps=2000)
    child = trained(parent, 0.5, steps=5)
    yield equal("6: bias from the data", sigmoid(parent), COMMON, within=1e-6)
    yield at_least("6: bias from the parent (unbiased: 0.5)", sigmoid(child), 0.55)
    yield equal("6: bias from the metric, accuracy", float(sigmoid(parent) > 0.5), 1)


def trained(z: float, share: float, steps: int, rate: float = 0.5) -> float:
    """Return z after gradient descent on the cross-entropy, for a share of the frequent answer."""
    for _ in range(steps):
        z += rate * (share - sigmoid(z))
    return z


def sigmoid(z: float) -> float:
    """Return the probability of the more frequent answer."""
    return 1 / (1 + math.exp(-z))


def next_tokens(draw: Draw, tokens: int, length: int) -> Measurements:
    """Π P(y_t | y_<t) of an RNN, summed over all texts of a length."""
    rows = all_texts(tokens, length)
    total = _chosen(draw.model(RNN, tokens=tokens)(after_start(rows[:, :-1])), rows).exp().sum()
    yield equal("9: sum of the products", total, 1, within=1e-12)


def conditional(draw: Draw, tokens: int, length: int) -> Measurements:
    """Sums of P(y | x) over y and over x, and of products of an encoder's masked predictions."""
    texts = all_texts(tokens, length)
    pair = draw.model(PAIR, tokens=tokens)
    encoder = draw.model(ENCODER, MaskedLMHeadConfig(), tokens + 1)
    totals = torch.stack([_target_probabilities(pair, text, texts).sum() for text in texts])
    masked = _masked_log_probabilities(encoder, texts, tokens).exp().sum()
    yield at_most("12: |Σ P(y | x) over y − 1|, largest over x", abs(totals - 1).max(), 1e-12)
    yield equal("12: Σ P(y | x) over all x and y", totals.sum(), len(texts), within=1e-9)
    yield at_least("12: |Σ Π P(x_t | the others) − 1| of an encoder", abs(masked - 1), 1e-3)


def all_texts(tokens: int, length: int) -> Int[Tensor, "texts length"]:
    """Return all texts of a length over a vocabulary of size `tokens`."""
    return torch.tensor(list(product(range(tokens), repeat=length)))


def after_start(rows: Int[Tensor, "texts n"]) -> Int[Tensor, "texts more"]:
    """Return the texts with the start token prepended."""
    return torch.cat([rows.new_full((len(rows), 1), START), rows], 1)


@torch.inference_mode()
def _target_probabilities(
    model: torch.nn.Module, source: Int[Tensor, " m"], targets: Int[Tensor, "texts n"]
) -> Float[Tensor, " texts"]:
    sources = source.expand(len(targets), -1)
    lengths = torch.full((len(targets),), len(source))
    return _chosen(model(sources, lengths, after_start(targets[:, :-1])), targets).exp()


@torch.inference_mode()
def _masked_log_probabilities(
    model: torch.nn.Module, rows: Int[Tensor, "texts n"], tokens: int
) -> Float[Tensor, " texts"]:
    """Return sums over t of log P(x_t | the other tokens); the mask has id `tokens`."""
    total = torch.zeros(len(rows), dtype=torch.float64)
    for t in range(rows.shape[1]):
        masked = rows.clone()
        masked[:, t] = tokens
        total += _chosen(model(masked)[:, t : t + 1, :tokens], rows[:, t : t + 1])
    return total


def _chosen(logits: Float[Tensor, "b n v"], ids: Int[Tensor, "b n"]) -> Float[Tensor, " b"]:
    return logits.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1).sum(-1)
