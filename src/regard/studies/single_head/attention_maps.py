"""Attention maps: of random queries and keys, and with masks."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Mask, Softmax
from regard.errors import UserError
from regard.studies.figure import Chart, HeatMap, figure, formula_chart, heat_map
from regard.studies.finding import (
    Measurement,
    Measurements,
    Outside,
    at_least,
    at_most,
    equal,
    informational,
    look_inside,
)
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest, mean_error, normal

DRAWS = 50
"""Number of random heads."""
SHOWN = 64
"""Largest number of tokens in a heat map."""
NEAR = 0.011
"""Largest error of the formula for 18 pairs of h, from 8 to 256, and n, from 20 to 512."""
Vectors: TypeAlias = Float[Tensor, "1 heads n d"]
Lengths: TypeAlias = tuple[Annotated[int, Meta(ge=1, le=64)], ...]
HEADS, D = 4, 16
"""Number of heads behind masks, and their width."""


@study()
def random_heads(
    h: Annotated[int, Meta(ge=2, le=512)] = 64,
    n: Annotated[int, Meta(ge=2, le=512)] = 20,
    h_beyond: Annotated[int, Meta(ge=2, le=512)] = 8,
    n_beyond: Annotated[int, Meta(ge=2, le=512)] = 128,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How do attention maps of random Q and K differ from those with Q = K?

    Weights sum to 1 over the keys, not over the queries. If Q = K, each query gives nearly all of
    its weight to its own key, and the map is close to the identity.

    $$ E[\alpha_{ii}] \approx \sigma\left(\frac{m}{\sqrt{1 + \frac{\pi}{4} \left(1 - \frac{1}{2
    \sqrt{h}}\right)^2}}\right), \quad m = \sqrt{h} - \tfrac{1}{2} - \ln(n - 1) $$

    The error of the formula is at most 0.011 for h = 8 to 256 and n = 20 to 512.

    Figure. Maps of weights, at most the first {most} tokens. With independent queries and keys the
    weight is spread over all keys. With Q = K it is mostly on the diagonal for {within}, and less
    so for {beyond}. The diagonal weight rises with h; more tokens need a larger h. Lines: formula.
    Dots: measured.

    Args:
        h: length of queries and keys
        n: number of tokens
        h_beyond: length for which the condition isn't met
        n_beyond: number of tokens for which the condition isn't met
    """
    query, key = normal(seed, 2, DRAWS, 1, n, h)
    independent, same = Softmax().weights(query, key)[:, 0], equal_maps(h, n, seed)
    beyond = equal_maps(h_beyond, n_beyond, seed)
    name = "largest deviation from 1 of a sum over"
    yield at_most(f"{name} keys", largest(independent.sum(-1) - 1), 1e-12)
    yield at_least(f"{name} queries", largest(independent.sum(-2) - 1), 0.1)
    sums = independent[0].sum(-2)
    yield informational("map shown: least sum over queries", sums.min())
    yield informational("map shown: largest sum over queries", sums.max())
    yield by_formula(same, h)
    yield by_formula(beyond, h_beyond)
    yield _near_identity(same, h)
    value = normal(seed + 1, DRAWS, n, 64)
    error = (same @ value - value).norm(dim=-1) / value.norm(dim=-1)
    yield at_most("mean of ‖o_i − v_i‖/‖v_i‖", error.mean(), 0.1)
    yield Outside("e^√h ≫ n√e", [_near_identity(beyond, h_beyond)])
    panels = (
        _first_map(independent, h, "$Q$, $K$ random"),
        _first_map(same, h, "$Q = K$"),
        _first_map(beyond, h_beyond, "$Q = K$"),
        _by_length(sorted({n, n_beyond}), seed),
    )
    sizes = {"within": _size(same, h), "beyond": _size(beyond, h_beyond)}
    yield figure(*panels, columns=2, most=SHOWN, **sizes)
    both = normal(seed, DRAWS, 1, n, h)[:1]
    heads = (torch.cat([one[:1], both], 1) for one in (query, key, key))
    yield look_inside(Softmax(), *heads, title="head 0, random Q and K; head 1, Q = K")


