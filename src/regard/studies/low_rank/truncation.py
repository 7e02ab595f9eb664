"""Attention of low rank by singular values."""

from typing import Annotated

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax, truncate
from regard.explorer.intercept import capture_attention
from regard.runs.run import Run
from regard.studies.costs import multiplications
from regard.studies.figure import Line, chart, series
from regard.studies.finding import Measurements, at_most, equal, table
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import normal, relative_error
from regard.tasks.world import WorldConfig, make_world
from regard.text.corpus import Document
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource

Maps = Float[Tensor, "maps n n"]
TOKENS = 128
"""Number of characters of each test text."""
_HELD_OUT = 8
"""Number of test texts."""
_NEAR = 0.1
"""Relative error of an accurate approximation."""


@study(trains=True)
def truncation(
    n: Annotated[int, Meta(ge=8, le=256)] = 64,
    h: Annotated[int, Meta(ge=2, le=64)] = 16,
    rank: Annotated[int, Meta(ge=1, le=8)] = 6,
    kept: Annotated[int, Meta(ge=1, le=8)] = 6,
    steps: Annotated[int, Meta(ge=1, le=1000)] = 300,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""If attention maps have low rank, how much computation does a factorization save?

    Given the factors of a map of rank k, PV takes 2nkh multiplications instead of n²h, exactly,
    besides kh for the scaling by Σ. Softmax maps have full rank n, but the relative error of a
    truncated map of a trained model is below a tenth with less than half of the rank, on average
    over heads and texts.

    $$ P V = U_k \left(\Sigma_k W_k^\top V\right), \quad \|P - P_k\|_F^2 = \sum_{i > k} \sigma_i^2
    $$

    The map of known rank has k distinct queries. Real maps are those of a small encoder with two
    layers of two heads, trained to predict masked characters of fictional biographies, on texts
    absent from its training. Sharper heads need more singular values: if each token attends to one
    other token, the map is a permutation, and all singular values are equal.

    Figure. Relative error of truncated maps against the rank. Lines: means over heads and texts.
    Bands: smallest to largest. Dotted: a tenth. Untrained maps are nearly uniform, with one large
    singular value. Maps of a trained model need far more, and differ. Maps of random queries and
    keys need most.

    Args:
        n: number of tokens of the map of known rank
        h: width of its values
        rank: its rank
        kept: k, number of singular values kept
        steps: training steps of the model
        seed: seed of all draws
    """
    maps = biography_maps(steps, seed) | {"q, k ~ N(0, 1)": random_maps(seed)}
    yield from exactness(n, h, rank, kept, seed)
    yield from trained_ranks(maps["trained"])
    values = {name: torch.linalg.svdvals(each) for name, each in maps.items()}
    rows = [
        (name, *(ranks(each, error).mean().item() for error in (0.0, 0.5, 0.1, 0.01)))
        for name, each in values.items()
    ]
    ranks_of = [f"rank for an error of {error}" for error in ("½", "a tenth", "a hundredth")]
    yield table(["maps", "rank", *ranks_of], rows)
    curves = []
    for name, each in values.items():
        errors = truncation_errors(each)
        low, high = errors.amin(0), errors.amax(0)
        curves.append(series(range(errors.shape[1]), errors.mean(0), name, low=low, high=high))
    line = Line(y=_NEAR, label="a tenth")
    limits = (1e-4, 1.2)
    yield chart(*curves, line, x="rank", y="relative error", y_scale="log", y_limits=limits)


def exactness(n: int, h: int, rank: int, kept: int, seed: int) -> Measurements:
    """Yield the effects of truncation on a map of known rank."""
    matrix, value = map_of_rank(n, h, rank, seed)
    truncated, half = truncate(matrix, kept), max(rank // 2, 1)
    tail, rounding = torch.linalg.svdvals(matrix)[half:].norm(), 1e-13 * float(matrix.norm())
    distance = (matrix - truncate(matrix, half).matrix).norm()
    error = relative_error(truncated @ value, matrix @ value)
    yield equal("rank of the map", torch.linalg.matrix_rank(matrix), rank)
    yield at_most(f"error of PV with k = {kept}", error, 1e-12)
    yield equal(f"‖P − P_k‖ with k = {half}", distance, tail, within=rounding)
    yield equal("multiplications of PV", multiplications(lambda: matrix @ value), n * n * h)
    factored = multiplications(lambda: truncated @ value)
    yield equal("multiplications with factors", factored, 2 * n * kept * h)


def trained_ranks(maps: Maps) -> Measurements:
    """Yield the rank of trained maps, and that of accurate approximations."""
    values = torch.linalg.svdvals(maps)
    n = values.shape[-1]
    accurate, name = ranks(values, _NEAR) / n, "rank / n for a relative error of a tenth, mean"
    yield equal("rank / n of trained maps", ranks(values, 0.0).mean() / n, 1)
    yield at_most(name, accurate.mean(), 0.5)


def map_of_rank(
    n: int, h: int, rank: int, seed: int
) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n h"]]:
    """Return the softmax map of as many distinct queries as its rank, and values."""
    key, value, queries = normal(seed, 3, n, h)
    query = queries[torch.arange(n) % rank]
    return Softmax().weights(query[None, None], key[None, None])[0, 0], value


def ranks(values: Float[Tensor, "maps n"], error: float) -> Float[Tensor, " maps"]:
    """Return the smallest ranks with at most a relative error, from decreasing singular values."""
    rounding = values.shape[-1] * torch.finfo(values.dtype).eps
    return (truncation_errors(values) > max(error, rounding)).sum(-1).double()


def truncation_errors(values: Float[Tensor, "maps n"]) -> Float[Tensor, "maps n"]:
    """Return the relative error of the best map of each rank from 0 on."""
    squares = values.square().flip(-1).cumsum(-1).flip(-1)
    return (squares / squares[:, :1]).sqrt()


def random_maps(seed: int) -> Maps:
    """Return maps of queries and keys from N(0, 1), as wide as the model's heads."""
    query, key = normal(seed, 2, 1, 16, TOKENS, 32)
    return Softmax().weights(query, key)[0]


def biography_maps(steps: int, seed: int) -> dict[str, Maps]:
    """Return maps of all heads of a model on test texts, before and after training."""
    texts = make_world(WorldConfig(people=200, absent=1, seed=seed)).documents
    test = [text for text in texts if len(text) >= TOKENS][:_HELD_OUT]
    train = [text for text in texts if text not in test]
    corpus = [Document(text, f"biography {i}") for i, text in enumerate(train, 1)]
    settings = [
        "tokenizer.kind=characters",
        f"model.context_length={TOKENS}",
        *("model.n_layers=2", "model.n_heads=2", "model.d_model=64"),
        f"training.steps={steps}",
        f"seed={seed}",
    ]
    plan = plan_training(DocumentSource(corpus), "masked", "unused", settings=settings)
    untrained = model_maps(plan.run, test)
    return {"untrained": untrained, "trained": model_maps(cached_run(plan), test)}


def model_maps(run: Run, texts: list[str]) -> Maps:
    """Return the maps of all layers and heads, in float64."""
    ids = torch.tensor([run.tokenizer.encode(text)[:TOKENS] for text in texts])
    captured = capture_attention(run.model.cpu().eval(), ids)
    return torch.cat([layer.weights.flatten(0, 1) for layer in captured]).double()
