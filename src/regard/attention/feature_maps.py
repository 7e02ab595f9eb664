"""Feature maps φ: φ(q)·φ(k) is a kernel, or an unbiased estimate of one.

A map returns φ(x) in two factors, values · e^scale: the scale is the logarithm of the largest
feature (or near it), so that the values neither overflow nor vanish together. The scale is a
constant to gradients: attention is a ratio in which it cancels.
"""

import math
from abc import ABC, abstractmethod
from functools import reduce
from typing import ClassVar, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Vectors: TypeAlias = Float[Tensor, "*n d"]
Features: TypeAlias = tuple[Float[Tensor, "*n m"], Float[Tensor, "*n"]]
"""Values and scales of φ(x) = values · e^scale."""


class FeatureMap(nn.Module, ABC):
    """A function x → φ(x) of queries and keys, with any leading shape."""

    positive: ClassVar[bool]
    """Whether φ(q)·φ(k) > 0 always, so that no sum of weights can be zero or negative."""
    scaled: ClassVar[bool] = True
    """Whether a scale may differ from zero."""

    @abstractmethod
    def forward(self, x: Vectors) -> Features:
        """Return values and scales of φ(x) = values · e^scale."""

    @abstractmethod
    def size(self, d: int) -> int:
        """Return m, the number of features of a vector of width d."""

    @abstractmethod
    def reference(
        self, query: Float[Tensor, "*pairs d"], key: Float[Tensor, "*pairs d"]
    ) -> Float[Tensor, "*pairs"]:
        """Return φ(q)·φ(k) of pairs that broadcast, in float64, straight from the formula."""

    def operations(self, d: int) -> int:
        """Return the floating-point operations of the matrix products in φ(x) for one x."""
        return 0

    def kernel_operations(self, d: int) -> int:
        """Return the operations of the matrix products in `kernel` for one x, without q·k."""
        return self.operations(d)

    def kernel(
        self, query: Float[Tensor, "*n queries d"], key: Float[Tensor, "*n keys d"]
    ) -> tuple[Float[Tensor, "*n queries keys"], Float[Tensor, "*n keys"]]:
        """Return values and scales of φ(q)·φ(k) = values · e^scale, up to a factor per query."""
        query_features, _ = self(query)
        key_features, scale = self(key)
        return query_features @ key_features.mT, scale

    def kernel_width(self, d: int) -> int:
        """Return the number of terms of each sum in `kernel`."""
        return self.size(d)


class Elu(FeatureMap):
    """elu(x) + 1 (Katharopoulos et al., 2020, eq. 7)."""

    positive = True
    scaled = False

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        """φ(x) = x + 1 for x > 0, else e^x."""
        query, key = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (query, key))
        return (query * key).sum(-1)

    def forward(self, x: Vectors) -> Features:
        # F.elu(x) + 1 would be 0 below -17, where e^x - 1 rounds to -1.
        return x.clamp(max=0).exp() + x.relu(), x.new_zeros(x.shape[:-1])

    def size(self, d: int) -> int:
        return d


