"""Faithfulness of circuits: the metric of a model with all other sites patched.

The circuit C consists of the first k sites of an order. The model reads the clean text, with all
other sites set to their values on the corrupt text. With its metric m(C), all sites N and none ∅,

    f(C) = (m(C) − m(∅)) / (m(N) − m(∅)),  CPR = ∫ f(C_k) dk,  CMD = ∫ |1 − f(C_k)| dk

over the share k of sites, by the trapezoidal rule (Mueller et al., 2025, MIB, arXiv:2504.13151,
circuit localization track, and its `evaluation.py`). Metrics are means over pairs. For CPR, sites
are ordered by effect, from the largest to the most negative; for CMD, by absolute effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure

from regard.drawing import panels
from regard.edits.activations import Recorder
from regard.edits.effects import effects
from regard.edits.found import Cell, Effects, counted
from regard.edits.metrics import Metric
from regard.edits.page import Measured
from regard.edits.patching import Pair, metric_of, pairs_of, patch_each, patch_of
from regard.edits.table import Rows, text_table
from regard.errors import UserError
from regard.metrics import Interval, intervals_of, resampled_means
from regard.runs.run import Run


@dataclass(frozen=True, eq=False)
class Curve:
    """Faithfulness of the circuits of the first k sites of an order, k = 0, …, n."""

    order: tuple[Cell, ...]
    metric: Float[np.ndarray, "pairs sizes"]
    """Metric of the clean texts, with all but the first k sites patched from the corrupt ones."""

    @property
    def shares(self) -> Float[np.ndarray, " sizes"]:
        """Share of the sites in each circuit."""
        return np.linspace(0, 1, len(self.order) + 1)

    @property
    def faithfulness(self) -> list[Interval]:
        """f(C) of each circuit, with a bootstrap interval over pairs."""
        return intervals_of(*self._both)

    @property
    def area(self) -> Interval:
        """The area under f."""
        return self._integral(*self._both)

    @property
    def distance(self) -> Interval:
        """The area between f and 1."""
        return self._integral(*(abs(1 - f) for f in self._both))

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each circuit, with the site added last."""
        joins = ["none", *(cell.name for cell in self.order)]
        found = []
        for i, (name, one) in enumerate(zip(joins, self.faithfulness, strict=True)):
            row = {"sites": i, "share": i / len(self.order), "site": name}
            row |= {"faithfulness": one.value}
            found.append(row | ({"low": one.low, "high": one.high} if len(self.metric) > 1 else {}))
        return found

    @property
    def _both(self) -> tuple[np.ndarray, np.ndarray]:
        """f(C) over all pairs, and over each bootstrap sample."""
        return _relative(self.metric.mean(0)), _relative(resampled_means(self.metric))

    def _integral(self, values: np.ndarray, draws: np.ndarray) -> Interval:
        areas = ((y[..., 1:] + y[..., :-1]).mean(-1, keepdims=True) / 2 for y in (values, draws))
        return intervals_of(*areas)[0]


