"""Attention of low rank by singular values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax, truncate
from regard.config import override
from regard.explorer.intercept import capture_attention
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.costs import multiplications
from regard.studies.figure import Line, one_chart, series
from regard.studies.finding import EvidenceParts, Measurement, at_most, equal, informational, table
from regard.studies.model_cache import cached_run
from regard.studies.study import Seed, study
from regard.studies.tensors import normal, relative_error
from regard.tasks.world import WorldConfig, make_world
from regard.text.corpus import Document
from regard.training.plan import plan_pretraining

Maps = Float[Tensor, "maps n n"]
TOKENS = 128
"""Characters of the texts whose maps are looked at."""
_HELD_OUT = 8
"""Texts that the model isn't trained on."""
_NEAR = 0.1
"""The relative error that passes for near."""


@study(trains=True)
def truncation(
    n: Annotated[int, Meta(ge=8, le=256)] = 64,
    h: Annotated[int, Meta(ge=2, le=64)] = 16,
    rank: Annotated[int, Meta(ge=1, le=8)] = 6,
    kept: Annotated[int, Meta(ge=1, le=8)] = 6,
    steps: Annotated[int, Meta(ge=1, le=1000)] = 300,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""If attention maps have low rank, how much computation is saved?

    Given the factors of a map of rank k, PV takes 2nkh multiplications instead of n²h, exactly.
    Softmax maps have full rank n, but the relative error of a truncated map of a trained model is
    below a tenth with less than half of the rank.

    $$ P V = U_k \left(\Sigma_k W_k^\top V\right), \quad \|P - P_k\|_F^2 = \sum_{i > k} \sigma_i^2
    $$

    A matrix of rank k is a product of an n × k and a k × n matrix, and the values can be
    multiplied with the second one first. That pays where k < n/2. If fewer singular values are
    kept than the rank, the error is exactly what the others amount to, and no matrix of that rank
    is nearer (Eckart & Young, 1936).

    The map of known rank is that of queries of which only k differ. Real maps are taken from a
    small encoder with two layers of two heads that was trained to tell masked characters of
    made-up biographies, on texts that it wasn't trained on. Before training they are nearly
    uniform, and rank 1 is near. Training makes heads sharper, and the sharper a head, the more
    singular values it needs: a head by which each token looks at another one is a permutation, with
    all singular values alike.

    So a low rank is no law. Half the rank saves nothing yet, and finding the factors costs an SVD:
    this shows what there is to save, and not how.

    Figure. Relative error of truncated maps against the rank kept. Lines: means over heads and
    texts; bands: least to largest; dotted: a tenth. Untrained maps are near uniform with one
    singular value; those of a trained model need far more, and differ; those of random queries and
    keys need most.

    Args:
        n: tokens of the map of rank k
        h: width of its values
        rank: its rank
        kept: k, singular values kept
        steps: steps that the model trains
        seed: seed of all draws
    """
    maps = biography_maps(steps, seed) | {"q, k ~ N(0, 1)": random_maps(seed)}
    yield from exactness(n, h, rank, kept, seed)
    yield from real(maps["trained"])
    values = {name: spectra(each) for name, each in maps.items()}
    rows = [
        (name, *(ranks(each, error).mean().item() for error in (0.0, 0.5, 0.1, 0.01)))
        for name, each in values.items()
    ]
    yield table(["maps", "rank", "for an error of ½", "of a tenth", "of a hundredth"], rows)
    curves = []
    for name, each in values.items():
        left = left_over(each)
        low, high = left.amin(0), left.amax(0)
        curves.append(series(range(left.shape[1]), left.mean(0), name, low=low, high=high))
    yield one_chart(
        *curves,
        Line(y=_NEAR, label="a tenth"),
        x="singular values kept",
        y="relative error",
        y_scale="log",
        y_limits=(1e-4, 1.2),
    )


def exactness(n: int, h: int, rank: int, kept: int, seed: int) -> Iterator[Measurement]:
    """What truncation does to a map of known rank."""
    matrix, value = map_of_rank(n, h, rank, seed)
    cut, half = truncate(matrix, kept), max(rank // 2, 1)
    tail, rounding = torch.linalg.svdvals(matrix)[half:].norm(), 1e-13 * float(matrix.norm())
    lost = (matrix - truncate(matrix, half).matrix).norm()
    error = relative_error(cut @ value, matrix @ value)
    yield equal("rank of the map", torch.linalg.matrix_rank(matrix), rank)
    yield at_most(f"error of PV with k = {kept}", error, 1e-12)
    yield equal(f"‖P − P_k‖ with k = {half}", lost, tail, within=rounding)
    yield equal("multiplications of PV", multiplications(lambda: matrix @ value), n * n * h)
    factored = multiplications(lambda: cut @ value)
    yield equal("multiplications with factors", factored, 2 * n * kept * h)


def real(maps: Maps) -> Iterator[Measurement]:
    """Whether maps have full rank, and a lower one is near."""
    values = spectra(maps)
    n = values.shape[-1]
    yield equal("rank of trained maps, of n", ranks(values, 0.0).mean() / n, 1)
    yield at_most("rank near trained maps, of n", ranks(values, _NEAR).mean() / n, 0.5)
    yield informational("the same, the sharpest map", ranks(values, _NEAR).max() / n)
    yield informational("the same, the broadest map", ranks(values, _NEAR).min() / n)


def map_of_rank(
    n: int, h: int, rank: int, seed: int
) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n h"]]:
    """The softmax map of queries of which only so many differ, and values."""
    key, value, queries = normal(seed, 3, n, h)
    query = queries[torch.arange(n) % rank]
    return Softmax().weights(query[None, None], key[None, None])[0, 0], value


def spectra(maps: Maps) -> Float[Tensor, "maps n"]:
    """Singular values, the largest first."""
    values: Tensor = torch.linalg.svdvals(maps)
    return values


def ranks(values: Float[Tensor, "maps n"], error: float) -> Float[Tensor, " maps"]:
    """The least rank whose best map is off by no more than a share of ‖P‖, and rounding."""
    rounding = values.shape[-1] * torch.finfo(values.dtype).eps
    return (left_over(values) > max(error, rounding)).sum(-1).double()


def left_over(values: Float[Tensor, "maps n"]) -> Float[Tensor, "maps n"]:
    """The error of the best map of each rank from 0 on, as a share of ‖P‖."""
    squares = values.square().flip(-1).cumsum(-1).flip(-1)
    return (squares / squares[:, :1]).sqrt()


def random_maps(seed: int) -> Maps:
    """Of queries and keys from N(0, 1), as wide as the model's heads."""
    query, key = normal(seed, 2, 1, 16, TOKENS, 32)
    return Softmax().weights(query, key)[0]


def biography_maps(steps: int, seed: int) -> dict[str, Maps]:
    """Maps of all heads of a model on texts that it doesn't know, before and after training."""
    texts = make_world(WorldConfig(people=200, absent=1, seed=seed)).documents
    unknown = [text for text in texts if len(text) >= TOKENS][:_HELD_OUT]
    known = [text for text in texts if text not in unknown]
    corpus = [Document(text, f"biography {i}") for i, text in enumerate(known, 1)]
    settings = [
        "tokenizer.kind=characters",
        f"model.context_length={TOKENS}",
        *("model.n_layers=2", "model.n_heads=2", "model.d_model=64"),
        f"pretraining.steps={steps}",
        f"seed={seed}",
    ]
    plan = plan_pretraining(corpus, Path("unused"), override(RECIPES["masked"], settings))
    untrained = model_maps(plan.run, unknown)
    return {"untrained": untrained, "trained": model_maps(cached_run(plan), unknown)}


def model_maps(run: Run, texts: list[str]) -> Maps:
    """The maps of all layers and heads, in float64."""
    ids = torch.tensor([run.tokenizer.encode(text)[:TOKENS] for text in texts])
    captured = capture_attention(run.model.cpu().eval(), ids)
    return torch.cat([layer.weights.flatten(0, 1) for layer in captured]).double()
