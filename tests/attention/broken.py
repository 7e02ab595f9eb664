"""Mechanisms with the mistakes of others, each made once on purpose, for tests that must see them.

The numbers are those of the list of pitfalls that the tests were drawn from.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.attention import (
    Bias,
    BigBird,
    KernelAttention,
    Mask,
    RelativeVectors,
    Softmax,
    State,
    Support,
)
from regard.attention.backends import repeat_kv
from regard.attention.feature_maps import FavorPositive, FeatureMap, Fourier
from regard.attention.kernel import KernelState
from regard.attention.softmax import ScoreAttention
from regard.errors import UnsupportedError

AnyBias = Bias | RelativeVectors | None
FEW = Support(masks=frozenset({"alignment", "key_lengths"}), cross=True, decoding=True)
"""What most of these claim to do: enough to be found out, and checked in half the time."""


def visible(mask: Mask | None, query: Tensor, key: Tensor) -> Tensor:
    """Which keys each query may look at."""
    return (mask or Mask()).to_dense(query.shape[2], key.shape[2], query.device)


def by_sums(kernel: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """Values by weights, over the sum of the weights."""
    shown = kernel.masked_fill(~allowed, 0.0)
    dead = ~allowed.any(-1, keepdim=True)
    total = shown.sum(-1, keepdim=True).masked_fill(dead, 1.0)
    gathered: Tensor = shown @ value / total
    return gathered.masked_fill(dead, 0.0)


# Features


class LeakyFavor(KernelAttention):
    """1: the stabiliser is a maximum over all keys, and an ε is added to each feature.

    So a key that comes later makes the features of earlier ones vanish beside ε.
    """

    supports = replace(FEW, cross=False, decoding=False)

    def __init__(self) -> None:
        super().__init__(FavorPositive(d=4, features=6))

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias
    ) -> Tensor:
        key, value = (repeat_kv(x, query.shape[1]) for x in (key, value))
        kernel = self._phi(query, -1) @ self._phi(key, (-1, -2)).mT
        return by_sums(kernel, value, visible(mask, query, key))

    def _phi(self, x: Tensor, axes: int | tuple[int, int]) -> Tensor:
        assert isinstance(self.features, FavorPositive)
        x = x * x.shape[-1] ** -0.25
        exponents = self.features.project(x)
        stable = exponents - exponents.amax(axes, keepdim=True)
        return (stable - x.square().sum(-1, keepdim=True) / 2).exp() + 1e-4


class PerTokenMaximum(FeatureMap):
    """Features divided by their maximum over the heads of a token, which is then forgotten."""

    positive = True

    features: FeatureMap

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, scale = self.features(x)
        stable = (scale - scale.amax(1, keepdim=True)).exp()
        return values * stable[..., None], torch.zeros_like(scale)

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        return self.features.reference(query, key)

    def size(self, d: int) -> int:
        return self.features.size(d)


class StepwiseMaximum(KernelAttention):
    """2: all at once it is right; in steps, each token's features get a factor of their own."""

    supports = FEW

    def __init__(self) -> None:
        super().__init__(FavorPositive(d=4, features=6), chunk=4)
        self.stepwise = KernelAttention(PerTokenMaximum(self.features), chunk=4)

    def extend(
        self, query: Tensor, key: Tensor, value: Tensor, state: State, **options: Any
    ) -> tuple[Tensor, State]:
        return self.stepwise.extend(query, key, value, state, **options)


class HalfTheExponent(Fourier):
    """6: the angles miss a factor √2, so that the kernel is e^(−‖q−k‖²/4σ²)."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x * 2**-0.5)


# Sums


class HiddenValues(KernelAttention):
    """3: padding is hidden among the values, but its keys count in the normalizer."""

    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        value = without_padding(value, mask)
        mask = None if mask is None else replace(mask, key_lengths=None)
        return super().forward(query, key, value, mask=mask, **options)


class ZeroedKeys(HiddenValues):
    """3: the keys of padding are zeroed before the feature map, which makes 1 of 0."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        return super().forward(query, without_padding(key, mask), value, mask=mask, **options)


def without_padding(x: Tensor, mask: Mask | None) -> Tensor:
    """Keys or values, zero beyond the length of their row."""
    if mask is None or mask.key_lengths is None:
        return x
    padding = torch.arange(x.shape[2]) >= mask.key_lengths[:, None]
    return x.masked_fill(padding[:, None, :, None], 0.0)


class CoarseState(KernelAttention):
    """4: the sums are kept in bfloat16, where 256 + 1 is 256."""

    supports = FEW

    def extend(
        self, query: Tensor, key: Tensor, value: Tensor, state: State, **options: Any
    ) -> tuple[Tensor, State]:
        out, state = super().extend(query, key, value, state, **options)
        assert isinstance(state, KernelState)
        return out, replace(state, sums=state.sums.bfloat16().to(state.sums.dtype))


