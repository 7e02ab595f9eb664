"""Biases on the scores instead of concatenated positions."""

from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from regard.attention import Softmax
from regard.attention.contract_cases import TableBias
from regard.positions import RelativeBias, ShawVectors, Sinusoidal
from regard.positions.rotary import frequencies
from regard.studies.figure import figure, heat_map
from regard.studies.finding import Measurements, at_most, equal, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest

ROUNDING = 1e-10


class Heads(NamedTuple):
    """Queries, keys and values, and position vectors for queries and keys."""

    query: Float[Tensor, "1 heads n d"]
    key: Float[Tensor, "1 heads n d"]
    value: Float[Tensor, "1 heads n d"]
    query_position: Float[Tensor, "1 heads n d"]
    key_position: Float[Tensor, "1 heads n d"]


@study()
def relative_bias(
    length: Annotated[int, Meta(ge=3, le=128)] = 16,
    heads: Annotated[int, Meta(ge=1, le=16)] = 4,
    clip: Annotated[int, Meta(ge=1, le=128)] = 4,
    d: Annotated[int, Meta(ge=2, le=128, multiple_of=2)] = 8,
    scaled: bool = False,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which bias on the scores equals concatenated positions in queries and keys?

    π_ij = q_i·k_j of the position vectors, exactly. If it depends on i − j alone, m heads learn
    (2(T − 1) + 1)m parameters, or (2k + 1)m if distances are clipped at k.

    $$ a_i = \frac{\sum_j e^{q_i^\top k_j + \pi_{ij}} v_j}{\sum_j e^{q_i^\top k_j + \pi_{ij}}},
    \quad \pi_{ij} = q_i^{pos} \cdot k_j^{pos} $$

    Outputs and weights with a bias are compared with those of concatenated vectors; they are equal
    for unscaled scores.

    Figure. Left: the bias, with one value along each diagonal. Middle and right: weights of a head
    with concatenated sinusoids, and with this bias; they are {same}.

    Args:
        length: T, number of tokens
        heads: m, number of heads
        clip: k, distance at which distances are clipped
        d: width of a head
        scaled: whether scores are divided by the root of the width
    """
    draw, places = torch.Generator().manual_seed(seed), torch.arange(length)
    given = Heads(*draw_normal(draw, 5, 1, heads, length, d))
    attend, distances = Softmax(scaled=scaled), sinusoidal_bias(length, heads, d)
    weights = attend.weights(given.query, given.key, bias=distances)
    weights_concatenated = attend.weights(*concatenated(with_sinusoids(given)))
    biased = attend(given.query, given.key, given.value, bias=pair_bias(given))
    error = largest(biased - attend(*concatenated(given), given.value))
    yield at_most("difference between a bias and concatenation, outputs", error, ROUNDING)
    error = largest(weights - weights_concatenated)
    name = "difference between a bias by distance and concatenated sinusoids, weights"
    yield at_most(name, error, ROUNDING)
    yield from _parameters(length, heads, clip, d)
    name = "difference from the formula as printed in the course"
    yield informational(name, largest(biased - as_printed(given, pair_bias(given))))
    yield informational(f"{name}, normalized: v_i", largest(biased - given.value))
    numbers, axes = distances.dense(places, places)[0], {"x": "key", "y": "query"}
    panels = (
        heat_map(numbers, title=r"$\pi$", most=largest(numbers), unit=r"$\pi$", **axes),
        heat_map(weights_concatenated[0, 0], title="weights, concatenated", unit="weight", **axes),
        heat_map(weights[0, 0], title=r"weights, with $\pi$", unit="weight", **axes),
    )
    yield figure(*panels, same="the same" if error < ROUNDING else "different")


def _parameters(length: int, heads: int, clip: int, d: int) -> Measurements:
    each, clipped = RelativeBias(heads=heads, length=length), RelativeBias(heads=heads, clip=clip)
    yield equal("parameters, (2(T − 1) + 1)m", count(each), (2 * (length - 1) + 1) * heads)
    yield equal("parameters, clipped, (2k + 1)m", count(clipped), (2 * clip + 1) * heads)
    shaw = count(ShawVectors(d=d, clip=clip))
    yield equal("parameters of Shaw's vectors, 2(2k + 1)d", shaw, 2 * (2 * clip + 1) * d)


def pair_bias(given: Heads) -> TableBias:
    """Return a bias for each pair: the product of the position vectors."""
    return TableBias((given.query_position @ given.key_position.mT)[0])


def concatenated(given: Heads) -> list[Float[Tensor, "1 heads n e"]]:
    """Return queries and keys, each concatenated with its position vectors."""
    pairs = (given.query, given.query_position), (given.key, given.key_position)
    return [torch.cat(pair, -1) for pair in pairs]


def with_sinusoids(given: Heads) -> Heads:
    """Return heads with sinusoids as position vectors."""
    length, d = given.query.shape[2:]
    sinusoids = Sinusoidal(length=length, d=d).vectors.expand_as(given.query)
    return given._replace(query_position=sinusoids, key_position=sinusoids)


def sinusoidal_bias(length: int, heads: int, d: int) -> RelativeBias:
    """Return a bias by distance that equals the product of sinusoids, Σ_k cos(ω_k(j − i))."""
    bias = RelativeBias(heads=heads, length=length).double().requires_grad_(False)
    distances = torch.arange(1 - length, length, dtype=torch.float64)
    bias.values.copy_(torch.outer(distances, frequencies(d, 10_000.0)).cos().sum(-1))
    return bias


def as_printed(given: Heads, bias: TableBias) -> Float[Tensor, "1 heads n d"]:
    """Return the sum as printed in the course: Σ_j e^(q_i·k_j + π_ij) v_i."""
    return (given.query @ given.key.mT + bias.table).exp().sum(-1, keepdim=True) * given.value


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())
