"""Random heads: attention by random features compared with softmax attention."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import KernelAttention, Softmax
from regard.attention.feature_maps import RandomFeatures
from regard.studies.tensors import normal

TOKENS = 64
"""Number of queries and keys of a head."""


class Head(NamedTuple):
    """Queries, keys and values, and a seed of features."""

    query: Float[Tensor, "1 1 n d"]
    key: Float[Tensor, "1 1 n d"]
    value: Float[Tensor, "1 1 n d"]
    seed: int


Sums: TypeAlias = tuple[Float[Tensor, "1 1 n d"], Float[Tensor, "1 1 n"]]
"""Numerator and normalizer of attention."""


class Outputs(NamedTuple):
    """Errors of attention by features."""

    errors: Float[np.ndarray, "heads n"]
    """‖c − exact‖/‖exact‖ of each query."""
    nonpositive: Float[np.ndarray, " heads"]
    """Share of queries with a sum of weights of zero or less."""


def draw_heads(count: int, d: int, *, spread: float, seed: int) -> Iterator[Head]:
    """Draw heads of normal vectors; `spread` is the standard deviation of queries and keys."""
    for own in np.random.SeedSequence([seed, d]).generate_state(count):
        query, key, value = normal(int(own), 3, 1, 1, TOKENS, d)
        yield Head(spread * query, spread * key, value, int(own))


def compare(make: Callable[[int], RandomFeatures], heads: Sequence[Head]) -> Outputs:
    """Compare softmax with attention by features, drawn for each head from its seed."""
    features = (make(head.seed).double() for head in heads)
    pairs = zip(heads, features, strict=True)
    return gather(heads, (KernelAttention(each).sums(*head[:3]) for head, each in pairs))


def gather(heads: Sequence[Head], sums: Iterable[Sums]) -> Outputs:
    """Compare softmax with quotients of the sums of each head."""
    errors, nonpositive = [], []
    for head, (numerator, normalizer) in zip(heads, sums, strict=True):
        exact = Softmax()(*head[:3])
        difference = numerator / normalizer[..., None] - exact
        errors.append((difference.norm(dim=-1) / exact.norm(dim=-1))[0])
        nonpositive.append((normalizer <= 0).double().mean())
    return Outputs(torch.cat(errors).numpy(), torch.stack(nonpositive).numpy())
