"""A bias on the scores in place of positions beside the words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor, nn

from regard.attention import Softmax
from regard.positions import RelativeBias, ShawVectors, Sinusoidal
from regard.positions.rotary import frequencies
from regard.studies.figure import figure, heat_map
from regard.studies.finding import EvidenceParts, at_least, at_most, equal, informational
from regard.studies.study import Seed, study
from regard.studies.tensors import draw_normal, largest

ROUNDING = 1e-10


@dataclass(frozen=True)
class PairBias:
    """A number for each head, query and key, which need not depend on their distance."""

    values: Float[Tensor, "heads queries keys"]

    def dense(
        self, query_positions: Int[Tensor, " queries"], key_positions: Int[Tensor, " keys"]
    ) -> Float[Tensor, "heads queries keys"]:
        """The numbers of these queries and keys."""
        return self.values[:, query_positions][:, :, key_positions]

    def score_mod(self) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
        """The same, added pair by pair."""

        def add(score: Tensor, _row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score + self.values[head, query, key]

        return add


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
    (2(T − 1) + 1)m numbers, or (2k + 1)m if distances are clipped at k.

    $$ a_i = \frac{\sum_j e^{q_i^\top k_j + \pi_{ij}} v_j}{\sum_j e^{q_i^\top k_j + \pi_{ij}}},
    \quad \pi_{ij} = q_i^{pos} \cdot k_j^{pos} $$

    Position vectors beside queries and keys add q_i·k_j of their own to each score. Whoever adds
    these numbers to the scores themselves gets the same weights, and needs no wider heads. With
    sinusoids the number is Σ cos(ω_k(i − j)): it depends on the distance alone, so that one number
    for each distance does it all, and these can as well be learned.

    It is exact for scores as they are. Where they are divided by the root of the width, the wider
    vectors divide by √(2d), and it takes other numbers.

    Shaw's way is another one: a vector for each distance, multiplied with the query. A word can
    then look farther than another one, which no bias by distance allows.

    Figure. Left: the bias, one number along each diagonal. Middle and right: weights of a head with
    concatenated sinusoids, and with this bias; they are {same}.

    Args:
        length: T, tokens
        heads: m, heads
        clip: k, farthest distance of its own
        d: width of a head
        scaled: whether scores are divided by the root of the width
    """
    draw, places = torch.Generator().manual_seed(seed), torch.arange(length)
    given = Heads(*draw_normal(draw, 5, 1, heads, length, d))
    attend = Softmax(scaled=scaled)
    free = PairBias((given.query_position @ given.key_position.mT)[0])
    biased = attend(given.query, given.key, given.value, bias=free)
    distances = wave_bias(length, heads, d)
    weights = attend.weights(given.query, given.key, bias=distances)
    weights_beside = attend.weights(*beside(with_waves(given)))
    shaw = shaw_vectors(d, clip, draw)
    each, clipped = RelativeBias(heads=heads, length=length), RelativeBias(heads=heads, clip=clip)
    learned = {
        "numbers learned, (2(T − 1) + 1)m": (each, (2 * (length - 1) + 1) * heads),
        "clipped, (2k + 1)m": (clipped, (2 * clip + 1) * heads),
        "in Shaw's vectors, 2(2k + 1)d": (shaw, 2 * (2 * clip + 1) * d),
    }
    off = largest(biased - attend(*beside(given), given.value))
    yield at_most("outputs with a bias, less those side by side", off, ROUNDING)
    name = "weights with a number a distance, less those of sinusoids side by side"
    yield at_most(name, largest(weights - weights_beside), ROUNDING)
    for name, (module, formula) in learned.items():
        yield equal(name, count(module), formula)
    added = spread(distances.dense(places, places))
    yield at_most("what a bias adds to the next key: from query to query", added, 0.0)
    added = spread(shaw.scores(given.query, places, places))
    yield at_least("what Shaw's vectors add to it: from query to query", added, 0.01)
    gap = largest(biased - as_printed(given, free))
    yield informational("gap to the sum as the course prints it", gap)
    yield informational("gap to that sum, divided: v_i", largest(biased - given.value))
    numbers, axes = distances.dense(places, places)[0], {"x": "key", "y": "query"}
    yield figure(
        heat_map(numbers, title="π", most=float(numbers.abs().max()), unit="π", **axes),
        heat_map(weights_beside[0, 0], title="weights, concatenated", unit="weight", **axes),
        heat_map(weights[0, 0], title="weights, with π", unit="weight", **axes),
        same="the same" if largest(weights_beside - weights) < ROUNDING else "different",
    )


def beside(given: Heads) -> list[Float[Tensor, "1 heads n e"]]:
    """Queries and keys with their position vectors beside them."""
    pairs = (given.query, given.query_position), (given.key, given.key_position)
    return [torch.cat(pair, -1) for pair in pairs]


def with_waves(given: Heads) -> Heads:
    """The same with sinusoids as position vectors."""
    length, d = given.query.shape[2:]
    waves = Sinusoidal(length=length, d=d).vectors.expand_as(given.query)
    return given._replace(query_position=waves, key_position=waves)


def wave_bias(length: int, heads: int, d: int) -> RelativeBias:
    """Σ_k cos(ω_k(j − i)), the product of sinusoids, as a number for each distance."""
    bias = RelativeBias(heads=heads, length=length).double().requires_grad_(False)
    distances = torch.arange(1 - length, length, dtype=torch.float64)
    bias.values.copy_(torch.outer(distances, frequencies(d, 10_000.0)).cos().sum(-1))
    return bias


def shaw_vectors(d: int, clip: int, draw: torch.Generator) -> ShawVectors:
    """Some of entries N(0, 1)."""
    shaw = ShawVectors(d=d, clip=clip).double().requires_grad_(False)
    for vectors in shaw.parameters():
        nn.init.normal_(vectors, generator=draw)
    return shaw


def as_printed(given: Heads, bias: PairBias) -> Float[Tensor, "1 heads n d"]:
    """The sum that the course prints: Σ_j e^(q_i·k_j + π_ij) v_i."""
    return (given.query @ given.key.mT + bias.values).exp().sum(-1, keepdim=True) * given.value


def count(module: nn.Module) -> int:
    """How many numbers it learns."""
    return sum(parameter.numel() for parameter in module.parameters())


def spread(added: Float[Tensor, "*heads queries keys"]) -> float:
    """How far apart what a head adds to the score of the next key is, from query to query."""
    following = added.diagonal(1, -2, -1)
    return float((following.amax(-1) - following.amin(-1)).max())
