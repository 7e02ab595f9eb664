"""One query that finds two keys."""

import math
from typing import Annotated

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.explorer.look import look_at_attention
from regard.studies.figure import Chart, Figure, Line, series
from regard.studies.finding import Evidence, at_most, equal, if_readable, table
from regard.studies.study import study

KEYS = (4, 10, 100, 1000)
"""Numbers of keys that are drawn."""


@study(
    asked=["practical-4 2.b"],
    question="Which query makes attention return the average of two of its values?",
    claim="With orthonormal keys, q = t(k_a + k_b) gives v_a and v_b at least 0.99 of the "
    "weight, half each: c ≈ ½(v_a + v_b).",
    formula=r"\alpha_a = \alpha_b = \frac{e^t}{2 e^t + n - 2}",
)
def averaging(
    n: Annotated[int, Meta(ge=3, le=2048, description="keys")] = 10,
    t: Annotated[float, Meta(ge=0, le=50, description="length of the query along each key")] = 8.0,
) -> Evidence:
    """The query has the same product t with both keys and 0 with all others, so that both get the
    same weight, and each of the others e^t times less.

    It is not enough that t is more than 0: the others are n − 2, and together they take
    (n − 2)/(2e^t + n − 2) of the weight. The more keys there are, the longer the query has to be,
    but only as the logarithm of n: t = ln n + 4 always does.
    """
    weights = pair_weights(n, t)
    predicted = pair_weight(n, t)
    return Evidence(
        numbers=(
            equal("weight of v_a", weights[0], predicted, within=1e-12),
            equal("weight of v_b", weights[1], predicted, within=1e-12),
            at_most("weight of all others", weights[2:].sum(), 0.01),
        ),
        figure=_figure(n, t),
        table=table(
            ["t", "each of the two", "all others"],
            [(s, pair_weight(n, s), 1 - 2 * pair_weight(n, s)) for s in (1.0, 2.0, 4.0, 8.0, 16.0)],
        ),
        explorer_view=if_readable(
            look_at_attention(
                Softmax(scaled=False),
                *pair(n, t),
                torch.eye(n, dtype=torch.float64)[None, None],
                queries=["q"],
                keys=[f"k{i}" for i in range(1, n + 1)],
                title=f"the query {t:g}(k₁ + k₂) among {n} keys",
            )
        ),
    )


def pair(n: int, t: float) -> tuple[Float[Tensor, "1 1 1 n"], Float[Tensor, "1 1 n n"]]:
    """The query t(k₁ + k₂), and n orthonormal keys."""
    keys = torch.eye(n, dtype=torch.float64)
    query = t * (keys[0] + keys[1])
    return query.view(1, 1, 1, n), keys.view(1, 1, n, n)


def pair_weights(n: int, t: float) -> Float[Tensor, " n"]:
    """What that query gives to each of the keys."""
    return Softmax(scaled=False).weights(*pair(n, t)).flatten()


def pair_weight(n: int, t: float) -> float:
    """The same of one of the two keys, by the formula."""
    return 1 / (2 + (n - 2) * math.exp(-t))


def _figure(n: int, t: float) -> Figure:
    lengths = [i / 4 for i in range(61)]
    curves = []
    for i, count in enumerate(sorted({*KEYS, n})):
        predicted = [1 - 2 * pair_weight(count, s) for s in lengths]
        measured = [pair_weights(count, s)[2:].sum() for s in lengths[::8]]
        curves += [
            series(lengths, predicted, f"{count} keys", color=i),
            series(lengths[::8], measured, style="dots", color=i),
        ]
    chart = Chart(
        series=curves,
        lines=[Line(y=0.01, label="a hundredth"), Line(x=t, label=f"t = {t:g}")],
        x="t",
        y="weight of all other values",
        y_scale="log",
        y_limits=(1e-6, 1.5),
    )
    return Figure(
        panels=[chart],
        caption="The weight of all values other than the two falls exponentially with t; the more "
        "keys, the later. Lines: formula; dots: measured; dotted: a hundredth, and t.",
    )
