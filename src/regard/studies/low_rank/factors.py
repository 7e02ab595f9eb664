"""Attention of low rank: by singular values, and by projecting keys and values."""

import math
from copy import deepcopy
from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Linformer, Softmax, truncate
from regard.errors import UserError
from regard.explorer.intercept import capture_attention
from regard.runs.run import Run
from regard.studies.costs import Call, multiplications
from regard.studies.figure import Chart, Line, chart, figure, series
from regard.studies.finding import Measurements, at_most, equal, informational
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, normal, relative_error, seeded, slow_walks
from regard.tasks.world import WorldConfig, make_world
from regard.text.corpus import Document
from regard.training.optimizers import Adam
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource

Maps: TypeAlias = Float[Tensor, "maps n n"]
Vectors: TypeAlias = Float[Tensor, "n h"]
Rows: TypeAlias = Float[Tensor, "k n"]
TOKENS = 128
"""Number of characters of each test text."""
_HELD_OUT = 8
"""Number of test texts."""
_NEAR = 0.1
"""Relative error of an accurate approximation."""
_TEXTS = 64
"""Number of training sequences of a Linformer, and of test sequences."""


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
    absent from its training.

    Figure. Relative error of truncated maps against the rank. Lines: means over heads and texts.
    Bands: smallest to largest. Dotted: a tenth. Untrained maps are nearly uniform, with one large
    singular value; those of a trained model need far more.

    Args:
        n: number of tokens of the map of known rank
        h: width of its values
        rank: its rank
        kept: k, number of singular values kept
        steps: training steps of the model
        seed: seed of all draws
    """
    query, key = normal(seed, 2, 1, 16, TOKENS, 32)  # as wide as the model's heads
    maps = biography_maps(steps, seed) | {"q, k ~ N(0, 1)": Softmax().weights(query, key)[0]}
    yield from exactness(n, h, rank, kept, seed)
    yield from trained_ranks(maps["trained"])
    errors = {name: truncation_errors(torch.linalg.svdvals(each)) for name, each in maps.items()}
    curves = [
        series(range(TOKENS), each.mean(0), name, low=each.amin(0), high=each.amax(0))
        for name, each in errors.items()
    ]
    line, limits = Line(y=_NEAR, label="a tenth"), (1e-4, 1.2)
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
    full, near = (ranks(values, error).mean() / values.shape[-1] for error in (0.0, _NEAR))
    yield equal("rank / n of trained maps", full, 1)
    yield at_most("rank / n for a relative error of a tenth, mean", near, 0.5)


def map_of_rank(n: int, h: int, rank: int, seed: int) -> tuple[Float[Tensor, "n n"], Vectors]:
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


def biography_maps(steps: int, seed: int) -> dict[str, Maps]:
    """Return maps of all heads of a model on test texts, before and after training."""
    texts = make_world(WorldConfig(people=200, absent=1, seed=seed)).documents
    test = [text for text in texts if len(text) >= TOKENS][:_HELD_OUT]
    train = [text for text in texts if text not in test]
    corpus = [Document(text, f"biography {i}") for i, text in enumerate(train, 1)]
    settings = [
        *("tokenizer.kind=characters", f"model.context_length={TOKENS}"),
        *("model.n_layers=2", "model.n_heads=2", "model.d_model=64"),
        *(f"training.steps={steps}", f"seed={seed}"),
    ]
    plan = plan_training(DocumentSource(corpus), "masked", "unused", settings=settings)
    untrained = model_maps(plan.run, test)
    return {"untrained": untrained, "trained": model_maps(cached_run(plan), test)}


def model_maps(run: Run, texts: list[str]) -> Maps:
    """Return the maps of all layers and heads, in float64."""
    ids = torch.tensor([run.tokenizer.encode(text)[:TOKENS] for text in texts])
    model = deepcopy(run.model).cpu().double().eval()  # in float32, rounding has full rank
    captured = capture_attention(model, ids)
    return torch.cat([layer.weights.flatten(0, 1) for layer in captured])


@study()
def projection(
    n: Annotated[int, Meta(ge=16, le=128)] = 64,
    h: Annotated[int, Meta(ge=2, le=32)] = 16,
    rank: Annotated[int, Meta(ge=1, le=32)] = 6,
    rows: Annotated[int, Meta(ge=1, le=32)] = 6,
    reach: Annotated[float, Meta(ge=0, le=512)] = 16.0,
    steps: Annotated[int, Meta(ge=1, le=500)] = 300,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Can keys and values be projected to a few rows, so that attention becomes linear?

    Without softmax, exactly: if P = QKᵀ/√h = UΣWᵀ has rank k, then C = Wᵀ/√h and D = Wᵀ with k rows
    give PV = Q(CK)ᵀDV. With softmax, approximately: learned projections (Linformer) have a fraction
    of the error of random ones.

    $$ Q (C K)^\top D V = \frac{Q K^\top}{\sqrt{h}} W W^\top V = P V $$

    Errors and multiplications are measured for a P of known rank, and with the same C and D inside
    the softmax. A Linformer learns to imitate softmax attention and is tested on other sequences.

    Figure. Left: error without softmax against the number of rows of C and D, down to rounding at
    the rank of P. Line: norm of the omitted singular values. Dots: measured. Right: error of a
    Linformer that learns to imitate softmax attention. Dotted: that of the mean of all values.

    Args:
        n: number of tokens
        h: width
        rank: rank of QKᵀ
        rows: k, number of rows of C and D
        reach: number of tokens over which Linformer's inputs change
        steps: training steps of Linformer
    """
    if rank > min(n, h):
        raise UserError(
            f"projection: rank = {rank}, but QKᵀ of width h = {h} and n = {n} tokens has at most "
            f"rank {min(n, h)}; use a smaller rank"
        )
    if rows > n:
        raise UserError(f"projection: rows = {rows} of n = {n} tokens; use at most n rows")
    query, key, value = draw_heads(n, h, rank, seed)
    scores = query @ key.mT / math.sqrt(h)
    errors, mean = imitate(n, h, rows, reach=reach, steps=steps, seed=seed)
    yield equal("rank of P", torch.linalg.matrix_rank(scores), rank)
    yield from _products(query, key, value, rows)
    yield informational("error of trained Linformer", errors[steps])
    yield at_most("error of trained / random Linformer", errors[steps] / errors[0], 0.5)
    yield at_most("error of trained Linformer / mean of all values", errors[steps] / mean, 0.9)
    by_step = chart(
        series(errors.keys(), errors.values(), color=1),
        Line(y=mean, label="mean of all values"),
        title="Linformer, trained to imitate softmax",
        x="steps",
        y_scale="log",
    )
    yield figure(_error_by_rank(scores), by_step)