def _relative(metric: Float[np.ndarray, "*draws sizes"]) -> Float[np.ndarray, "*draws sizes"]:
    """Return the metric scaled to 0 for no site and 1 for all sites."""
    none, every = metric[..., :1], metric[..., -1:]
    found: np.ndarray = (metric - none) / (every - none) + 0.0  # 0 instead of −0
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Faithfulness(Measured):
    """Faithfulness of circuits of a growing number of sites."""

    run: str
    effects: Effects
    """Effects that order the sites, measured on pairs that aren't held out."""
    by_effect: Curve
    by_size: Curve

    @property
    def cpr(self) -> Interval:
        """Area under f, with sites in the order of their effect; higher is better."""
        return self.by_effect.area

    @property
    def cmd(self) -> Interval:
        """Area between f and 1, with sites in the order of absolute effect; 0 is best."""
        return self.by_size.distance

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each circuit, by effect and by size."""
        orders = {"effect": self.by_effect, "size": self.by_size}
        return [{"order": name} | row for name, curve in orders.items() for row in curve.rows()]

    def table(self) -> str:
        """Return the circuits with their faithfulness as text."""
        return text_table(self.rows())

    def tables(self) -> dict[str, Rows]:
        """Return the tables by caption."""
        return {
            "Circuits by effect: CPR": self.by_effect.rows(),
            "Circuits by size of effect: CMD": self.by_size.rows(),
        }

    def lines(self) -> list[str]:
        """Return notes on the method and the data, as text."""
        method = "attribution" if self.effects.patching is None else "patching"
        method += f" in {counted(self.effects.steps, 'step')}" if self.effects.steps else ""
        pairs = len(self.by_size.metric)
        held_out = len(self.effects.examples) > 1
        cpr, cmd = (str(x) if pairs > 1 else f"{x.value:.3f}" for x in (self.cpr, self.cmd))
        return [
            f"CPR {cpr}: area under faithfulness, sites by their effect",
            f"CMD {cmd}: area between faithfulness and 1, sites by the size of their effect",
            f"effects by {method}; circuits are measured on "
            + (counted(pairs, "held-out pair") if held_out else "the pair that orders the sites"),
            "faithfulness of a circuit C: (m(C) − m(∅)) / (m(N) − m(∅)), with the "
            f"{self.effects.metric} m of the clean texts, all other sites as in the corrupt ones; "
            "N: all sites, ∅: none",
        ]

    def figure(self) -> Figure:
        """Return the faithfulness of the circuits of both orders by the share of sites."""
        with panels() as (figure, (axes,)):
            curves = {"by effect": self.by_effect, "by size of effect": self.by_size}
            for (name, curve), style in zip(curves.items(), ("-", "--"), strict=True):
                found = curve.faithfulness
                axes.plot(curve.shares, [one.value for one in found], style, label=name)
                low, high = [one.low for one in found], [one.high for one in found]
                axes.fill_between(curve.shares, low, high, alpha=0.2)
            axes.axhline(1, linewidth=0.8, linestyle=":")
            axes.set(xlabel="share of sites in the circuit", ylabel="faithfulness")
            axes.legend()
        return figure


def faithfulness(
    run: Run,
    clean: str | Sequence[str],
    corrupt: str | Sequence[str],
    *,
    metric: Metric,
    sites: str | Sequence[str] = "heads",
    by: str = "patching",
    steps: int = 0,
) -> Faithfulness:
    """Return the faithfulness of circuits of the sites with the largest effects (MIB).

    `sites` and `steps` are as for `effects`; `by` is the method of the effects, "patching" or
    "attribution". The first, third, … pairs order the sites, and the remaining ones measure the
    circuits: all sites outside a circuit have their values on the corrupt text (Mueller et al.,
    2025, arXiv:2504.13151).

    Raises:
        UserError: as for `effects`, or the metric is the same with all sites and with none.

    >>> from regard.edits import logit_difference
    >>> clean, corrupt = "Where was Ada born?", "Where was Bob born?"
    >>> metric = logit_difference("Rome", "Oslo")
    >>> found = regard.faithfulness(run, clean, corrupt, metric=metric)
    >>> [one.value for one in found.by_size.faithfulness][::4]  # of no head, and of all four
    [0.0, 1.0]
    """
    found = effects(
        run, clean, corrupt, metric=metric, sites=sites, by=(by,), steps=steps, controls=0
    )
    pairs = pairs_of(run, clean, corrupt, metric)
    by_effect = np.argsort(-found.examples[::2].mean(0), kind="stable")
    orders = [[found.cells[i] for i in order] for order in (by_effect, found.order)]
    measured = [_measure(run, pair, orders) for pair in pairs[1::2] or pairs]
    curves = [
        Curve(tuple(order), np.stack(metrics))
        for order, metrics in zip(orders, zip(*measured, strict=True), strict=True)
    ]
    for curve in curves:
        none, every = curve.metric.mean(0)[[0, -1]]
        if abs(every - none) < 1e-9:
            raise UserError(
                "faithfulness: the metric is the same with all sites and with none; choose others"
            )
    return Faithfulness(run=found.run, effects=found, by_effect=curves[0], by_size=curves[1])


@torch.no_grad()
def _measure(run: Run, pair: Pair, orders: Sequence[Sequence[Cell]]) -> list[np.ndarray]:
    """Return the metric of each order's circuits, starting with no site, for a pair of texts."""
    corrupt = Recorder(cell.site for cell in orders[0])
    metric_of(run, pair.corrupt, pair.measure, corrupt.hooks)
    source, found = corrupt.tensors, []
    swapped = Pair(pair.corrupt, pair.clean, pair.measure)
    for order in orders:
        outside = [patch_of(order[k:], source) for k in range(len(order) + 1)]
        found.append(patch_each(run, swapped, outside, source))
    return found
