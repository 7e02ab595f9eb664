"""Attention of low rank by projecting keys and values."""

import math
from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Linformer, Softmax
from regard.errors import UserError
from regard.studies.costs import Call, multiplications
from regard.studies.figure import Chart, Line, chart, figure, series
from regard.studies.finding import Measurements, at_most, equal, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, relative_error, seeded, slow_walks

_TEXTS = 64
"""Number of training sequences of a Linformer, and of test sequences."""


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
    If tokens are independent (reach=0), its error is hardly below that of the mean of all values.

    Figure. Left: error without softmax against the number of rows of C and D. It falls slowly, and
    to rounding at the rank of P. Line: norm of the omitted singular values. Dots: measured. Right:
    error of a Linformer that learns to imitate softmax attention. It falls below that of the mean
    of all values (dotted).

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
    training = imitate(n, h, rows, reach=reach, steps=steps, seed=seed)
    yield equal("rank of P", torch.linalg.matrix_rank(scores), rank)
    yield from _products(query, key, value, rows)
    initial, final = training.errors[0], training.errors[-1]
    yield informational("error of trained Linformer", final)
    yield at_most("error of trained / random Linformer", final / initial, 0.5)
    yield at_most("error of trained Linformer / mean of all values", final / training.mean, 0.9)
    by_step = chart(
        series(training.steps, training.errors, color=1),
        Line(y=training.mean, label="mean of all values"),
        title="Linformer, trained to imitate softmax",
        x="steps",
        y_scale="log",
    )
    yield figure(_error_by_rank(scores), by_step)


Vectors: TypeAlias = Float[Tensor, "n h"]
Rows: TypeAlias = Float[Tensor, "k n"]


def _products(query: Vectors, key: Vectors, value: Vectors, rows: int) -> Measurements:
    """Yield errors and multiplications of the products without an n × n matrix."""
    n, h = query.shape
    root = math.sqrt(h)
    scores = query @ key.mT / root
    c = torch.linalg.svd(scores, full_matrices=False).Vh[:rows]
    ways: dict[str, tuple[Call, int]] = {
        "(QKᵀ)V": (lambda: query @ key.mT @ value, 2 * n * n * h),
        "Q(CK)ᵀDV": (lambda: projected(query, key, value, c / root, c), 4 * n * rows * h),
        "Q(KᵀV)": (lambda: query @ (key.mT @ value), 2 * n * h * h),
    }
    narrow, regrouped = projected(query, key, value, c / root, c), query @ (key.mT @ value) / root
    inside = Softmax()(*(x[None, None] for x in (query, c @ key, c @ value)))[0, 0]
    yield at_most("error of Q(CK)ᵀDV", relative_error(narrow, scores @ value), 1e-12)
    yield at_most("error of Q(KᵀV)/√h", relative_error(regrouped, scores @ value), 1e-12)
    for name, (call, count) in ways.items():
        yield equal(f"multiplications of {name}", multiplications(call), count)
    error = relative_error(inside, scores.softmax(-1) @ value)
    yield informational("error of the same C and D inside softmax", error)


def _error_by_rank(scores: Float[Tensor, "n n"]) -> Chart:
    _, tail, right = torch.linalg.svd(scores, full_matrices=False)
    ranks = range(1, min(len(scores), 24) + 1)
    omitted = [max(float(tail[k:].norm() / tail.norm()), 1e-17) for k in ranks]
    errors = [relative_error(scores @ right[:k].mT @ right[:k], scores) for k in ranks]
    return chart(
        series(ranks, omitted),
        series(ranks, errors, style="dots", color=0),
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


class Training(NamedTuple):
    """Errors on test sequences."""

    steps: list[int]
    errors: list[float]
    """Errors of Linformer after these steps, including the first and last."""
    mean: float
    """Error of the mean of all values, without keys."""


def imitate(n: int, h: int, k: int, *, reach: float, steps: int, seed: int) -> Training:
    """Train a Linformer of k rows to imitate softmax attention on slow walks."""
    states, values = (
        slow_walks(2 * _TEXTS, n, h, reach=reach, seed=(seed, i)).float() for i in range(2)
    )
    exact = Softmax()(states, states, values)
    linformer = seeded(lambda: Linformer(length=n, k=k), seed)
    optimizer = torch.optim.Adam(linformer.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    train, test = slice(_TEXTS), slice(_TEXTS, None)

    def error(part: slice) -> Tensor:
        found = linformer(states[part], states[part], values[part])
        relative: Tensor = (found - exact[part]).norm() / exact[part].norm()
        return relative

    points, errors = [], []
    for step in range(steps + 1):
        if step % max(steps // 20, 1) == 0 or step == steps:
            points.append(step)
            with torch.no_grad():
                errors.append(float(error(test)))
        optimizer.zero_grad()
        error(train).backward()
        optimizer.step()
        schedule.step()
    mean = values[test].mean(2, keepdim=True)
    return Training(points, errors, relative_error(mean, exact[test]))