def _products(query: Vectors, key: Vectors, value: Vectors, rows: int) -> Measurements:
    """Yield errors and multiplications of the products without an n × n matrix."""
    n, h = query.shape
    root = math.sqrt(h)
    scores = query @ key.mT / root
    c = torch.linalg.svd(scores, full_matrices=False).Vh[:rows]
    narrow, regrouped = projected(query, key, value, c / root, c), query @ (key.mT @ value) / root
    inside = Softmax()(*(x[None, None] for x in (query, c @ key, c @ value)))[0, 0]
    ways: dict[str, tuple[Call, int]] = {
        "(QKᵀ)V": (lambda: query @ key.mT @ value, 2 * n * n * h),
        "Q(CK)ᵀDV": (lambda: projected(query, key, value, c / root, c), 4 * n * rows * h),
        "Q(KᵀV)": (lambda: query @ (key.mT @ value), 2 * n * h * h),
    }
    yield at_most("error of Q(CK)ᵀDV", relative_error(narrow, scores @ value), 1e-12)
    yield at_most("error of Q(KᵀV)/√h", relative_error(regrouped, scores @ value), 1e-12)
    for name, (call, count) in ways.items():
        yield equal(f"multiplications of {name}", multiplications(call), count)
    error = relative_error(inside, scores.softmax(-1) @ value)
    yield informational("error of the same C and D inside softmax", error)


def _error_by_rank(scores: Float[Tensor, "n n"]) -> Chart:
    _, tail, right = torch.linalg.svd(scores, full_matrices=False)
    kept = range(1, min(len(scores), 24) + 1)
    omitted = [max(float(tail[k:].norm() / tail.norm()), 1e-17) for k in kept]
    errors = [relative_error(scores @ right[:k].mT @ right[:k], scores) for k in kept]
    return chart(
        series(kept, omitted),
        series(kept, errors, style="dots", color=0),
        title=r"$P \cdot W W^\top$ instead of $P$",
        x="rows of $C$ and $D$",
        y="error",
        y_scale="log",
    )


def draw_heads(n: int, h: int, rank: int, seed: int) -> list[Vectors]:
    """Draw queries that span `rank` dimensions, keys and values; QKᵀ has this rank."""
    generator = torch.Generator().manual_seed(seed)
    query = draw_normal(generator, n, rank) @ draw_normal(generator, rank, h) / math.sqrt(rank)
    return [query, draw_normal(generator, n, h), draw_normal(generator, n, h)]


def projected(query: Vectors, key: Vectors, value: Vectors, c: Rows, d: Rows) -> Vectors:
    """Return Q(CK)ᵀDV without an n × n matrix."""
    product: Tensor = query @ (c @ key).mT @ (d @ value)
    return product


def imitate(
    n: int, h: int, k: int, *, reach: float, steps: int, seed: int
) -> tuple[dict[int, float], float]:
    """Train a Linformer of k rows to imitate softmax attention on slow walks.

    Returns errors on test sequences: by step, and of the mean of all values, without keys.
    """
    states, values = (
        slow_walks(2 * _TEXTS, n, h, reach=reach, seed=(seed, i)).float() for i in range(2)
    )
    exact = Softmax()(states, states, values)
    linformer = seeded(lambda: Linformer(length=n, k=k), seed)
    optimizer = Adam(linformer.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    train, test = slice(_TEXTS), slice(_TEXTS, None)

    def error(part: slice) -> Tensor:
        found = linformer(states[part], states[part], values[part])
        relative: Tensor = (found - exact[part]).norm() / exact[part].norm()
        return relative

    errors = {}
    for step in range(steps + 1):
        if step % max(steps // 20, 1) == 0 or step == steps:
            with torch.no_grad():
                errors[step] = float(error(test))
        optimizer.zero_grad()
        error(train).backward()
        optimizer.step()
        schedule.step()
    return errors, relative_error(values[test].mean(2, keepdim=True), exact[test])
