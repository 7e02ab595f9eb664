"""Results of effects: means with intervals, the error of attribution, and a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from regard.drawing import color_bar, heat_map, panels
from regard.edits.page import Measured
from regard.edits.sites import Site
from regard.edits.table import Rows
from regard.metrics import Interval, bootstrap_means

SATURATED = 0.1
"""Attribution below this share of a large effect counts as saturated."""


@dataclass(frozen=True)
class Cell:
    """A site to patch, at all tokens or at one."""

    site: Site
    position: int | None = None
    token: str = ""

    @property
    def name(self) -> str:
        """The site, with position and token, or with its latent."""
        if self.position is None:
            return self.site.name
        row = self.token if self.site.of_latents else f"{self.position} {self.token!r}"
        return f"{self.site.name} at {row}"


@dataclass(frozen=True)
class AttributionError:
    """Error of attribution as an estimate of patching."""

    rank_correlation: float
    """Spearman's rank correlation over sites; NaN if all values are equal."""
    largest_gap: float
    """Largest absolute difference between attribution and patching."""
    worst: str
    """The site of the largest gap."""
    wrong_signs: float
    """Share of sites with an attribution of the wrong sign, among those with an effect."""
    saturated: tuple[str, ...]
    """Sites of a large effect that attribution misses."""

    def __str__(self) -> str:
        names = ", ".join(self.saturated) or "none"
        return (
            f"attribution against patching: rank correlation {self.rank_correlation:.3f}, largest "
            f"gap {self.largest_gap:.3f} ({self.worst}), wrong signs {self.wrong_signs:.0%}, "
            f"saturated: {names}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Effects(Measured):
    """Effects of sites, a row per pair of texts.

    >>> from regard.edits import logit_difference
    >>> clean, corrupt = "Where was Ada born?", "Where was Bob born?"
    >>> metric = logit_difference("Rome", "Oslo")
    >>> found: regard.Effects = regard.effects(run, clean, corrupt, metric=metric, controls=2)
    >>> [cell.name for cell in found.cells]
    ['decoder.0.heads.0', 'decoder.0.heads.1', 'decoder.1.heads.0', 'decoder.1.heads.1']
    >>> found.patching.shape, found.control.shape
    ((1, 4), (1, 2))
    """

    run: str
    metric: str
    """Name of the metric: "logit difference" or "probability"."""
    steps: int
    """Number of points between both texts for the gradient of attribution; 0: the corrupt text."""
    cells: tuple[Cell, ...]
    clean: Float[np.ndarray, " pairs"]
    """The metric of the clean texts."""
    corrupt: Float[np.ndarray, " pairs"]
    patching: Float[np.ndarray, "pairs cells"] | None
    attribution: Float[np.ndarray, "pairs cells"] | None
    control: Float[np.ndarray, "pairs controls"]
    """Effects of random channels."""

    @property
    def examples(self) -> Float[np.ndarray, "pairs cells"]:
        """The effects of each pair: by patching, or else by attribution."""
        found = self.attribution if self.patching is None else self.patching
        assert found is not None
        return found

    @property
    def intervals(self) -> list[Interval]:
        """The mean effect of each site, with a bootstrap interval over pairs."""
        return bootstrap_means(self.examples)

    @property
    def aie(self) -> list[Interval]:
        """The average indirect effect (AIE), the mean of m(corrupt | s ← clean) − m(corrupt).

        Meng et al., 2022, arXiv:2202.05262, §2.1; for heads, Todd et al., 2024, arXiv:2310.15213.
        Both use probabilities: choose the metric `probability` to compare.
        """
        return bootstrap_means(self.examples * (self.clean - self.corrupt)[:, None])

    @property
    def beyond_control(self) -> float | None:
        """Largest absolute mean effect of random channels; None without controls."""
        return float(np.abs(self.control.mean(0)).max()) if self.control.size else None

    @property
    def held_out(self) -> Float[np.ndarray, " cells"] | None:
        """Mean effects on every second pair, which don't sort the table; None for one pair."""
        return self.examples[1::2].mean(0) if len(self.examples) > 1 else None

    @property
    def order(self) -> list[int]:
        """Indices of the cells by absolute effect on the pairs that aren't held out."""
        found = np.abs(self.examples[::2].mean(0))
        return [int(i) for i in np.argsort(-found, kind="stable")]

    @property
    def error(self) -> AttributionError | None:
        """The error of attribution; None unless both methods were used."""
        if self.patching is None or self.attribution is None:
            return None
        exact, estimate = self.patching.mean(0), self.attribution.mean(0)
        gaps = np.abs(exact - estimate)
        there = np.abs(exact) > 1e-9
        large = np.abs(exact) >= SATURATED * np.abs(exact).max()
        missed = large & there & (np.abs(estimate) < SATURATED * np.abs(exact))
        return AttributionError(
            _rank_correlation(exact, estimate),
            float(gaps.max()),
            self.cells[int(gaps.argmax())].name,
            float((np.sign(exact) != np.sign(estimate))[there].mean()) if there.any() else 0.0,
            tuple(self.cells[i].name for i in np.flatnonzero(missed)),
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a record per site, sorted by absolute effect on pairs that aren't held out."""
        intervals, aie = self.intervals, self.aie
        held, limit = self.held_out, self.beyond_control
        found = []
        for i in self.order:
            one = intervals[i]
            row: dict[str, Any] = {"site": self.cells[i].name, "effect": one.value}
            if held is not None:
                row |= {"low": one.low, "high": one.high, "held_out": float(held[i])}
            row["aie"] = aie[i].value
            if self.patching is not None and self.attribution is not None:
                row["attribution"] = float(self.attribution[:, i].mean())
            if limit is not None:
                row["beyond_control"] = abs(one.value) > limit
            found.append(row)
        return found

    def tables(self) -> dict[str, Rows]:
        """Return the table by its caption."""
        return {"Effects of all sites": self.rows()}

    def lines(self) -> list[str]:
        """Return notes on the method and the data, as text."""
        method = "attribution" if self.patching is None else "patching"
        found = [
            f"{counted(len(self.examples), 'pair')}, by {method}: mean {self.metric} "
            f"{self.clean.mean():.3f} for the clean texts, {self.corrupt.mean():.3f} for the "
            "corrupt ones",
            "effect of a site: the share of their difference that its clean value restores in the "
            f"corrupt text; 0: none, 1: all; aie: the {self.metric} that it restores, on average",
        ]
        if self.held_out is not None:
            found.append("sorted by the first, third, … pair; held out: mean of the others")
        if (limit := self.beyond_control) is not None:
            controls = counted(self.control.shape[1], "random control")
            found.append(f"{controls}: effects up to {limit:.3f}")
        if self.steps:
            points = counted(self.steps, "point")
            found.append(f"attribution: gradients at {points} between both texts, averaged")
        if self.patching is None:
            found.append("error of attribution: unknown without patching")
        return found + ([] if self.error is None else [str(self.error)])

    def figure(self) -> Figure:
        """Return the effects in the order of the model: bars, or a heat map of tokens by part."""
        values = self.examples.mean(0)
        if all(cell.position is not None for cell in self.cells):
            return _heat_maps(self.cells, values)
        with panels(height=min(max(1.6, 0.18 * len(values)), 60)) as (figure, (axes,)):
            axes.barh(range(len(values)), values)
            names = [cell.name for cell in self.cells]
            axes.set_yticks(range(len(values)), names, fontsize=7, parse_math=False)
            axes.invert_yaxis()
            axes.set_xlabel("effect: share of the difference of clean and corrupt")
        return figure


def _heat_maps(cells: Sequence[Cell], values: Float[np.ndarray, " cells"]) -> Figure:
    """Return a heat map for each part of each stack, of layers × tokens."""
    kinds: dict[str, list[int]] = {}
    for i, cell in enumerate(cells):
        kind = f"{cell.site.name.partition('.')[0]}: {cell.site.part}"
        kinds.setdefault(kind + " of latents" * cell.site.of_latents, []).append(i)
    rows = [len({cells[i].site.name for i in chosen}) for chosen in kinds.values()]
    strongest = float(np.abs(values).max()) or 1.0
    height, width = 1.2 * len(rows) + 0.22 * sum(rows), 2.4 + 0.3 * max(map(len, kinds.values()))
    with panels(1, len(rows), height=min(height, 60), width=min(width, 12)) as (figure, axes):
        for panel, n, (kind, chosen) in zip(axes, rows, kinds.items(), strict=True):
            heat_map(panel, values[chosen].reshape(n, -1), strongest=strongest)
            tokens = len(chosen) // n
            panel.set_title(kind, fontsize=9)
            names = [cells[i].site.name for i in chosen[::tokens]]
            panel.set_yticks(range(n), names, fontsize=7)
            words = [cells[i].token for i in chosen[:tokens]]
            panel.set_xticks(range(tokens), words, fontsize=7, rotation=90, parse_math=False)
        signed = bool((values < 0).any())
        color_bar(figure, axes, strongest=strongest, signed=signed, label="effect")
    return figure


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation; NaN if either array is constant."""
    from scipy.stats import spearmanr  # takes half a second to import

    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(spearmanr(one, other).statistic)


def counted(n: int, thing: str) -> str:
    """Return a number with a noun, in the plural unless it is 1."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
