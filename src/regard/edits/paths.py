"""Path patching: the direct effect of a site, and its effect through one receiver.

The model reads the corrupt text with the clean value of a sender, while all attention and
feed-forward layers after it keep their corrupt outputs. The sender thus reaches a receiver by the
residual stream alone; norms are recomputed (Goldowsky-Dill et al., 2023, arXiv:2304.05969). Wang et
al., 2022, arXiv:2211.00593, appendix B, hold attention alone: there, paths also lead through
feed-forward layers. The resulting change of the metric is the direct effect. For the effect of a
path, the receiver's resulting value is patched into a run on the corrupt text. All effects are
shares of m(clean) − m(corrupt), as in `effects`.

Shapes: b rows, n tokens, d channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.drawing import panels
from regard.edits.activations import Recorder
from regard.edits.found import Cell, counted
from regard.edits.metrics import Metric, as_tuple
from regard.edits.page import Measured
from regard.edits.parts import last_stack
from regard.edits.patching import (
    Pair,
    cells_of,
    gap_of,
    metric_of,
    pairs_of,
    patch_each,
    patch_hooks,
    patch_of,
    require_vectors,
    row_metrics,
    rows_at_once,
)
from regard.edits.sites import Site, find_site
from regard.edits.sites import sites as all_sites
from regard.edits.table import Rows
from regard.edits.tokens import Hook, Tokens
from regard.errors import UserError
from regard.metrics import Interval, bootstrap_means
from regard.runs.run import Run

BRANCHES = ("attention", "cross", "feedforward")


@dataclass(frozen=True, kw_only=True, eq=False)
class Paths(Measured):
    """Effects of senders by their paths, a row per pair of texts."""

    run: str
    senders: tuple[Cell, ...]
    total: Float[np.ndarray, "pairs senders"]
    """Effects by patching, through all later layers."""
    direct: Float[np.ndarray, "pairs senders"]
    """Effects through the residual stream alone."""
    through: Mapping[str, Float[np.ndarray, "pairs senders"]]
    """Receiver → effects through the residual stream to it, and from there through all layers."""

    @property
    def difference(self) -> Float[np.ndarray, "pairs senders"]:
        """Total − direct effects: contributions of later layers; negative under self-repair."""
        found: np.ndarray = self.total - self.direct
        return found

    @property
    def intervals(self) -> list[Interval]:
        """The mean difference of each sender, with a bootstrap interval over pairs."""
        return bootstrap_means(self.difference)

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each sender, in the order of the model."""
        found = []
        for i, (sender, one) in enumerate(zip(self.senders, self.intervals, strict=True)):
            row: dict[str, Any] = {"site": sender.name}
            row |= {"total": float(self.total[:, i].mean())}
            row |= {"direct": float(self.direct[:, i].mean()), "difference": one.value}
            if len(self.total) > 1:
                row |= {"low": one.low, "high": one.high}
            found.append(row | {to: float(x[:, i].mean()) for to, x in self.through.items()})
        return found

    def tables(self) -> dict[str, Rows]:
        """Return the table by its caption."""
        return {"Effects by path": self.rows()}

    def lines(self) -> list[str]:
        """Return notes on the method and the data, as text."""
        return [
            f"{counted(len(self.total), 'pair')}: shares of the metric's difference between clean "
            "and corrupt that the clean value of a site restores",
            "total: through everything after the site; direct: with all later attention and "
            "feed-forward outputs of the corrupt text, and norms computed again; difference: total "
            "− direct",
        ]

    def figure(self) -> Figure:
        """Return total and direct effects as bars, in the order of the model."""
        with panels(height=min(max(1.8, 0.3 * len(self.senders)), 60)) as (figure, (axes,)):
            places = np.arange(len(self.senders))
            for shift, name, values in ((-0.2, "total", self.total), (0.2, "direct", self.direct)):
                axes.barh(places + shift, values.mean(0), height=0.4, label=name)
            names = [sender.name for sender in self.senders]
            axes.set_yticks(places, names, fontsize=7, parse_math=False)
            axes.invert_yaxis()
            axes.set_xlabel("effect: share of the difference of clean and corrupt")
            axes.legend()
        return figure


