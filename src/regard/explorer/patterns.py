"""What kind of matrix a head applies: how much of its weight goes where, as single numbers.

A weight A[i, j] is what query i gives to key j; positions count from 0. All functions take the
matrices of any number of heads, whose rows sum to 1, and give a number for each head.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Read:
    """The text that the heads read."""

    ids: Int[Tensor, " n"]
    separators: Bool[Tensor, " n"]
    """Which tokens part sentences, such as [SEP]."""
    punctuation: Bool[Tensor, " n"]


Weights = Float[Tensor, "*heads n n"]
Scores = Float[Tensor, "*heads"]


def patterns(weights: Weights, read: Read) -> Mapping[str, Scores]:
    """The share of a head's weight, averaged over queries, by what it goes to."""
    return {
        "previous": at_distance(weights, -1),
        "next": at_distance(weights, 1),
        "self": at_distance(weights, 0),
        "first": weights[..., 0].mean(-1),
        "separators": among(weights, read.separators.expand(weights.shape[-2:])),
        "punctuation": among(weights, read.punctuation.expand(weights.shape[-2:])),
        "same token": among(weights, same_token(read.ids)),
        "induction": among(weights, after_same_token(read.ids)),
        "causal": weights.tril().sum(-1).mean(-1),
    }


def at_distance(weights: Weights, offset: int) -> Scores:
    """The mean of A[i, i + offset] over the queries that have such a key; 0 if none has."""
    diagonal = weights.diagonal(offset, dim1=-2, dim2=-1)
    return diagonal.sum(-1) / max(diagonal.shape[-1], 1)


def among(weights: Weights, chosen: Bool[Tensor, "n n"]) -> Scores:
    """The mean over queries of the weight that goes to the chosen keys of each."""
    return (weights * chosen).sum(-1).mean(-1)


def same_token(ids: Int[Tensor, " n"]) -> Bool[Tensor, "n n"]:
    """For each query, other places of the same token."""
    same = ids[:, None] == ids
    return same & ~torch.eye(len(ids), dtype=torch.bool, device=ids.device)


def after_same_token(ids: Int[Tensor, " n"]) -> Bool[Tensor, "n n"]:
    """For each query, the keys before it that follow the same token: j < i, x[j − 1] = x[i]."""
    found = torch.zeros(len(ids), len(ids), dtype=torch.bool, device=ids.device)
    found[:, 1:] = ids[:, None] == ids[:-1]
    return found.tril(-1)


def repeated(weights: Float[Tensor, "*heads twice twice"]) -> Mapping[str, Scores]:
    """What heads do in the second half of a text that is one random half twice, T tokens each.

    A head that looks for the same token gives its weight to A[i, i − T], an induction head to what
    followed then, A[i, i − T + 1] (Olsson et al., 2022, arXiv:2209.11895).
    """
    half = weights.shape[-1] // 2
    second = weights[..., half:, :]
    duplicate = second.diagonal(0, dim1=-2, dim2=-1)
    induction = second.diagonal(1, dim1=-2, dim2=-1)
    return {"duplicate": duplicate.mean(-1), "induction": induction.mean(-1)}


def sink(weights: Weights, key: int = 0) -> Scores:
    """The mean weight that a key k gets from the queries i ≥ k: Σ A[i, k] / (T − k).

    A head with more than 0.3 for the first token uses it as a sink (Gu et al., 2024,
    arXiv:2410.10781).
    """
    return weights[..., key:, key].mean(-1)


def entropy(weights: Weights, *, causal: bool) -> Scores:
    """−Σ A ln A, averaged over queries, as a share of what equal weights have: 1 is uniform.

    Equal weights have ln n, or where query i sees i + 1 keys, the mean of ln(i + 1).
    """
    found = torch.special.entr(weights).sum(-1).mean(-1)
    n = weights.shape[-1]
    seen = torch.arange(1, n + 1, device=weights.device, dtype=weights.dtype)
    largest = seen.log().mean() if causal else seen[-1].log()
    return found / largest if n > 1 else torch.ones_like(found)


def distance(weights: Weights) -> Scores:
    """How far away a head looks on average, in tokens: Σ A |i − j| / Σ A."""
    place = torch.arange(weights.shape[-1], device=weights.device, dtype=weights.dtype)
    far = (place[:, None] - place).abs()
    return (weights * far).sum((-2, -1)) / weights.sum((-2, -1))


def blocks(weights: Weights, second: int) -> Float[Tensor, "*heads 2 2"]:
    """Of two texts read as one, how much of its weight each gives to itself and to the other.

    Row 0 are the queries before `second`, row 1 the others, and so are the columns for the keys.
    """
    to_first, to_second = weights[..., :second].sum(-1), weights[..., second:].sum(-1)
    given = torch.stack([to_first, to_second], -1)
    return torch.stack([given[..., :second, :].mean(-2), given[..., second:, :].mean(-2)], -2)


def value_lengths(
    values: Float[Tensor, "heads n d"], projection: Float[Tensor, "d_model heads_d"]
) -> Float[Tensor, "heads n"]:
    """‖v_j W_O‖: how much key j adds to an output through a head that gives it all its weight."""
    heads, _, d = values.shape
    parts = projection.view(-1, heads, d)
    return torch.einsum("hnd,mhd->hnm", values, parts).norm(dim=-1)


def value_norms(
    weights: Float[Tensor, "heads n n"],
    values: Float[Tensor, "heads n d"],
    projection: Float[Tensor, "d_model heads_d"],
) -> Float[Tensor, "heads n n"]:
    """‖A[i, j] v_j W_O‖: how much key j adds to query i's output through each head.

    A large weight on a small value adds little (Kobayashi et al., 2020, arXiv:2004.10102).
    """
    norms: Tensor = weights.abs() * value_lengths(values, projection)[:, None]
    return norms
