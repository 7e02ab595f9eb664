"""Who may not be looked at."""

from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Mask, Softmax
from regard.errors import UserError
from regard.studies.figure import figure, heat_map
from regard.studies.finding import EvidenceParts, at_most, equal, informational, look_inside
from regard.studies.study import Seed, study
from regard.studies.tensors import normal

Lengths: TypeAlias = tuple[int, ...]
Vectors: TypeAlias = Float[Tensor, "1 heads n d"]
HEADS, D = 4, 16
_CPU = torch.device("cpu")


@study()
def masking(
    sources: Annotated[Lengths, Meta(min_length=1, max_length=12)] = (8, 5, 3, 6),
    targets: Annotated[Lengths, Meta(min_length=1, max_length=12)] = (6, 4, 2, 5),
    row: Annotated[int, Meta(ge=1, le=12)] = 2,
    hidden: Annotated[int, Meta(ge=1, le=64)] = 3,
    size: Annotated[float, Meta(gt=0, le=1000)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How are positions masked, and which?

    A score of −∞ gives the same weights as a column set to zero and rows renormalized; padding and
    future positions get exactly no weight.

    $$ \frac{\mathrm{softmax}(s)_j \, b_j}{\sum_l \mathrm{softmax}(s)_l \, b_l} = \mathrm{softmax}(s
    + \ln b)_j, \quad b_j \in \{0, 1\} $$

    e^−∞ is 0: a key whose score is −∞ takes no part in the sum that softmax divides by. Setting
    its weight to zero after the softmax, and dividing each row by what is left, gives the same,
    because a common divisor cancels. A score of 0 doesn't hide a key: e^0 is 1. And zero without
    dividing again leaves rows that add up to less than 1.

    Equal in theory isn't equal on a computer. If the hidden key has nearly all the weight, what is
    left is rounded away and can't be divided by; try size = 1000. That is why it is the scores that
    are masked.

    Four masks are all that an encoder–decoder needs. Padding at the ends of texts is hidden from
    everyone, in the encoder and in the decoder. In cross-attention every query of the decoder sees
    the real tokens of the source. In the decoder's self-attention a token sees the real ones up to
    itself.

    Figure. Masks; a colored key is attended. Above: the real tokens of each text, without its
    padding. Below, for text {row}: cross-attention, where all queries attend to all real tokens of
    the source; and self-attention of the decoder, a triangle that ends where the padding begins.

    Args:
        sources: lengths of the encoder's texts
        targets: lengths of the decoder's texts
        row: which text is drawn alone, from 1
        hidden: which token is hidden, from 1
        size: size of queries and keys
    """
    _require(sources, targets, row, hidden)
    query, key = queries_and_keys(max(sources), size, seed)
    keep = torch.ones(1, max(sources), dtype=torch.bool)
    keep[0, hidden - 1] = False
    attend = Softmax()
    barred, plain = (attend.weights(query, key, mask=mask) for mask in (Mask.positions(keep), None))
    zeroed = plain * keep
    divided = zeroed / zeroed.sum(-1, keepdim=True)
    scored_zero = key * keep[..., None]  # a key of zeros has the score 0
    masks, allowed = four_masks(sources, targets, row), pairs(sources, targets, row)
    # Where nothing was left to divide by, all is wrong.
    difference = (barred - divided).abs().nan_to_num(1.0).max()
    yield at_most("largest difference of −∞ from zero and divide", difference, 1e-12)
    yield equal("weight of the hidden token, score −∞", barred[..., hidden - 1].max(), 0)
    shown = attend.weights(query, scored_zero)[..., hidden - 1]
    yield informational("weight of the hidden token, score 0: mean", shown.mean())
    yield informational("zero without dividing: least sum over keys", zeroed.sum(-1).min())
    panels = []
    for name, look in masks.items():
        yield equal(f"pairs with any weight: {name}", (look.weights() > 0).sum(), allowed[name])
        rows = "texts" if "padding" in name else "queries"
        each = heat_map(look.map().double(), title=name, x="keys", y=rows, unit="1 = attended")
        panels.append(each)
    yield figure(*panels, columns=2)
    yield look_inside(
        attend,
        *queries_and_keys(max(targets), size, seed),
        torch.eye(max(targets), dtype=torch.float64).expand(1, HEADS, -1, -1),
        mask=masks["decoder self-attention"].mask,
        title=f"the decoder's self-attention, of text {row} with its padding",
    )


class Look(NamedTuple):
    """A mask, and for how many queries and keys."""

    mask: Mask
    queries: int
    keys: int

    def map(self) -> Bool[Tensor, "rows keys"]:
        """The mask; if there are several texts with a query each, a text is a row."""
        dense = self.mask.to_dense(self.queries, self.keys, _CPU)
        return dense.expand(-1, -1, self.queries, self.keys).flatten(0, 2)

    def weights(self) -> Float[Tensor, "rows keys"]:
        """What attention gives to each key if all scores are equal."""
        texts = 1 if self.mask.key_lengths is None else len(self.mask.key_lengths)
        query, key = (torch.zeros(texts, 1, count, 1) for count in (self.queries, self.keys))
        return Softmax().weights(query, key, mask=self.mask).flatten(0, 2)


def queries_and_keys(n: int, size: float, seed: int) -> tuple[Vectors, Vectors]:
    """Random queries and keys."""
    query, key = size * normal(seed, 2, 1, HEADS, n, D)
    return query, key


def four_masks(sources: Lengths, targets: Lengths, row: int) -> dict[str, Look]:
    """The four masks by name: two of all texts, and two of one row of them."""
    n, m = max(sources), max(targets)
    source, target = (Mask.lengths(torch.tensor(lengths)) for lengths in (sources, targets))
    one = slice(row - 1, row)
    return {
        "encoder padding": Look(source, 1, n),
        "decoder padding": Look(target, 1, m),
        "cross-attention": Look(source.rows(one), m, n),
        "decoder self-attention": Look(Mask.causal() & target.rows(one), m, m),
    }


def pairs(sources: Lengths, targets: Lengths, row: int) -> dict[str, int]:
    """How many pairs each of them allows, by counting real tokens."""
    m, real = max(targets), targets[row - 1]
    return {
        "encoder padding": sum(sources),
        "decoder padding": sum(targets),
        "cross-attention": m * sources[row - 1],
        "decoder self-attention": real * (real + 1) // 2 + (m - real) * real,
    }


def _require(sources: Lengths, targets: Lengths, row: int, hidden: int) -> None:
    """Refuse lengths that don't fit.

    Raises:
        UserError: says which.
    """
    for name, lengths in (("sources", sources), ("targets", targets)):
        if not all(1 <= length <= 64 for length in lengths):
            raise UserError(f"masking: {name}: a text has 1 to 64 tokens, not {list(lengths)}")
    if len(sources) != len(targets):
        raise UserError(
            f"masking: targets: {len(targets)} for {len(sources)} sources; give as many lengths"
        )
    if row > len(sources):
        raise UserError(f"masking: row = {row}, but there are {len(sources)} texts; name one")
    if max(sources) < 2 or hidden > max(sources):
        raise UserError(
            f"masking: hidden = {hidden}, but the longest source has {max(sources)} tokens; hide "
            "one of several"
        )