def paths(
    run: Run,
    clean: str | Sequence[str],
    corrupt: str | Sequence[str],
    *,
    metric: Metric,
    senders: str | Sequence[str] = "heads",
    receivers: str | Sequence[str] = (),
) -> Paths:
    """Return total and direct effects of senders, and the effects of their paths to receivers.

    `senders` are as `sites` in `effects`. Receivers are names of sites, such as the keys of a head;
    a sender that isn't before a receiver has no effect through it.
    Path patching: Wang et al., 2022, arXiv:2211.00593, appendix B; Goldowsky-Dill et al., 2023,
    arXiv:2304.05969.

    Raises:
        UserError: as `effects`; a receiver isn't after any sender.
        UnsupportedError: the model has no residual stream.

    >>> from regard.edits import logit_difference
    >>> clean, corrupt = "Where was Ada born?", "Where was Bob born?"
    >>> metric = logit_difference("Rome", "Oslo")
    >>> found = regard.paths(run, clean, corrupt, metric=metric, receivers="decoder.1.keys.0")
    >>> list(found.rows()[0])
    ['site', 'total', 'direct', 'difference', 'decoder.1.keys.0']
    """
    last_stack(run.model)
    pairs = pairs_of(run, clean, corrupt, metric)
    cells = cells_of(run, senders, pairs)
    known = {site.name: site for site in all_sites(run)}
    names = dict.fromkeys(as_tuple(receivers))
    ends = [require_vectors(find_site(known, name)) for name in names]
    for end in ends:
        _require_before(end, cells, list(known))
    found = [_measure(run, pair, cells, ends, number) for number, pair in enumerate(pairs, 1)]
    return Paths(
        run=run.path.name,
        senders=tuple(cells),
        total=np.stack([one.total for one in found]),
        direct=np.stack([one.direct for one in found]),
        through={end.name: np.stack([one.through[end.name] for one in found]) for end in ends},
    )


def _require_before(end: Site, cells: Sequence[Cell], order: Sequence[str]) -> None:
    """Check that a sender is before a receiver, and not in the same attention layer."""
    before = order[: order.index(end.name)]
    senders = [cell.site for cell in cells if cell.site.name in before]
    if all(x.head is not None and end.head is not None and x.layer == end.layer for x in senders):
        raise UserError(f"receiver {end.name}: no sender is before it; choose a later receiver")


class _Measured(NamedTuple):
    total: np.ndarray
    direct: np.ndarray
    through: dict[str, np.ndarray]


@torch.no_grad()
def _measure(
    run: Run, pair: Pair, cells: Sequence[Cell], ends: Sequence[Site], number: int
) -> _Measured:
    """Return the effects of all senders for a pair of texts."""
    branches = [site for site in all_sites(run) if branch_of(site) == site.place]
    clean, corrupt = Recorder([cell.site for cell in cells]), Recorder(branches)
    high = float(metric_of(run, pair.clean, pair.measure, clean.hooks))
    low = float(metric_of(run, pair.corrupt, pair.measure, corrupt.hooks))
    gap = gap_of(high, low, number)
    source, held = clean.tensors, corrupt.tensors
    patches = [patch_of([cell], source) for cell in cells]
    direct, through = list[np.ndarray](), {end.name: list[np.ndarray]() for end in ends}
    at_once = rows_at_once(pair)
    for start in range(0, len(cells), at_once):
        some = slice(start, start + at_once)
        kept = {place: _kept(cells[some], place, x) for place, x in held.items()}
        sent = patch_hooks(patches[some], source)
        received, rows = Recorder(ends), len(cells[some])
        direct.append(row_metrics(run, pair, rows, received.hooks, kept, sent))
        for end in ends:
            hook = _set(received.tensors[end.place], end.head)
            through[end.name].append(row_metrics(run, pair, rows, {end.place: hook}))

    def share(metrics: np.ndarray) -> np.ndarray:
        return (metrics - low) / gap

    return _Measured(
        share(patch_each(run, pair, patches, source)),
        share(np.concatenate(direct)),
        {name: share(np.concatenate(parts)) for name, parts in through.items()},
    )


def branch_of(site: Site) -> str | None:
    """Return the place of the attention or feed-forward output that a site is or belongs to."""
    if site.head is not None:
        return site.layer if site.layer.endswith(".cross") else f"{site.layer}.attention"
    is_branch = site.part in BRANCHES and ".residual." not in site.name
    return site.place if is_branch else None


def _kept(cells: Sequence[Cell], branch: str, output: Float[Tensor, "1 n d"]) -> Hook:
    """Return a hook that freezes the output of a branch, except in rows of senders in it."""
    rows = [row for row, cell in enumerate(cells) if branch_of(cell.site) == branch]

    def hook(x: Tensor, *_: Any) -> Tensor:
        kept = output.expand_as(x).clone()
        kept[rows] = x[rows]
        return kept

    return hook


def _set(value: Float[Tensor, "b *h n d"], head: int | None) -> Hook:
    """Return a hook that sets a site to a value."""

    def hook(x: Tensor, tokens: Tokens, _: Tokens) -> Tensor:
        new = value[..., tokens.positions[0], :]
        if head is None:
            return new
        x = x.clone()
        x[:, head] = new[:, head]
        return x

    return hook
