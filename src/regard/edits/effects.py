"""Effects of sites on a metric: activation patching, and attribution as its estimate.

For each pair of a clean and a corrupt text and each site s,

    P(s) = (m(corrupt | s ← clean) − m(corrupt)) / (m(clean) − m(corrupt))

(Zhang & Nanda, 2024, arXiv:2309.16042), and by one backward pass (Nanda, 2023; Kramár et al.,
2024, arXiv:2403.00745)

    Â(s) = (a_clean − a_corrupt) · ∂m/∂a / (m(clean) − m(corrupt)), with the gradient at corrupt.

Sites are rows of one batch. Shapes: b rows, n tokens, h heads, d channels.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.edits.activations import STATES, Recorder, text_inputs
from regard.edits.found import Cell, Effects
from regard.edits.metrics import LogitDifference, differences
from regard.edits.places import Hook, intercept_places
from regard.edits.sites import PAIRS, Site, find_site
from regard.edits.sites import sites as all_sites
from regard.edits.tokens import Tokens
from regard.errors import UserError
from regard.models.builders import LanguageModel, SequenceToSequence
from regard.runs.run import Run

METHODS = ("patching", "attribution")
SITES = ("heads", "layers", "residual", "tokens")
TOKENS_AT_ONCE = 2**14
"""Tokens of the rows of one batch."""


class Pair(NamedTuple):
    """A clean and a corrupt text as a model's inputs, and the tokens of the metric."""

    clean: list[Tensor]
    corrupt: list[Tensor]
    ids: tuple[int, int]


def effects(
    run: Run,
    clean: str | Sequence[str],
    corrupt: str | Sequence[str],
    *,
    metric: LogitDifference,
    sites: str | Sequence[str] = "heads",
    by: Sequence[str] = METHODS,
    controls: int | None = None,
    seed: int = 0,
) -> Effects:
    """Return the effect of sites on a metric, for pairs of texts of equal length.

    `sites` are "heads", "layers" (outputs of attention and feed-forward), "residual" or "tokens"
    (the residual stream or the embedding of each token), or names of `regard.sites`. Controls are
    random sets of as many channels as a head has, patched alike; 20 by default, for heads alone.

    Raises:
        UserError: the texts of a pair differ in length or not in the metric, the run doesn't
            predict tokens, or a site doesn't exist.
    """
    if isinstance(sites, str) and sites not in SITES:
        raise UserError(f"sites {sites}: there are {', '.join(SITES)}, or a list of names")
    if controls and sites != "heads":
        raise UserError(f"controls = {controls}: random channels are for sites = heads; leave out")
    controls = (20 if sites == "heads" else 0) if controls is None else controls
    for method in by:
        if method not in METHODS:
            raise UserError(f"by {method}: there are {' and '.join(METHODS)}")
    if not by:
        raise UserError("by: no method; choose patching, attribution or both")
    pairs, first = _pairs(run, _texts(clean), _texts(corrupt), metric)
    cells = _cells(run, sites, pairs, first)
    if "attribution" in by:
        _require_parallel(cells)
    rng, rows = np.random.default_rng(seed), list[_Measured]()
    for number, pair in enumerate(pairs, 1):
        rows.append(_measure(run, pair, cells, by, number, (controls, rng)))
    return Effects(
        run=run.path.name,
        cells=tuple(cells),
        clean=np.array([row.clean for row in rows]),
        corrupt=np.array([row.corrupt for row in rows]),
        patching=_stacked([row.patching for row in rows]),
        attribution=_stacked([row.attribution for row in rows]),
        control=np.array([row.control for row in rows]),
    )


class _Measured(NamedTuple):
    clean: float
    corrupt: float
    patching: np.ndarray | None
    attribution: np.ndarray | None
    control: np.ndarray


