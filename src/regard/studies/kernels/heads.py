"""Random heads: attention by random features beside softmax attention."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import trim_mean
from torch import Tensor

from regard.attention import KernelAttention, Softmax
from regard.attention.feature_maps import RandomFeatures

TOKENS = 64
"""Queries, and keys, of a head."""


class Head(NamedTuple):
    """Queries, keys and values, and a seed for the features that go with them."""

    query: Float[Tensor, "1 1 n d"]
    key: Float[Tensor, "1 1 n d"]
    value: Float[Tensor, "1 1 n d"]
    seed: int


class Outputs(NamedTuple):
    """How attention by features does on heads."""

    errors: Float[np.ndarray, "heads n"]
    """‖c − exact‖/‖exact‖ of each query."""
    nonpositive: float
    """Share of the queries whose weights add up to zero or less."""

    @property
    def median(self) -> float:
        """Of all queries."""
        return float(np.median(self.errors))

    @property
    def typical(self) -> float:
        """Each head's median, and the mean of these.

        Some draws of a hundred are off by many times as much as all others, where a normalizer is
        almost 0: a fiftieth is left out at either end.
        """
        return float(trim_mean(np.median(self.errors, axis=1), 0.02))


def draw_heads(count: int, d: int, *, spread: float, seed: int) -> Iterator[Head]:
    """Heads of normal vectors; queries and keys have entries of this standard deviation."""
    for own in np.random.SeedSequence([seed, d]).generate_state(count):
        generator = torch.Generator().manual_seed(int(own))
        query, key, value = torch.randn(
            3, 1, 1, TOKENS, d, generator=generator, dtype=torch.float64
        )
        yield Head(spread * query, spread * key, value, int(own))


def compare(make: Callable[[int], RandomFeatures], heads: Sequence[Head]) -> Outputs:
    """Attention with features that are made anew for each head, from its seed, beside softmax's."""
    errors, nonpositive = [], []
    for query, key, value, seed in heads:
        attend = KernelAttention(make(seed).double())
        numerator, normalizer = attend.sums(query, key, value)
        errors.append(relative(numerator / normalizer[..., None], Softmax()(query, key, value)))
        nonpositive.append((normalizer <= 0).double().mean())
    return Outputs(torch.cat(errors).numpy(), float(torch.stack(nonpositive).mean()))


def relative(
    output: Float[Tensor, "1 1 n d"], exact: Float[Tensor, "1 1 n d"]
) -> Float[Tensor, "1 n"]:
    """‖c − exact‖/‖exact‖ of each query."""
    off: Tensor = (output - exact).norm(dim=-1) / exact.norm(dim=-1)
    return off[0]
