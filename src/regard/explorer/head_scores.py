"""Scores of attention heads: the share of weight on each pattern.

A[i, j] is the weight of query i on key j; positions count from 0. Functions of weights take
matrices of any number of heads, whose rows sum to 1, and return one number per head.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.explorer.attention_maps import AttentionMap
from regard.explorer.intercept import AttentionRecord

SEPARATORS = frozenset({"[SEP]", "</s>", "<|endoftext|>", "<sep>", "⁇", "\n"})
"""Separator tokens of common vocabularies."""
SINK = 0.3
"""Threshold of an attention sink: mean weight on the first token."""
SINK_TOKENS = 10
"""Smallest text length at which uniform causal attention is not a sink by that threshold."""
_PATTERNS = (
    *("previous", "next", "self", "first"),
    *("separators", "punctuation", "same token", "induction"),
)
LEAST_RANGE = 0.1
"""Smallest range of scores that a column's color scale covers."""
_NO_SHARES = ("distance", "norm", "gradient")
"""Scores that may exceed 1."""


@dataclass(frozen=True, eq=False)
class TokenInfo:
    """Properties of a text's tokens."""

    ids: Int[Tensor, " n"]
    separators: Bool[Tensor, " n"]
    """Tokens that separate sentences, such as [SEP]."""
    punctuation: Bool[Tensor, " n"]


class Head(NamedTuple):
    """Scores of one head."""

    layer: str
    head: int
    """Number of the head, from 0."""
    scores: dict[str, float]

    @property
    def pattern(self) -> str:
        """The pattern with the most weight; "mixed" if none has at least half."""
        kinds = {name: self.scores[name] for name in _PATTERNS}
        name = max(kinds, key=kinds.__getitem__)
        return name if kinds[name] >= 0.5 else "mixed"


def head_scores(maps: Sequence[AttentionMap]) -> list[Head]:
    """Return the scores of each head, averaged over texts: one map per text, of one model.

    Raises:
        ValueError: there are no maps.
    """
    if not maps:
        raise ValueError("head scores need at least one text")
    return [_mean_of(same) for same in zip(*map(_scores_of, maps), strict=True)]


def _mean_of(same: Sequence[Head]) -> Head:
    """Return a head with the means of its scores on several texts."""
    head = same[0]
    means = {name: fmean(one.scores[name] for one in same) for name in head.scores}
    return head._replace(scores=means)


def with_scores(heads: Sequence[Head], more: Mapping[str, Float[Tensor, " heads"]]) -> list[Head]:
    """Return the heads with additional scores, given in the same order."""
    return [
        head._replace(scores=head.scores | {name: float(of[i]) for name, of in more.items()})
        for i, head in enumerate(heads)
    ]


def most_selective(one: AttentionMap) -> tuple[int, int]:
    """Return the layer and head (indices on the page) whose queries most select keys by content.

    A head's score is the mean over queries of max_j (A[i, j] − mean weight of all queries on j).
    The first key and separators are excluded; in self-attention, so are the query's own position
    and its neighbors.
    """
    n, m = len(one.queries), len(one.keys)
    ignored = token_info(one.keys).separators.repeat(n, 1)
    ignored[:, 0] = True
    if one.queries == one.keys:
        ignored |= torch.ones(n, m, dtype=torch.bool).tril(1).triu(-1)
    scores: dict[tuple[int, int], float] = {}
    for place, layer in enumerate(one.layers):
        weights = shares(layer.record)[0].float().cpu()
        mean = weights.sum(-2, keepdim=True) / (weights > 0).sum(-2, keepdim=True).clamp(min=1)
        largest = (weights - mean).masked_fill(ignored, 0).clamp(min=0).amax(-1).mean(-1)
        scores |= {(place, at): float(largest[head]) for at, head in enumerate(layer.heads)}
    return max(scores, key=scores.__getitem__)


def sink_share(heads: Sequence[Head]) -> float:
    """Return the share of heads that use the first token as a sink."""
    return fmean([head.scores["sink"] > SINK for head in heads])


