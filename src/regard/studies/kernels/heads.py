"""Random heads: attention by random features beside softmax attention."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import KernelAttention, Softmax
from regard.attention.feature_maps import RandomFeatures
from regard.studies.tensors import normal

TOKENS = 64
"""Queries, and keys, of a head."""


class Head(NamedTuple):
    """Queries, keys and values, and a seed for the features that go with them."""

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
    """Share of the queries whose weights add up to zero or less."""

    @property
    def median(self) -> float:
        """Median error of all queries."""
        return float(np.median(self.errors))

    @property
    def negative_share(self) -> float:
        """Share of all queries whose weights add up to zero or less."""
        return float(self.nonpositive.mean())


def draw_heads(count: int, d: int, *, spread: float, seed: int) -> Iterator[Head]:
    """Heads of normal vectors; queries and keys have entries of this standard deviation."""
    for own in np.random.SeedSequence([seed, d]).generate_state(count):
        query, key, value = normal(int(own), 3, 1, 1, TOKENS, d)
        yield Head(spread * query, spread * key, value, int(own))


def compare(make: Callable[[int], RandomFeatures], heads: Sequence[Head]) -> Outputs:
    """Compare softmax with attention by features, drawn anew for each head from its seed."""
    return gather(heads, lambda head: attend(make(head.seed).double(), head))


def attend(features: RandomFeatures, head: Head) -> Sums:
    """Sum the weighted values, and the weights."""
    return KernelAttention(features).sums(head.query, head.key, head.value)


def gather(heads: Sequence[Head], sums: Callable[[Head], Sums]) -> Outputs:
    """Compare softmax with sums of weighted values, head by head."""
    errors, nonpositive = [], []
    for head in heads:
        numerator, normalizer = sums(head)
        exact = Softmax()(head.query, head.key, head.value)
        errors.append(relative(numerator / normalizer[..., None], exact))
        nonpositive.append((normalizer <= 0).double().mean())
    return Outputs(torch.cat(errors).numpy(), torch.stack(nonpositive).numpy())


def relative(
    output: Float[Tensor, "1 1 n d"], exact: Float[Tensor, "1 1 n d"]
) -> Float[Tensor, "1 n"]:
    """‖c − exact‖/‖exact‖ of each query."""
    off: Tensor = (output - exact).norm(dim=-1) / exact.norm(dim=-1)
    return off[0]
