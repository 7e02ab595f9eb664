"""Masks of an encoder–decoder, and the ways to apply them."""

from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Mask, Softmax
from regard.errors import UserError
from regard.studies.figure import figure, heat_map
from regard.studies.finding import Measurements, at_most, equal, informational, look_inside
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import normal

Lengths: TypeAlias = tuple[Annotated[int, Meta(ge=1, le=64)], ...]
HEADS, D = 4, 16


@study()
def masking(
    sources: Annotated[Lengths, Meta(min_length=1, max_length=12)] = (8, 5, 3, 6),
    targets: Annotated[Lengths, Meta(min_length=1, max_length=12)] = (6, 4, 2, 5),
    row: Annotated[int, Meta(ge=1, le=12)] = 2,
    hidden: Annotated[int, Meta(ge=1, le=64)] = 3,
    size: Annotated[float, Meta(gt=0, le=1000)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which positions does attention mask, and how?

    A score of −∞ gives the same weights as a column set to zero and rows renormalized; padding and
    future positions get a weight of exactly 0.

    $$ \frac{\mathrm{softmax}(s)_j \, b_j}{\sum_l \mathrm{softmax}(s)_l \, b_l} = \mathrm{softmax}(s
    + \ln b)_j, \quad b_j \in \{0, 1\} $$

    The ways to mask one key are compared on random queries and keys, and pairs with nonzero weight
    are counted for each mask. If the masked key has nearly all the weight, the rest is lost to
    rounding, and the row can't be renormalized; try size = 1000.

    Figure. Masks; a colored key is attended. Above: the real tokens of each text, without its
    padding. Below, for text {row}: cross-attention, where all queries attend to all real tokens of
    the source; and self-attention of the decoder, a triangle that ends where the padding begins.

    Args:
        sources: lengths of the encoder's texts
        targets: lengths of the decoder's texts
        row: index of the text in the lower panels, from 1
        hidden: index of the masked token, from 1
        size: size of queries and keys
    """
    _require(sources, targets, row, hidden)
    query, key = size * normal(seed, 2, 1, HEADS, max(sources), D)
    keep = torch.ones(1, max(sources), dtype=torch.bool)
    keep[0, hidden - 1] = False
    yield from ways_to_mask(query, key, keep)
    panels, masks = [], four_masks(sources, targets, row)
    for name, pairs in masks.items():
        attended, rows = pairs.weights() > 0, "texts" if "padding" in name else "queries"
        yield equal(f"pairs with any weight: {name}", attended.sum(), pairs.allowed)
        axes = {"title": name, "x": "keys", "y": rows, "unit": "1 = attended"}
        panels.append(heat_map(attended.double(), **axes))
    yield figure(*panels, columns=2)
    yield look_inside(
        Softmax(),
        *(size * normal(seed, 2, 1, HEADS, max(targets), D)),
        torch.eye(max(targets), dtype=torch.float64).expand(1, HEADS, -1, -1),
        mask=masks["decoder self-attention"].mask,
        title=f"self-attention of the decoder, text {row} with its padding",
    )


def ways_to_mask(
    query: Float[Tensor, "1 heads n d"],
    key: Float[Tensor, "1 heads n d"],
    keep: Bool[Tensor, "1 n"],
) -> Measurements:
    """Compare a score of −∞, a weight of 0 with and without renormalization, and a score of 0."""
    attend = Softmax()
    masked, plain = (attend.weights(query, key, mask=mask) for mask in (Mask.positions(keep), None))
    zeroed = plain * keep
    renormalized = zeroed / zeroed.sum(-1, keepdim=True)
    scored_zero = key * keep[..., None]  # a key of zeros has the score 0
    # A row that can't be renormalized counts as a difference of 1.
    difference = (masked - renormalized).abs().nan_to_num(1.0).max()
    yield at_most("largest difference between −∞ and renormalization", difference, 1e-12)
    yield equal("weight of the masked token, score −∞", masked[..., ~keep[0]].max(), 0)
    shown = attend.weights(query, scored_zero)[..., ~keep[0]]
    yield informational("mean weight of the masked token, score 0", shown.mean())
    yield informational("smallest sum over keys, not renormalized", zeroed.sum(-1).min())


class MaskedPairs(NamedTuple):
    """A mask for a number of queries and keys."""

    mask: Mask
    queries: int
    keys: int
    allowed: int
    """Allowed pairs in all texts, counted by real tokens."""

    def weights(self) -> Float[Tensor, "rows keys"]:
        """Return the weights for equal scores; for several texts with one query each, in rows."""
        texts = 1 if self.mask.key_lengths is None else len(self.mask.key_lengths)
        query, key = (torch.zeros(texts, 1, count, 1) for count in (self.queries, self.keys))
        return Softmax().weights(query, key, mask=self.mask).flatten(0, 2)


def four_masks(sources: Lengths, targets: Lengths, row: int) -> dict[str, MaskedPairs]:
    """Return the masks by name: two for all texts, and two for one of them."""
    n, m, real = max(sources), max(targets), targets[row - 1]
    source, target = (Mask.lengths(torch.tensor(lengths)) for lengths in (sources, targets))
    one = slice(row - 1, row)
    causal, lower = Mask.causal() & target.rows(one), real * (real + 1) // 2 + (m - real) * real
    return {
        "encoder padding": MaskedPairs(source, 1, n, sum(sources)),
        "decoder padding": MaskedPairs(target, 1, m, sum(targets)),
        "cross-attention": MaskedPairs(source.rows(one), m, n, m * sources[row - 1]),
        "decoder self-attention": MaskedPairs(causal, m, m, lower),
    }


def _require(sources: Lengths, targets: Lengths, row: int, hidden: int) -> None:
    """Check that lengths and indices fit.

    Raises:
        UserError: one doesn't; says which.
    """
    if len(sources) != len(targets):
        raise UserError(
            f"masking: targets: {len(targets)} for {len(sources)} sources; give as many lengths"
        )
    if row > len(sources):
        raise UserError(
            f"masking: row = {row}, but there are {len(sources)} texts; use at most {len(sources)}"
        )
    if max(sources) < 2:
        raise UserError("masking: sources: all have one token; use at least two in one of them")
    if hidden > max(sources):
        raise UserError(
            f"masking: hidden = {hidden}, but the longest source has {max(sources)} tokens; use "
            f"at most {max(sources)}"
        )