def mean_entropy(heads: Sequence[Head]) -> float:
    """Return the mean entropy of the heads, as a share of uniform attention's."""
    return fmean([head.scores["entropy"] for head in heads])


def draw_head_scores(heads: Sequence[Head], ending: str) -> bytes:
    """Draw a row per head and a column per score, with its own color range: SVG or PNG."""
    from regard.drawing import heat_map, panels, to_png, to_svg  # imports matplotlib

    names = [name for name in heads[0].scores if name not in _NO_SHARES]
    with panels(height=2.2 + 0.22 * len(heads), width=8) as (figure, (axes,)):
        values = np.array([[head.scores[name] for name in names] for head in heads])
        low, high = values.min(0), values.max(0)
        heat_map(axes, (values - low) / np.maximum(high - low, LEAST_RANGE))
        ranges = zip(names, low, high, strict=True)
        labels = [f"{name}\n{least:.2f} to {most:.2f}" for name, least, most in ranges]
        axes.set_xticks(range(len(names)), labels, rotation=40, ha="right", fontsize="small")
        axes.set_yticks(range(len(heads)), [f"{head.layer}.{head.head}" for head in heads])
        axes.set_ylabel("layer.head")
        title = "Scores of heads, colored from the lowest to the highest of each column"
        axes.set_title(title, fontsize="medium")
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)


def token_info(tokens: Sequence[str]) -> TokenInfo:
    """Return the properties of tokens."""
    numbers = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return TokenInfo(
        ids=torch.tensor([numbers[token] for token in tokens]),
        separators=torch.tensor([token in SEPARATORS for token in tokens]),
        punctuation=torch.tensor([_is_punctuation(token) for token in tokens]),
    )


Weights = Float[Tensor, "*heads n n"]
Scores = Float[Tensor, "*heads"]


def patterns(weights: Weights, tokens: TokenInfo) -> Mapping[str, Scores]:
    """Return the share of each head's weight by pattern, averaged over queries."""
    return {
        "previous": at_distance(weights, -1),
        "next": at_distance(weights, 1),
        "self": at_distance(weights, 0),
        "first": weights[..., 0].mean(-1),
        "separators": among(weights, tokens.separators.expand(weights.shape[-2:])),
        "punctuation": among(weights, tokens.punctuation.expand(weights.shape[-2:])),
        "same token": among(weights, same_token(tokens.ids)),
        "induction": among(weights, after_same_token(tokens.ids)),
        "causal": 1 - normalized(weights).triu(1).sum(-1).mean(-1),
    }


def shares(record: AttentionRecord) -> Float[Tensor, "batch heads queries keys"]:
    """Return weights; of implied ones, which may be negative, the shares |A| / Σ |A|."""
    if record.score_attention is not None:
        return record.weights
    sizes = record.weights.abs()
    total = sizes.sum(-1, keepdim=True)
    return torch.where(total > 0, sizes / total, 0.0)


def normalized(weights: Weights) -> Weights:
    """Return A / Σ A of each row; rows without weight stay 0.

    Rows of A sum to 1, but for sigmoid, softmax-one and stick-breaking.
    """
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, 0.0)


def at_distance(weights: Weights, offset: int) -> Scores:
    """Return the mean of A[i, i + offset] over the queries that have such a key; 0 if none has."""
    diagonal = weights.diagonal(offset, dim1=-2, dim2=-1)
    return diagonal.sum(-1) / max(diagonal.shape[-1], 1)


def among(weights: Weights, chosen: Bool[Tensor, "n n"]) -> Scores:
    """Return the weight on the chosen keys of each query, averaged over queries."""
    return (weights * chosen).sum(-1).mean(-1)


def same_token(ids: Int[Tensor, " n"]) -> Bool[Tensor, "n n"]:
    """Return a mask of the other occurrences of each query's token."""
    same = ids[:, None] == ids
    return same & ~torch.eye(len(ids), dtype=torch.bool, device=ids.device)