def _first_map(maps: Float[Tensor, "draws n n"], h: int, title: str) -> HeatMap:
    n = maps.shape[-1]
    axes = {"x": f"keys 1 to {min(n, SHOWN)}", "y": "queries", "unit": "weight"}
    return heat_map(maps[0, :SHOWN, :SHOWN], title=f"{title}, $h$ = {h}, $n$ = {n}", **axes)


def _by_length(counts: Sequence[int], seed: int) -> Chart:
    """Return the diagonal weight by h, for several numbers of tokens."""
    formulas, measured = {}, {}
    for n in counts:
        weights = {h: diagonal_weight(equal_maps(h, n, seed)) for h in (4, 16, 36, 64, 100, 144)}
        formulas[f"{n} tokens"], measured[f"{n} tokens"] = partial(formula_weight, n=n), weights
    axes: dict[str, Any] = {"title": "diagonal weight, $Q = K$", "x": "$h$", "y_limits": (0, 1.03)}
    return formula_chart(range(2, 145), formulas, measured, **axes)


def equal_maps(h: int, n: int, seed: int) -> Float[Tensor, "draws n n"]:
    """Return the weights of queries that equal the keys."""
    key = normal(seed, DRAWS, 1, n, h)
    return Softmax().weights(key, key)[:, 0]


def diagonal_weight(maps: Float[Tensor, "draws n n"]) -> float:
    """Return the mean weight of a query's own key."""
    return float(maps.diagonal(dim1=-2, dim2=-1).mean())


def formula_weight(h: int, n: int) -> float:
    """Return the formula's diagonal weight: the mean of a logistic function of a normal number."""
    mean = math.sqrt(h) - 0.5 - math.log(n - 1)
    deviation = math.sqrt(2) * (1 - 1 / (2 * math.sqrt(h)))
    return 1 / (1 + math.exp(-mean / math.sqrt(1 + math.pi * deviation**2 / 8)))


def by_formula(maps: Float[Tensor, "draws n n"], h: int) -> Measurement:
    """Return the diagonal weight, which must equal the formula's within four standard errors."""
    within = NEAR + 4 * mean_error(maps.diagonal(dim1=-2, dim2=-1).mean(-1))
    name = f"diagonal weight by the formula: {_size(maps, h)}"
    return equal(name, diagonal_weight(maps), formula_weight(h, maps.shape[-1]), within)


def _near_identity(maps: Float[Tensor, "draws n n"], h: int) -> Measurement:
    name = f"required diagonal weight of a near identity: {_size(maps, h)}"
    return at_least(name, diagonal_weight(maps), 0.9)


def _size(maps: Float[Tensor, "draws n n"], h: int) -> str:
    return f"h = {h}, n = {maps.shape[-1]}"


