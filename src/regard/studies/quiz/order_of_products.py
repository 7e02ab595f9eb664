"""The order of two matrix products, and its cost."""

from collections.abc import Callable
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from regard.studies.costs import multiplications
from regard.studies.figure import Arrow, Graph, Line, Node, chart, figure, series
from regard.studies.finding import at_most, equal, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, relative_error

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)


@study()
def order_of_products(
    length: Annotated[int, Meta(ge=2, le=4096)] = 1024,
    m: Annotated[int, Meta(ge=1, le=1024)] = 128,
    d: Annotated[int, Meta(ge=1, le=1024)] = 64,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What is the advantage of multiplying features of keys with values first?

    Operations fall from L²(m + d) to 2Lmd, and the intermediate matrix from L × L to m × d. The
    result is the same.

    $$ (Q' K'^\top) V = Q' (K'^\top V), \quad L^2 (m + d) \to 2 L m d $$

    The second order takes fewer operations from L = 2md/(m + d) on.

    Figure. Left and middle: both orders of the products Q′K′ᵀV, with the size of the intermediate
    matrix. Right: multiplications against the length; lines: formula. Dotted: the length at which
    both are equal, and the measured one.

    Args:
        length: L, number of tokens
        m: number of features
        d: width of the values
    """
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.rand(2, length, m, dtype=torch.float64, generator=generator)
    value = draw_normal(generator, length, d)
    orders: dict[str, tuple[Callable[[], Tensor], Callable[[int], int]]] = {
        "queries and keys first": (lambda: query @ key.mT @ value, lambda n: n**2 * (m + d)),
        "keys and values first": (lambda: query @ (key.mT @ value), lambda n: 2 * n * m * d),
    }
    names, equal_at = list(orders), 2 * m * d / (m + d)
    first, second = (way() for way, _ in orders.values())
    yield at_most("relative difference of both orders", relative_error(second, first), 1e-12)
    for name, (way, count) in orders.items():
        yield equal(f"operations, {name}", multiplications(way), count(length))
    more, fewer = (count(length) for _, count in orders.values())
    yield at_most(f"operations, {names[1]} / {names[0]}", fewer / more, 1)
    yield informational("L with equal operations", equal_at)
    factors = [f"$Q'$\n$L$ × {m}", f"$K'^\\top$\n{m} × $L$", f"$V$\n$L$ × {d}"]
    yield figure(
        _order(factors, (0, 1), "$L$ × $L$", 2, names[0]),
        _order(factors, (1, 2), f"{m} × {d}", 0, names[1]),
        chart(
            *(series(LENGTHS, map(count, LENGTHS), name) for name, (_, count) in orders.items()),
            Line(x=equal_at),
            Line(x=length),
            title="multiplications",
            x="tokens $L$",
            x_scale="log",
            y_scale="log",
        ),
    )


def _order(factors: list[str], pair: tuple[int, int], size: str, last: int, title: str) -> Graph:
    """Return a graph: the product of a pair of factors, multiplied with the last one."""
    middle = sum(pair) / 2
    nodes = [Node(float(i), 2.0, factor) for i, factor in enumerate(factors)]
    nodes += [Node(middle, 1.0, size), Node(1.0, 0.0, "output")]
    arrows = [Arrow(start=i, end=3) for i in pair]
    return Graph(
        nodes=nodes, arrows=[*arrows, Arrow(start=3, end=4), Arrow(start=last, end=4)], title=title
    )