class Polynomial(FeatureMap):
    """Products of p coordinates: φ(q)·φ(k) = (q·k)^p.

    A product of two coordinates is one feature in either order, weighted by √2: for p = 2 there are
    d(d + 1)/2 features, not d². Higher powers are outer products of these and, for odd p, of x.
    """

    positive = False
    scaled = False
    selection: Tensor
    """Both coordinates of all pairs i ≤ j, d(d + 1) × d: each row selects one. Empty for p = 1."""
    orders: Tensor
    """Number of orders of a pair: 1 for i = j, 2 for i < j."""

    def __init__(self, *, d: int, degree: int = 2) -> None:
        """`degree` is p. Of odd degree, φ(q)·φ(k) may be negative; of even degree, zero."""
        super().__init__()
        if degree < 1:
            raise ValueError(f"a polynomial kernel has degree ≥ 1, not {degree}")
        self.degree = degree
        paired = d if degree > 1 else 0
        first, second = pairs = torch.triu_indices(paired, paired)
        self.register_buffer("selection", torch.eye(d)[pairs.flatten()], persistent=False)
        self.register_buffer("orders", 1.0 + (first < second), persistent=False)

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        """(q·k)^p."""
        power: Tensor = (query * key).sum(-1) ** self.degree
        return power

    def forward(self, x: Vectors) -> Features:
        factors = [self._pairs(x)] * (self.degree // 2) if self.degree > 1 else []
        factors += [x] * (self.degree % 2)
        return reduce(_outer, factors), x.new_zeros(x.shape[:-1])

    def _pairs(self, x: Vectors) -> Float[Tensor, "*n pairs"]:
        """Return the products of two coordinates, weighted so that φ(q)·φ(k) = (q·k)²."""
        # Products with one-hot rows are exact, and faster than gathering.
        first, second = F.linear(x, self.selection.to(x.dtype)).chunk(2, -1)
        return first * second * self.orders.to(x.dtype).sqrt()

    def size(self, d: int) -> int:
        return int((d * (d + 1) // 2) ** (self.degree // 2) * d ** (self.degree % 2))

    def operations(self, d: int) -> int:
        return 2 * self.selection.numel()

    def kernel(
        self, query: Float[Tensor, "*n queries d"], key: Float[Tensor, "*n keys d"]
    ) -> tuple[Float[Tensor, "*n queries keys"], Float[Tensor, "*n keys"]]:
        return (query @ key.mT) ** self.degree, key.new_zeros(key.shape[:-1])

    def kernel_operations(self, d: int) -> int:
        return 0

    def kernel_width(self, d: int) -> int:
        return d


def _outer(x: Float[Tensor, "*n a"], y: Float[Tensor, "*n b"]) -> Float[Tensor, "*n a_times_b"]:
    """Return the products of all coordinates of two vectors."""
    return (x[..., :, None] * y[..., None, :]).flatten(-2)


class RandomFeatures(FeatureMap):
    """Features of random projections w·x, w ~ N(0, I)."""

    by_direction: ClassVar[int] = 2
    """Features per direction."""
    directions: Tensor
    """Random directions, `features` × d; saved with the weights, changed by `redraw` only."""

    def __init__(self, *, d: int, features: int, orthogonal: bool = True, seed: int = 0) -> None:
        """`features` directions of width `d`, orthogonal in blocks of d or independent."""
        super().__init__()
        if features < 1:
            raise ValueError(f"random features need at least one direction, not {features}")
        self.orthogonal = orthogonal
        self.register_buffer("directions", torch.empty(features, d))
        self.redraw(seed)

    @torch.no_grad()
    def redraw(self, seed: int) -> None:
        """Draw new directions."""
        features, d = self.directions.shape
        draw = draw_directions(features, d, orthogonal=self.orthogonal, seed=seed)
        self.directions.copy_(draw)

    def size(self, d: int) -> int:
        return self.by_direction * len(self.directions)

    def operations(self, d: int) -> int:
        return 2 * self.directions.numel()

    def project(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n features"]:
        """Return w·x for all w."""
        return F.linear(x, self.directions.to(x.dtype))


class Fourier(RandomFeatures):
    """[cos(w·x/σ), sin(w·x/σ)]/√m: the Gaussian kernel e^(−‖q−k‖²/2σ²) (Rahimi & Recht, 2007).

    With σ² = √d, the softmax kernel is this one times e^(‖q‖²/2σ²)·e^(‖k‖²/2σ²).
    """

    positive = False
    scaled = False

    def __init__(
        self,
        *,
        d: int,
        features: int,
        sigma: float | None = None,
        orthogonal: bool = True,
        seed: int = 0,
    ) -> None:
        """`features` directions, each with a cosine and a sine; the default of `sigma` is d^¼."""
        super().__init__(d=d, features=features, orthogonal=orthogonal, seed=seed)
        self.sigma = d**0.25 if sigma is None else sigma

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        """The mean over w of cos(w·(q − k)/σ)."""
        return ((query - key) / self.sigma @ self.directions.double().mT).cos().mean(-1)

    def forward(self, x: Vectors) -> Features:
        return _waves(self.project(x / self.sigma)), x.new_zeros(x.shape[:-1])


class FavorTrigonometric(RandomFeatures):
    """e^(‖x‖²/2)·[cos(w·x), sin(w·x)]/√m with x scaled by d^(-¼): the softmax kernel e^(q·k/√d).

    Choromanski et al., 2021, eq. 6. Weights may be negative, and so may their sum.
    """

    positive = False

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        """The mean over w of cos(w·(x − y)) e^((‖x‖² + ‖y‖²)/2)."""
        x, y = (z / z.shape[-1] ** 0.25 for z in (query, key))
        factor = ((x.square().sum(-1) + y.square().sum(-1)) / 2).exp()
        kernel: Tensor = ((x - y) @ self.directions.double().mT).cos().mean(-1) * factor
        return kernel

    def forward(self, x: Vectors) -> Features:
        x = x * x.shape[-1] ** -0.25
        waves, log_factor = _waves(self.project(x)), x.square().sum(-1) / 2
        if not log_factor.requires_grad:
            return waves, log_factor
        # The scale carries the value of the factor, the features only its gradient.
        scale = log_factor.detach()
        return waves * (log_factor - scale).exp()[..., None], scale


class FavorPositive(RandomFeatures):
    """e^(w·x − ‖x‖²/2)/√m with x scaled by d^(-¼): the softmax kernel e^(q·k/√d).

    Choromanski et al., 2021, lemma 1.
    """

    positive = True
    by_direction = 1

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        """The mean over w of exp(w·(x + y)) e^(−(‖x‖² + ‖y‖²)/2), x = q/d^¼ and y = k/d^¼."""
        x, y = (z / z.shape[-1] ** 0.25 for z in (query, key))
        factor = (-(x.square().sum(-1) + y.square().sum(-1)) / 2).exp()
        kernel: Tensor = ((x + y) @ self.directions.double().mT).exp().mean(-1) * factor
        return kernel

    def forward(self, x: Vectors) -> Features:
        x = x * x.shape[-1] ** -0.25
        return _exponentials(self.project(x), x)


class FavorHyperbolic(RandomFeatures):
    """e^(−‖x‖²/2)·[e^(w·x), e^(−w·x)]/√(2m) with x scaled by d^(-¼): the softmax kernel e^(q·k/√d).

    Choromanski et al., 2021, lemma 1: lower variance than `FavorPositive` with twice as many
    directions.
    """

    positive = True

    def reference(self, query: Tensor, key: Tensor) -> Tensor:
        """The mean over w of cosh(w·(x + y)) e^(−(‖x‖² + ‖y‖²)/2)."""
        x, y = (z / z.shape[-1] ** 0.25 for z in (query, key))
        factor = (-(x.square().sum(-1) + y.square().sum(-1)) / 2).exp()
        kernel: Tensor = ((x + y) @ self.directions.double().mT).cosh().mean(-1) * factor
        return kernel

    def forward(self, x: Vectors) -> Features:
        x = x * x.shape[-1] ** -0.25
        projected = self.project(x)
        return _exponentials(torch.cat([projected, -projected], -1), x)


def draw_directions(
    features: int, d: int, *, orthogonal: bool, seed: int
) -> Float[Tensor, "features d"]:
    """Return directions w ~ N(0, I), in float64.

    Orthogonal ones are drawn in independent blocks of d: a random rotation whose rows have the
    lengths of independent normal vectors (Choromanski et al., 2021, section 2.4).
    """
    random = np.random.default_rng(seed)
    if not orthogonal:
        return torch.from_numpy(random.standard_normal((features, d)))
    blocks = -(-features // d)
    rotation, upper = np.linalg.qr(random.standard_normal((blocks, d, d)))
    # QR fixes the signs of the diagonal; only random ones make the rotation uniform.
    rotation = rotation * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    lengths = np.linalg.norm(random.standard_normal((blocks, d, d)), axis=2)
    rows = (rotation * lengths[:, :, None]).reshape(blocks * d, d)
    return torch.from_numpy(rows[:features])


def _waves(angles: Tensor) -> Tensor:
    """Return [cos, sin]/√m."""
    m: int = angles.shape[-1]
    return torch.cat([angles.cos(), angles.sin()], -1) * float(m**-0.5)


def _exponentials(exponents: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return e^(exponents − ‖x‖²/2)/√m in two factors, values at most 1/√m."""
    log_factor = x.square().sum(-1) / 2
    differentiable = log_factor.requires_grad
    largest = (exponents.detach() if differentiable else exponents).amax(-1)
    m: int = exponents.shape[-1]
    taken_off = largest + math.log(m) / 2
    if differentiable:
        # The scale carries the value of the factor, the features only its gradient, without
        # losing digits.
        log_factor, gradient = log_factor.detach(), log_factor - log_factor.detach()
        taken_off = taken_off + gradient
    return exponents.sub_(taken_off[..., None]).exp_(), largest - log_factor