@study()
def masking(
    sources: Annotated[Lengths, Meta(min_length=1, max_length=12)] = (8, 5, 3, 6),
    targets: Annotated[Lengths, Meta(min_length=1, max_length=12)] = (6, 4, 2, 5),
    row: Annotated[int, Meta(ge=1, le=12)] = 2,
    hidden: Annotated[int, Meta(ge=1, le=64)] = 3,
    size: Annotated[float, Meta(gt=0, le=1000)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which positions does attention mask, and how?

    A score of −∞ gives the same weights as a column set to zero and rows renormalized; padding and
    future positions get a weight of exactly 0.

    $$ \frac{\mathrm{softmax}(s)_j \, b_j}{\sum_l \mathrm{softmax}(s)_l \, b_l} = \mathrm{softmax}(s
    + \ln b)_j, \quad b_j \in \{0, 1\} $$

    The ways to mask one key are compared. If the masked key has nearly all the weight, the rest is
    lost to rounding, and the row can't be renormalized; try size = 1000.

    Figure. Masks; a colored key is attended. Above: the real tokens of each text, without its
    padding. Below, for text {row}: cross-attention, where all queries attend to all real tokens of
    the source; and self-attention of the decoder, a triangle that ends where the padding begins.

    Args:
        sources: lengths of the encoder's texts
        targets: lengths of the decoder's texts
        row: index of the text in the lower panels, from 1
        hidden: index of the masked token, from 1
        size: size of queries and keys
    """
    _require(sources, targets, row, hidden)
    query, key = size * normal(seed, 2, 1, HEADS, max(sources), D)
    yield from ways_to_mask(query, key, hidden - 1)
    panels, masks = [], four_masks(sources, targets, row)
    for name, (mask, queries, keys, allowed) in masks.items():
        attended = weights_for_equal_scores(mask, queries, keys) > 0
        rows = "texts" if "padding" in name else "queries"
        yield equal(f"pairs with any weight: {name}", attended.sum(), allowed)
        axes = {"title": name, "x": "keys", "y": rows, "unit": "1 = attended"}
        panels.append(heat_map(attended.double(), **axes))
    yield figure(*panels, columns=2)
    yield look_inside(
        Softmax(),
        *(size * normal(seed, 2, 1, HEADS, max(targets), D)),
        torch.eye(max(targets), dtype=torch.float64).expand(1, HEADS, -1, -1),
        mask=masks["decoder self-attention"][0],
        title=f"self-attention of the decoder, text {row} with its padding",
    )


def ways_to_mask(query: Vectors, key: Vectors, hidden: int) -> Measurements:
    """Compare a score of −∞, a weight of 0 with and without renormalization, and a score of 0."""
    attend, keep = Softmax(), torch.arange(key.shape[2])[None] != hidden
    masked, plain = (attend.weights(query, key, mask=mask) for mask in (Mask.positions(keep), None))
    zeroed = plain * keep
    renormalized = zeroed / zeroed.sum(-1, keepdim=True)
    # A row that can't be renormalized counts as a difference of 1.
    difference = (masked - renormalized).abs().nan_to_num(1.0).max()
    yield at_most("largest difference between −∞ and renormalization", difference, 1e-12)
    yield equal("weight of the masked token, score −∞", masked[..., hidden].max(), 0)
    scored_zero = attend.weights(query, key * keep[..., None])  # a key of zeros has the score 0
    shown = scored_zero[..., hidden].mean()
    yield informational("mean weight of the masked token, score 0", shown)
    yield informational("smallest sum over keys, not renormalized", zeroed.sum(-1).min())


def weights_for_equal_scores(mask: Mask, queries: int, keys: int) -> Float[Tensor, "rows keys"]:
    """Return the weights; for several texts with one query each, in rows."""
    texts = 1 if mask.key_lengths is None else len(mask.key_lengths)
    query, key = (torch.zeros(texts, 1, count, 1) for count in (queries, keys))
    return Softmax().weights(query, key, mask=mask).flatten(0, 2)


def four_masks(
    sources: Lengths, targets: Lengths, row: int
) -> dict[str, tuple[Mask, int, int, int]]:
    """Return the masks by name: two for all texts, and two for one of them.

    With each are the numbers of queries, of keys, and of allowed pairs by real tokens.
    """
    n, m, real = max(sources), max(targets), targets[row - 1]
    source, target = (Mask.lengths(torch.tensor(lengths)) for lengths in (sources, targets))
    one = slice(row - 1, row)
    causal, lower = Mask.causal() & target.rows(one), real * (real + 1) // 2 + (m - real) * real
    return {
        "encoder padding": (source, 1, n, sum(sources)),
        "decoder padding": (target, 1, m, sum(targets)),
        "cross-attention": (source.rows(one), m, n, m * sources[row - 1]),
        "decoder self-attention": (causal, m, m, lower),
    }


def _require(sources: Lengths, targets: Lengths, row: int, hidden: int) -> None:
    """Check that lengths and indices fit.

    Raises:
        UserError: one doesn't; says which.
    """
    texts, longest = len(sources), max(sources)
    for fits, wrong in (
        (texts == len(targets), f"targets: {len(targets)} for {texts} sources; give equally many"),
        (row <= texts, f"row = {row}, but there are {texts} texts; use at most {texts}"),
        (longest > 1, "sources: all have one token; use at least two in one of them"),
        (hidden <= longest, f"hidden = {hidden}, but the longest source has {longest}; use less"),
    ):
        if not fits:
            raise UserError(f"masking: {wrong}")
