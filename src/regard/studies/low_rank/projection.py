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
from regard.studies.figure import Line, chart, figure, series
from regard.studies.finding import EvidenceParts, at_most, equal, informational
from regard.studies.low_rank.slow_walks import slow_walks
from regard.studies.study import Seed, study
from regard.studies.tensors import draw_normal, relative_error, seeded

_TEXTS = 64
"""Sequences that a Linformer is fitted to, and as many that it is judged by."""


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

    Without softmax, exactly: if P = QKᵀ/√h = UΣWᵀ has rank k, then C = Wᵀ and D = Wᵀ/√h with k rows
    give PV = Q(CK)ᵀDV. With softmax, approximately: learned projections (Linformer) have a fraction
    of the error of random ones.

    $$ Q (C K)^\top D V = \frac{Q K^\top}{\sqrt{h}} W W^\top V = P V $$

    The rows of Wᵀ span all that the rows of P hold, so that projecting on them, WWᵀ, leaves P
    as it is; and P·WWᵀ can be done from the right, a few rows at a time. Rows fewer than the rank
    lose the smallest singular values, and nothing else.

    But C and D come from P itself. They are no good for the next text, and the SVD of P costs more
    than the attention that it is to spare. And in a Transformer softmax stands between QKᵀ and V:
    put inside it, the same C and D are far off.

    Linformer keeps the form and gives up exactness: E and F are parameters of the layer, the same
    for all texts, learned together with the rest. Here they learn to imitate softmax attention and
    are judged by other sequences. What they can learn is which positions go together. If tokens
    change slowly, as with reach=16, that is a lot. If each is a draw of its own (reach=0), no
    position tells about another, and little is gained over the mean of all values.

    Figure. Left: the error without softmax against the rows of C and D falls slowly, and at the
    rank of P to rounding. Line: norm of the singular values left out; dots: measured. Right: the
    error of a Linformer that learns to imitate softmax attention falls below that of the mean of
    all values (dotted).

    Args:
        n: tokens
        h: width
        rank: rank of QKᵀ
        rows: rows k of C and D
        reach: tokens over which Linformer's inputs change
        steps: steps that Linformer learns
    """
    if rank > min(n, h):
        raise UserError(
            f"projection: rank = {rank}, but QKᵀ of width h = {h} and n = {n} tokens has rank "
            f"{min(n, h)} at most; take a smaller rank"
        )
    if rows > n:
        raise UserError(f"projection: rows = {rows} of n = {n} tokens; take n rows at most")
    query, key, value = drawn_heads(n, h, rank, seed)
    scores = query @ key.mT / math.sqrt(h)
    exact = scores @ value
    _, tail, right = torch.linalg.svd(scores, full_matrices=False)
    c, d = right[:rows], right[:rows] / math.sqrt(h)
    ways: dict[str, tuple[Call, int]] = {
        "(QKᵀ)V": (lambda: query @ key.mT @ value, 2 * n * n * h),
        "Q(CK)ᵀDV": (lambda: projected(query, key, value, c, d), 4 * n * rows * h),
        "Q(KᵀV)": (lambda: query @ (key.mT @ value), 2 * n * h * h),
    }
    narrow, regrouped = projected(query, key, value, c, d), query @ (key.mT @ value) / math.sqrt(h)
    inside = Softmax()(*(x[None, None] for x in (query, c @ key, c @ value)))[0, 0]
    off_inside = relative_error(inside, scores.softmax(-1) @ value)
    learning = imitate(n, h, rows, reach=reach, steps=steps, seed=seed)
    yield equal("rank of P", torch.linalg.matrix_rank(scores), rank)
    yield at_most("error of Q(CK)ᵀDV", relative_error(narrow, exact), 1e-12)
    yield at_most("error of Q(KᵀV)/√h", relative_error(regrouped, exact), 1e-12)
    for name, (call, count) in ways.items():
        yield equal(f"multiplications of {name}", multiplications(call), count)
    yield informational("error of the same C and D inside softmax", off_inside)
    yield informational("error of Linformer, learned", learning.errors[-1])
    yield at_most("learned / drawn", learning.errors[-1] / learning.errors[0], 0.5)
    yield at_most("learned / mean of all values", learning.errors[-1] / learning.mean, 0.9)
    ranks = range(1, min(n, 24) + 1)
    left_over = [max(float(tail[k:].norm() / tail.norm()), 1e-17) for k in ranks]
    errors = [relative_error(scores @ right[:k].mT @ right[:k], scores) for k in ranks]
    yield figure(
        chart(
            series(ranks, left_over),
            series(ranks, errors, style="dots", color=0),
            title="P·WWᵀ instead of P",
            x="rows of C and D",
            y="error",
            y_scale="log",
        ),
        chart(
            series(learning.steps, learning.errors, color=1),
            Line(y=learning.mean, label="mean of all values"),
            title="Linformer, trained to imitate softmax",
            x="steps",
            y_scale="log",
        ),
    )


Vectors: TypeAlias = Float[Tensor, "n h"]
Rows: TypeAlias = Float[Tensor, "k n"]


def drawn_heads(n: int, h: int, rank: int, seed: int) -> list[Vectors]:
    """Queries, keys and values; the queries span so many dimensions, and QKᵀ has that rank."""
    generator = torch.Generator().manual_seed(seed)
    query = draw_normal(generator, n, rank) @ draw_normal(generator, rank, h) / math.sqrt(rank)
    return [query, draw_normal(generator, n, h), draw_normal(generator, n, h)]


def projected(query: Vectors, key: Vectors, value: Vectors, c: Rows, d: Rows) -> Vectors:
    """Q(CK)ᵀDV, from the inside out."""
    product: Tensor = query @ (c @ key).mT @ (d @ value)
    return product


class Learning(NamedTuple):
    """Errors on sequences that weren't learned from."""

    steps: list[int]
    errors: list[float]
    """Of Linformer after so many steps, first and last among them."""
    mean: float
    """Of the mean of all values, which looks at no key."""


def imitate(n: int, h: int, k: int, *, reach: float, steps: int, seed: int) -> Learning:
    """Let a Linformer of k rows learn what softmax attention does to slow walks."""
    states, values = (
        slow_walks(2 * _TEXTS, n, h, reach=reach, seed=(seed, i)).float() for i in range(2)
    )
    exact = Softmax()(states, states, values)
    linformer = seeded(lambda: Linformer(length=n, k=k), seed)
    optimizer = torch.optim.Adam(linformer.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    shown, held_out = slice(_TEXTS), slice(_TEXTS, None)

    def error(part: slice) -> Tensor:
        found = linformer(states[part], states[part], values[part])
        share: Tensor = (found - exact[part]).norm() / exact[part].norm()
        return share

    points, errors = [], []
    for step in range(steps + 1):
        if step % max(steps // 20, 1) == 0 or step == steps:
            points.append(step)
            with torch.no_grad():
                errors.append(float(error(held_out)))
        optimizer.zero_grad()
        error(shown).backward()
        optimizer.step()
        schedule.step()
    mean = values[held_out].mean(2, keepdim=True)
    return Learning(points, errors, relative_error(mean, exact[held_out]))
