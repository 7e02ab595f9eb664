"""Patching: set sites of a corrupt text to their values on the clean text.

Each patch is one row of a batch. Shapes: b rows, n tokens, h heads, d channels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.edits.activations import ids_read, text_inputs
from regard.edits.found import Cell
from regard.edits.metrics import Measure, Metric, as_tuple
from regard.edits.places import in_turn, intercept_places
from regard.edits.sites import PAIRS, Site, find_site
from regard.edits.sites import sites as all_sites
from regard.edits.tokens import Hook, Hooks, Tokens
from regard.errors import UserError
from regard.models.builders import LanguageModel, SequenceToSequence
from regard.models.perceiver import PerceiverDecoder
from regard.runs.run import Run

PARTS = {
    "heads": ("heads",),
    "layers": ("attention", "cross", "feedforward", "hidden"),
    "residual": ("residual", "hidden"),
    "tokens": ("embedding",),
    "trace": ("residual", "attention", "cross", "feedforward", "hidden"),
}
"""Choice of sites → parts of the model."""
TOKENS_AT_ONCE = 2**14
"""Largest number of tokens of a batch."""


Patch: TypeAlias = Mapping[str, Bool[Tensor, "*h n #d"]]
"""Place → mask of the elements that a row takes from the source."""


class Pair(NamedTuple):
    """A clean and a corrupt text as a model's inputs, and their metric."""

    clean: list[Tensor]
    corrupt: list[Tensor]
    measure: Measure


def pairs_of(
    run: Run, clean: str | Sequence[str], corrupt: str | Sequence[str], metric: Metric
) -> list[Pair]:
    """Return the pairs as inputs.

    Raises:
        UserError: the texts of a pair differ in length, or the run doesn't predict tokens.
    """
    clean, corrupt = as_tuple(clean), as_tuple(corrupt)
    if not isinstance(run.model, LanguageModel | SequenceToSequence):
        raise UserError(f"{run.path}: effects need a model that predicts the next token")
    if len(clean) != len(corrupt) or not clean:
        raise UserError(f"effects: {len(clean)} clean texts and {len(corrupt)} corrupt ones")
    found = []
    every = metric.measures(len(clean), run.tokenizer)
    for number, (one, other, measure) in enumerate(zip(clean, corrupt, every, strict=True), 1):
        # The last reading of a text is as a question, if the run answers questions.
        inputs, others = text_inputs(run, one)[-1], text_inputs(run, other)[-1]
        if inputs[0].shape != others[0].shape:
            lengths = f"{inputs[0].shape[1]} and {others[0].shape[1]}"
            raise UserError(
                f"pair {number}: the texts have {lengths} tokens; patching needs equal lengths"
            )
        found.append(Pair(inputs, others, measure))
    return found


def cells_of(run: Run, chosen: str | Sequence[str], pairs: Sequence[Pair]) -> list[Cell]:
    """Return the cells to patch: each site at all tokens together, or at each token.

    Raises:
        UserError: the choice is neither one of `PARTS` nor a list of names, the model has no such
            site, or pairs of different lengths have no common positions.
    """
    if not chosen or (isinstance(chosen, str) and chosen not in PARTS):
        raise UserError(
            f"sites {chosen or 'empty'}: there are {', '.join(PARTS)}, or a list of names"
        )
    known = all_sites(run)
    if not isinstance(chosen, str):
        by_name = {site.name: site for site in known}
        return [Cell(require_vectors(find_site(by_name, name))) for name in dict.fromkeys(chosen)]
    parts, heads = PARTS[chosen], chosen == "heads"
    of_kind = [s for s in known if s.part in parts and (s.head is not None) == heads]
    of_kind = [s for s in of_kind if ".residual." not in s.name]
    if not of_kind:
        raise UserError(f"sites {chosen}: this model has none")
    if chosen in ("heads", "layers"):
        return [Cell(site) for site in of_kind]
    if len({pair.clean[0].shape[1] for pair in pairs}) > 1:
        raise UserError(f"sites {chosen}: pairs of several lengths have no common positions")
    return [
        Cell(site, place, row)
        for site in of_kind
        for place, row in enumerate(_rows(run, site, pairs[0]))
    ]


