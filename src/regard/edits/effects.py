"""Effects of sites on a metric, by activation patching or estimated by attribution.

For each pair of a clean and a corrupt text and each site s,

    P(s) = (m(corrupt | s ← clean) − m(corrupt)) / (m(clean) − m(corrupt))

(Zhang & Nanda, 2024, arXiv:2309.16042). Attribution estimates the same by gradients.

Each site is patched in its own row of a batch. Shapes: b rows, n tokens, h heads, d channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.edits.activations import Recorder
from regard.edits.attribution import attributed, integrated_slopes, slopes_of
from regard.edits.found import Cell, Effects
from regard.edits.metrics import Metric
from regard.edits.patching import (
    Pair,
    Patch,
    cells_of,
    gap_of,
    metric_of,
    pairs_of,
    patch_each,
    patch_of,
)
from regard.edits.sites import BY_TOKEN, Site
from regard.errors import UserError
from regard.runs.run import Run

METHODS = ("patching", "attribution")


@torch.inference_mode(False)
def effects(
    run: Run,
    clean: str | Sequence[str],
    corrupt: str | Sequence[str],
    *,
    metric: Metric,
    sites: str | Sequence[str] = "heads",
    by: Sequence[str] = METHODS,
    steps: int = 0,
    controls: int | None = None,
    seed: int = 0,
) -> Effects:
    """Return the effect of sites on a metric, for pairs of texts of equal length.

    `sites` are "heads", "layers" (outputs of attention and feed-forward), "residual" or "tokens"
    (the residual stream or the embedding of each token), "trace" (the residual stream, attention
    and feed-forward at each token), or names of `regard.sites`. `controls` is the number of random
    sets of as many channels as a head has, patched as control; only for heads (default: 20).
    Patching (Zhang & Nanda, 2024, arXiv:2309.16042) runs the model once for each site. Attribution
    (Kramár et al., 2024, arXiv:2403.00745) estimates all effects by one backward pass of the
    corrupt text. With `steps`, it averages that many backward passes between the embeddings of both
    texts: integrated gradients (Sundararajan et al., 2017, arXiv:1703.01365). An effect is the
    share of the metric's difference between clean and corrupt text that the site's clean value
    restores.

    Raises:
        UserError: the texts of a pair have different lengths or the same metric, the run doesn't
            predict tokens, or a site doesn't exist.

    >>> from regard.edits import logit_difference
    >>> clean, corrupt = "Where was Ada born?", "Where was Bob born?"
    >>> metric = logit_difference("Rome", "Oslo")
    >>> found = regard.effects(run, clean, corrupt, metric=metric, sites="tokens", by=["patching"])
    >>> {row["site"]: round(row["effect"], 3) for row in found.rows()[:1]}
    {"decoder.embedding at 3 'Ada'": 1.0}
    """
    controls = _number_of_controls(controls, sites)
    _require_methods(by, steps)
    pairs = pairs_of(run, clean, corrupt, metric)
    cells = cells_of(run, sites, pairs)
    if "attribution" in by:
        _require_parallel(cells)
    rows = [
        _measure(run, pair, cells, by, number, steps, (controls, seed))
        for number, pair in enumerate(pairs, 1)
    ]
    return Effects(
        run=run.path.name,
        metric=metric.name,
        steps=steps,
        cells=tuple(cells),
        clean=np.array([row.clean for row in rows]),
        corrupt=np.array([row.corrupt for row in rows]),
        patching=_stacked([row.patching for row in rows]),
        attribution=_stacked([row.attribution for row in rows]),
        control=np.array([row.control for row in rows]),
    )


def trace(
    run: Run, clean: str | Sequence[str], corrupt: str | Sequence[str], *, metric: Metric
) -> Effects:
    """Return the effect of each layer's residual stream and parts at each token, by patching.

    Causal tracing (Meng et al., 2022, arXiv:2202.05262, §2.1), with a corrupt text in place of
    noise: `effects` with `sites="trace"`.

    Raises:
        UserError: the texts of a pair have different lengths or the same metric, or the run doesn't
            predict tokens.

    >>> from regard.edits import logit_difference
    >>> clean, corrupt = "Where was Ada born?", "Where was Bob born?"
    >>> metric = logit_difference("Rome", "Oslo")
    >>> found = regard.trace(run, clean, corrupt, metric=metric)
    >>> found.rows()[0]["site"]  # restores the whole difference
    "decoder.0.residual at 3 'Ada'"
    """
    return effects(run, clean, corrupt, metric=metric, sites="trace", by=("patching",))


class _Measured(NamedTuple):
    clean: float
    corrupt: float
    patching: np.ndarray | None
    attribution: np.ndarray | None
    control: np.ndarray


def _stacked(rows: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [row for row in rows if row is not None]
    return np.stack(found) if found else None


def _number_of_controls(given: int | None, sites: str | Sequence[str]) -> int:
    """Return the given number of random sets of channels, or the default for the sites."""
    if given and sites != "heads":
        raise UserError(
            f"controls = {given}: random channels are for sites = heads; leave controls out"
        )
    return (20 if sites == "heads" else 0) if given is None else given


def _require_methods(by: Sequence[str], steps: int) -> None:
    for method in by:
        if method not in METHODS:
            raise UserError(f"by {method or 'empty'}: there are {' and '.join(METHODS)}")
    if not by:
        raise UserError("by: no method; choose patching, attribution or both")
    if steps < 0:
        raise UserError(f"steps = {steps}: expected 0 or more")
    if steps and "attribution" not in by:
        raise UserError(
            f"steps = {steps}: only attribution takes steps; choose it, or leave them out"
        )


def _require_parallel(cells: Sequence[Cell]) -> None:
    """Raise for a state at all tokens: gradients at early tokens pass through later ones."""
    for cell in cells:
        if cell.site.cost == BY_TOKEN and cell.position is None:
            raise UserError(
                f"attribution of {cell.site.name}: a state is one token's; choose sites = residual "
                "or by = patching"
            )


# Measurement


def _measure(
    run: Run,
    pair: Pair,
    cells: Sequence[Cell],
    by: Sequence[str],
    number: int,
    steps: int,
    controls: tuple[int, int],
) -> _Measured:
    """Return the effects of all cells for a pair of texts."""
    places = list({cell.site.place: cell.site for cell in cells}.values())
    clean, corrupt = Recorder(places), Recorder(places)
    with torch.no_grad():
        high = float(metric_of(run, pair.clean, pair.measure, clean.hooks))
    with torch.set_grad_enabled("attribution" in by):
        low = metric_of(run, pair.corrupt, pair.measure, corrupt.hooks)[0]
    start = low.item()
    total = gap_of(high, start, number)
    patched = estimated = None
    source, (n_controls, seed) = clean.tensors, controls
    rng = np.random.default_rng(seed)  # the same channels for each pair
    if "patching" in by:
        chosen = [patch_of([cell], source) for cell in cells]
        patched = (patch_each(run, pair, chosen, source) - start) / total
    if "attribution" in by:
        slopes = integrated_slopes(run, pair, places, steps) if steps else slopes_of(low, corrupt)
        estimated = attributed(cells, clean, corrupt, slopes) / total
    # Sorted so that rows of the same place are adjacent, which lets a hook patch them as a slice.
    drawn = sorted((_drawn(places, source, rng) for _ in range(n_controls)), key=list)
    control = (patch_each(run, pair, drawn, source) - start) / total if drawn else np.empty(0)
    return _Measured(high, start, patched, estimated, control)


def _drawn(places: Sequence[Site], source: dict[str, Tensor], rng: np.random.Generator) -> Patch:
    """Return a patch of random channels of a random layer's heads, as many as one head has."""
    place = places[int(rng.integers(len(places)))].place
    _, h, n, d = source[place].shape
    channels = torch.from_numpy(rng.choice(h * d, d, replace=False)).to(source[place].device)
    mask = torch.zeros(h * d, dtype=torch.bool, device=source[place].device)
    mask[channels] = True
    return {place: mask.view(h, 1, d).expand(h, n, d)}