class WrongAxis(KernelAttention):
    """14: causal sums run over the heads, and not over the tokens."""

    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        if mask is None or mask.restrictions != {"alignment"} or query.shape[2] != key.shape[2]:
            return super().forward(query, key, value, mask=mask, **options)
        key, value = (repeat_kv(x, query.shape[1]) for x in (key, value))
        (of_query, _), (of_key, _) = self.features(query), self.features(key)
        sums = (of_key[..., :, None] * value[..., None, :]).cumsum(1)
        total = (of_query * of_key.cumsum(1)).sum(-1, keepdim=True)
        gathered: Tensor = (of_query[..., None, :] @ sums)[..., 0, :] / total
        return gathered


# Masks and heads


class WhereAfter(ScoreAttention):
    """7: a row that allows nothing becomes NaN and is overwritten; its gradient stays NaN."""

    name = "where-after"
    supports = FEW

    def normalize_scores(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return scores.softmax(-1)
        barred = torch.where(allowed, 0.0, float("-inf"))
        weights = (scores + barred).softmax(-1)
        return torch.where(allowed.any(-1, keepdim=True), weights, 0.0)


class FiniteMinimum(ScoreAttention):
    """7 and 8: a row that allows nothing has equal scores, and gathers the mean of all values."""

    name = "finite-minimum"
    supports = FEW

    def normalize_scores(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return scores.softmax(-1)
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)


class TenThousand(ScoreAttention):
    """8: forbidden scores are lowered by 10 000, as if no score could be so large."""

    name = "ten-thousand"
    supports = FEW

    def normalize_scores(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return scores.softmax(-1)
        weights = (scores - 10_000 * (~allowed).to(scores.dtype)).softmax(-1)
        return weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


class ModuloHeads(Softmax):
    """9: query head h looks at key head h mod groups."""

    name = "modulo-heads"
    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat(1, group, 1, 1) for x in (key, value))
        return super().forward(query, key, value, mask=mask, **options)


class SwappedAlignment(Softmax):
    """11: where queries are fewer than keys, "start" is taken for "end", and the reverse."""

    name = "swapped-alignment"
    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        return super().forward(query, key, value, mask=swapped(mask), **options)

    def weights(
        self, query: Tensor, key: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        return super().weights(query, key, mask=swapped(mask), **options)


def swapped(mask: Mask | None) -> Mask | None:
    """The mask, aligned at its other end."""
    if mask is None or mask.alignment is None:
        return mask
    return replace(mask, alignment="end" if mask.alignment == "start" else "start")


# Blocks


class SmallBigBird(BigBird):
    """That of the registry, of two tokens a block."""

    def __init__(self) -> None:
        super().__init__(block_size=2, random=1, global_blocks=1, max_keys=32)


class AllAtBlockZero(SmallBigBird):
    """12: in evaluation every random block is the first, which all look at anyway."""

    def table(self, heads: int, blocks: int, *, causal: bool, device: torch.device) -> Tensor:
        table = super().table(heads, blocks, causal=causal, device=device)
        if not self.training:
            table[..., -self.random :] = 0
        return table


# Mechanisms of strangers


class Raising(Softmax):
    """It stops with an error of its own, of two lines."""

    name = "raising"
    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        raise RuntimeError(f"no kernel for {query.shape[1]} heads\nand that is that")


class Careless(Softmax):
    """It knows no mask, and doesn't say so."""

    name = "careless"
    supports = Support()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        return self._attend(query, key, value, None, None)

    def require_support(self, *features: str) -> None:
        pass


class Anonymous(Softmax):
    """It refuses what it can't do, and doesn't say who."""

    name = "anonymous"
    supports = Support()

    def require_support(self, *features: str) -> None:
        if not all(map(self.supports.has, features)):
            raise UnsupportedError("can't do that")


class DetachedQueries(Softmax):
    """Its queries have no gradient, though it is declared differentiable."""

    supports = FEW

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias
    ) -> Tensor:
        return super()._forward(query.detach(), key, value, mask, bias)


class Forgetful(Softmax):
    """In steps it sees the new tokens only."""

    name = "forgetful"
    supports = FEW

    def extend(
        self, query: Tensor, key: Tensor, value: Tensor, state: State, **options: Any
    ) -> tuple[Tensor, State]:
        _, state = super().extend(query, key, value, state, **options)
        out = self.forward(query, key, value, mask=Mask.causal(), bias=options["bias"])
        return out, state


class OtherWeights(Softmax):
    """Its weights are those of scores that aren't scaled."""

    name = "other-weights"
    supports = FEW

    def weights(
        self, query: Tensor, key: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        return super().weights(2 * query, key, mask=mask, **options)


class Wide(Softmax):
    """Its output is in float64, whatever comes in."""

    name = "wide"
    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        return super().forward(query, key, value, mask=mask, **options).double()