def _stacked(rows: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [row for row in rows if row is not None]
    return np.stack(found) if found else None


def _texts(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _pairs(
    run: Run, clean: Sequence[str], corrupt: Sequence[str], metric: LogitDifference
) -> tuple[list[Pair], list[int]]:
    """Return the pairs as inputs, and the ids of the first clean text."""
    if not isinstance(run.model, LanguageModel | SequenceToSequence):
        raise UserError(f"{run.path}: effects need a model that predicts the next token")
    if len(clean) != len(corrupt) or not clean:
        raise UserError(f"effects: {len(clean)} clean texts and {len(corrupt)} corrupt ones")
    found = []
    every = metric.for_pairs(len(clean), run.tokenizer)
    for number, (one, other, ids) in enumerate(zip(clean, corrupt, every, strict=True), 1):
        # As a question where the run answers: the last of the ways to read a text.
        inputs, others = text_inputs(run, one)[-1], text_inputs(run, other)[-1]
        if inputs[0].shape != others[0].shape:
            lengths = f"{inputs[0].shape[1]} and {others[0].shape[1]}"
            raise UserError(
                f"pair {number}: the texts have {lengths} tokens; patching needs equal lengths"
            )
        found.append(Pair(inputs, others, ids))
    ids_of = found[0].clean[-1 if len(found[0].clean) == 3 else 0][0].tolist()
    return found, [int(i) for i in ids_of]


def _cells(
    run: Run, chosen: str | Sequence[str], pairs: Sequence[Pair], first: Sequence[int]
) -> list[Cell]:
    """Return the sites to patch: each whole, or at each token."""
    known = all_sites(run)
    if not isinstance(chosen, str):
        by_name = {site.name: site for site in known}
        return [Cell(_vectors(find_site(by_name, name))) for name in chosen]
    parts = {
        "heads": ("heads",),
        "layers": ("attention", "cross", "feedforward", "hidden"),
        "residual": ("residual", "hidden"),
        "tokens": ("embedding",),
    }[chosen]
    heads = chosen == "heads"
    of_kind = [s for s in known if s.part in parts and (s.head is not None) == heads]
    of_kind = [s for s in of_kind if ".residual." not in s.name]
    if not of_kind:
        raise UserError(f"sites {chosen}: this model has none")
    if chosen in ("heads", "layers"):
        return [Cell(site) for site in of_kind]
    if len({pair.clean[0].shape[1] for pair in pairs}) > 1:
        raise UserError(f"sites {chosen}: pairs of several lengths have no common positions")
    return [
        Cell(site, place, run.tokenizer.decode([token]))
        for site in of_kind
        for place, token in enumerate(_read_by(site, pairs[0], first))
    ]


def _read_by(site: Site, pair: Pair, target: Sequence[int]) -> Sequence[int]:
    """Return the tokens of a site's stack."""
    if site.name.startswith("encoder"):
        ids: list[int] = pair.clean[0][0].tolist()
        return ids
    return target


def _vectors(site: Site) -> Site:
    if site.part in PAIRS:
        raise UserError(f"site {site.name}: effects are of vectors; name heads, queries or keys")
    return site


def _require_parallel(cells: Sequence[Cell]) -> None:
    """Raise for a state at all tokens: gradients of the first ones pass through the others."""
    for cell in cells:
        if cell.site.place.endswith(STATES) and cell.position is None:
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
    controls: tuple[int, np.random.Generator],
) -> _Measured:
    """Return the effects of all cells for a pair of texts."""
    places = list({cell.site.place: cell.site for cell in cells}.values())
    clean, corrupt = Recorder(places), Recorder(places)
    with torch.no_grad(), intercept_places(run.model, clean.hooks):
        high = float(_metric(run, pair.clean, pair.ids))
    with torch.set_grad_enabled("attribution" in by), intercept_places(run.model, corrupt.hooks):
        low = _metric(run, pair.corrupt, pair.ids)[0]
    start = low.item()
    total = high - start
    if abs(total) < 1e-9:
        raise UserError(f"pair {number}: the metric is the same for both texts; choose others")
    patched = attributed = None
    source, (n_controls, rng) = clean.tensors, controls
    if "patching" in by:
        chosen = [(cell.site.place, _mask_of(cell, source[cell.site.place])) for cell in cells]
        patched = (_patch(run, pair, chosen, source) - start) / total
    if "attribution" in by:
        attributed = _attribute(low, cells, clean, corrupt) / total
    drawn = sorted((_drawn(places, source, rng) for _ in range(n_controls)), key=itemgetter(0))
    control = (_patch(run, pair, drawn, source) - start) / total if drawn else np.empty(0)
    return _Measured(high, start, patched, attributed, control)


def _metric(run: Run, inputs: Sequence[Tensor], ids: tuple[int, int]) -> Float[Tensor, " b"]:
    """Return the metric of each row's next token."""
    model = run.model
    assert isinstance(model, LanguageModel | SequenceToSequence)
    return differences(model.head(model.body(*inputs)[:, -1]), ids)


def _mask_of(cell: Cell, x: Float[Tensor, "1 *h n d"]) -> Bool[Tensor, "*h n d"]:
    """Return the numbers of a place that belong to a cell."""
    mask = torch.zeros_like(x[0], dtype=torch.bool)
    of_site = mask if cell.site.head is None else mask[cell.site.head]
    of_site[slice(None) if cell.position is None else cell.position] = True
    return mask


def _drawn(
    places: Sequence[Site],
    source: dict[str, Tensor],
    rng: np.random.Generator,
) -> tuple[str, Bool[Tensor, "h n d"]]:
    """Return random channels of the heads of a random layer, as many as one head has."""
    place = places[int(rng.integers(len(places)))].place
    _, h, n, d = source[place].shape
    channels = torch.from_numpy(rng.choice(h * d, d, replace=False)).to(source[place].device)
    mask = torch.zeros(h * d, dtype=torch.bool, device=source[place].device)
    mask[channels] = True
    return place, mask.view(h, 1, d).expand(h, n, d)


@torch.no_grad()
def _patch(
    run: Run,
    pair: Pair,
    patches: Sequence[tuple[str, Bool[Tensor, "*h n d"]]],
    source: dict[str, Tensor],
) -> np.ndarray:
    """Return the metric of the corrupt text with each patch: a row of a batch for each."""
    at_once = max(1, TOKENS_AT_ONCE // max(x.shape[1] for x in pair.corrupt if x.ndim > 1))
    found = []
    for start in range(0, len(patches), at_once):
        some = patches[start : start + at_once]
        hooks = dict(_patch_hooks(some, source))
        inputs = [x.expand(len(some), *x.shape[1:]) for x in pair.corrupt]
        with intercept_places(run.model, hooks):
            found.append(_metric(run, inputs, pair.ids).double().cpu().numpy())
    return np.concatenate(found)


def _patch_hooks(
    patches: Sequence[tuple[str, Tensor]], source: dict[str, Tensor]
) -> Iterator[tuple[str, Hook]]:
    """Yield a hook for each place, which patches its rows."""
    for place in dict.fromkeys(place for place, _ in patches):
        rows = [row for row, (its_place, _) in enumerate(patches) if its_place == place]
        yield place, _patched(rows, torch.stack([patches[row][1] for row in rows]), source[place])


def _patched(rows: Sequence[int], masks: Tensor, source: Tensor) -> Hook:
    together = rows[-1] - rows[0] == len(rows) - 1
    chosen = slice(rows[0], rows[-1] + 1) if together else rows

    def hook(x: Tensor, tokens: Tokens, _: Tokens) -> Tensor:
        at = tokens.positions[0]
        x = x.clone()
        x[chosen] = torch.where(masks[..., at, :], source[..., at, :], x[chosen])
        return x

    return hook


def _attribute(
    low: Tensor, cells: Sequence[Cell], clean: Recorder, corrupt: Recorder
) -> np.ndarray:
    """Return (a_clean − a_corrupt)·∂m/∂a of each cell."""
    steps = [(place, i) for place, by_token in corrupt.steps.items() for i in sorted(by_token)]
    tensors = [corrupt.steps[place][i] for place, i in steps]
    slopes = torch.autograd.grad(low, tensors, materialize_grads=True, allow_unused=True)
    products = {}
    for place in corrupt.steps:
        slope = torch.cat(
            [x for (its, _), x in zip(steps, slopes, strict=True) if its == place], -2
        )
        difference = clean.tensors[place] - corrupt.tensors[place].detach()
        products[place] = (difference * slope)[0]
    found = []
    for cell in cells:
        product = products[cell.site.place]
        found.append(float(product[_mask_of(cell, product[None])].sum()))
    return np.array(found)