def _rows(run: Run, site: Site, pair: Pair) -> list[str]:
    """Return the tokens of a site's stack, or the names of its latents."""
    source = site.name.startswith("encoder")
    ids = pair.clean[0][0].tolist() if source else ids_read(run, pair.clean)
    if isinstance(body := run.model.body, PerceiverDecoder) and site.of_latents:
        return [f"latent {i}" for i in range(min(len(ids), body.n_latents))]
    return [run.tokenizer.token_text(token) for token in ids]


def require_vectors(site: Site) -> Site:
    """Return the site after a check that it has vectors that can differ between texts.

    Raises:
        UserError: it has numbers per query and key, or the same values in both texts.
    """
    if site.part == "positions":
        raise UserError(f"site {site.name}: texts of equal length have the same positions")
    if site.part in PAIRS:
        raise UserError(f"site {site.name}: effects are of vectors; name heads, queries or keys")
    return site


def metric_of(
    run: Run, inputs: Sequence[Tensor], measure: Measure, *hooks: Hooks
) -> Float[Tensor, " b"]:
    """Return the metric of each row's next token, with hooks applied in turn."""
    model = run.model
    assert isinstance(model, LanguageModel | SequenceToSequence)
    with intercept_places(model, in_turn(hooks)):
        return measure(model.head(model.body(*inputs)[:, -1]))


def gap_of(clean: float, corrupt: float, number: int) -> float:
    """Return m(clean) − m(corrupt) of a pair, the denominator of its effects.

    Raises:
        UserError: it is zero.
    """
    if abs(gap := clean - corrupt) < 1e-9:
        raise UserError(f"pair {number}: the metric is the same for both texts; choose others")
    return gap


def mask_of(cell: Cell, x: Float[Tensor, "1 *h n d"]) -> Bool[Tensor, "*h n 1"]:
    """Return a mask of the heads and tokens of a place that belong to a cell."""
    mask = torch.zeros_like(x[0, ..., :1], dtype=torch.bool)
    of_site = mask if cell.site.head is None else mask[cell.site.head]
    of_site[slice(None) if cell.position is None else cell.position] = True
    return mask


def patch_of(cells: Iterable[Cell], source: Mapping[str, Tensor]) -> Patch:
    """Return one patch of several cells."""
    found: dict[str, Tensor] = {}
    for cell in cells:
        place = cell.site.place
        mask = mask_of(cell, source[place])
        found[place] = found[place] | mask if place in found else mask
    return found


def rows_at_once(pair: Pair) -> int:
    """Return the number of rows in a batch."""
    return max(1, TOKENS_AT_ONCE // max(x.shape[1] for x in pair.corrupt if x.ndim > 1))


def patch_each(
    run: Run, pair: Pair, patches: Sequence[Patch], source: Mapping[str, Tensor]
) -> np.ndarray:
    """Return the metric of the corrupt text with each patch, batched."""
    at_once, found = rows_at_once(pair), []
    for start in range(0, len(patches), at_once):
        some = patches[start : start + at_once]
        found.append(row_metrics(run, pair, len(some), patch_hooks(some, source)))
    return np.concatenate(found)


@torch.no_grad()
def row_metrics(run: Run, pair: Pair, rows: int, *hooks: Hooks) -> Float[np.ndarray, " rows"]:
    """Return the metric of the corrupt text, repeated as rows that hooks change."""
    inputs = [x.expand(rows, *x.shape[1:]) for x in pair.corrupt]
    return metric_of(run, inputs, pair.measure, *hooks).double().cpu().numpy()


def patch_hooks(patches: Sequence[Patch], source: Mapping[str, Tensor]) -> dict[str, Hook]:
    """Return a hook for each patched place."""
    rows: dict[str, list[int]] = {}
    for row, patch in enumerate(patches):
        for place in patch:
            rows.setdefault(place, []).append(row)
    return {
        place: patched_rows(own, torch.stack([patches[row][place] for row in own]), source[place])
        for place, own in rows.items()
    }


def patched_rows(rows: Sequence[int], masks: Tensor, source: Tensor) -> Hook:
    """Return a hook that sets masked elements of some rows to those of a source."""
    together = rows[-1] - rows[0] == len(rows) - 1
    chosen = slice(rows[0], rows[-1] + 1) if together else rows

    def hook(x: Tensor, tokens: Tokens, _: Tokens) -> Tensor:
        at = tokens.positions[0]
        x = x.clone()
        x[chosen] = torch.where(masks[..., at, :], source[..., at, :], x[chosen])
        return x

    return hook