def after_same_token(ids: Int[Tensor, " n"]) -> Bool[Tensor, "n n"]:
    """Return a mask of earlier keys that follow each query's token: j < i, x[j − 1] = x[i]."""
    found = torch.zeros(len(ids), len(ids), dtype=torch.bool, device=ids.device)
    found[:, 1:] = ids[:, None] == ids[:-1]
    return found.tril(-1)


def repeated(weights: Float[Tensor, "*heads twice twice"]) -> Mapping[str, Scores]:
    """Return scores of the second half of a sequence of T random tokens that occurs twice.

    A duplicate-token head has its weight on A[i, i − T], an induction head on the successor,
    A[i, i − T + 1] (Olsson et al., 2022, arXiv:2209.11895).
    """
    half = weights.shape[-1] // 2
    second = weights[..., half:, :]
    duplicate = second.diagonal(0, dim1=-2, dim2=-1)
    induction = second.diagonal(1, dim1=-2, dim2=-1)
    return {"duplicate": duplicate.mean(-1), "induction": induction.mean(-1)}


def sink(weights: Weights, key: int = 0) -> Scores:
    """Return the mean weight of key k over the queries i ≥ k: Σ A[i, k] / (T − k).

    A head with more than 0.3 for the first token uses it as a sink (Gu et al., 2024,
    arXiv:2410.10781).
    """
    return weights[..., key:, key].mean(-1)


def entropy(weights: Weights, *, causal: bool) -> Scores:
    """Return −Σ P ln P of P = A / Σ A, averaged over queries, as a share of uniform attention's.

    Uniform attention has entropy ln n, or the mean of ln(i + 1) if causal.
    """
    found = torch.special.entr(normalized(weights)).sum(-1).mean(-1)
    n = weights.shape[-1]
    seen = torch.arange(1, n + 1, device=weights.device, dtype=weights.dtype)
    largest = seen.log().mean() if causal else seen[-1].log()
    return found / largest if n > 1 else torch.ones_like(found)


def distance(weights: Weights) -> Scores:
    """Return the mean distance between query and key, in tokens: Σ A |i − j| / Σ A."""
    place = torch.arange(weights.shape[-1], device=weights.device, dtype=weights.dtype)
    far = (place[:, None] - place).abs()
    total = weights.sum((-2, -1))
    return torch.where(total > 0, (weights * far).sum((-2, -1)) / total, 0.0)


def blocks(weights: Weights, second: int) -> Float[Tensor, "*heads 2 2"]:
    """Return the share of weight within and between two texts that form one sequence.

    Row 0 holds the queries before `second`, row 1 the others; columns split the keys likewise.
    """
    to_first, to_second = weights[..., :second].sum(-1), weights[..., second:].sum(-1)
    given = torch.stack([to_first, to_second], -1)
    return torch.stack([given[..., :second, :].mean(-2), given[..., second:, :].mean(-2)], -2)


def _scores_of(one: AttentionMap) -> list[Head]:
    """Return the scores of each shown head on one text."""
    tokens, found = token_info(one.keys), []
    for layer in one.layers:
        weights = shares(layer.record)[0].float().cpu()
        causal = not weights.triu(1).any()
        scores = {
            **patterns(weights, tokens),
            "sink": sink(weights),
            "entropy": entropy(weights, causal=causal),
            "distance": distance(weights),
        }
        lengths = layer.value_lengths
        if lengths is not None:
            applied = layer.record.weights[0].float().cpu()
            scores["norm"] = (applied.abs() * lengths.float().cpu()[:, None]).sum(-1).mean(-1)
        found += [
            Head(layer.name, head, {name: float(of[head]) for name, of in scores.items()})
            for head in layer.heads
        ]
    return found


def _is_punctuation(token: str) -> bool:
    text = "" if token in SEPARATORS else token.strip()
    return bool(text) and all(unicodedata.category(letter).startswith("P") for letter in text)
