"""Sampling: the choice of a token from logits, by a random number of its row and step."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Choice of the next token: the most probable at temperature 0, else by chance.

    Logits are divided by `temperature`; then the `top_k` most probable tokens are kept, and of
    these the smallest set with a probability of `top_p` or more (Holtzman et al., 2020).

    Raises:
        UserError: a number is outside its range.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0]])
    >>> Sampling(temperature=1.0, top_k=2).probabilities(logits).float()
    tensor([[0.7311, 0.2689, 0.0000]])
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    keys: tuple[int, ...] = ()
    """Keys of the rows, by which their random numbers are drawn. Default: their places."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UserError(f"seed must be ≥ 0, not {self.seed}")
        if not self.temperature >= 0:
            raise UserError(f"temperature must be ≥ 0, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top-k must be ≥ 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top-p must lie in (0, 1], not {self.top_p}")

    def choose(
        self, logits: Float[Tensor, "rows vocabulary"], uniforms: Float[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """Return the next token of each row, undefined where a logit is NaN or infinite."""
        if self.temperature == 0:
            return logits.argmax(-1)
        return draw(self.probabilities(logits), uniforms)

    def probabilities(
        self, logits: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return the distribution to draw from: temperature, then top-k, then top-p."""
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, best, 1.0)
        # The highest logit is taken off first, so that a tiny temperature can't overflow.
        logits = logits.double() - logits.amax(-1, keepdim=True).double()
        probabilities = (logits / self.temperature).softmax(-1)
        if self.top_k is not None:
            probabilities = _keep(probabilities, _top_k(probabilities, self.top_k))
        if self.top_p is not None:
            probabilities = _keep(probabilities, _top_p(probabilities, self.top_p))
        return probabilities

    def uniforms(self, rows: int, steps: int) -> Float[Tensor, "rows steps"]:
        """Return a random number for each row and step, by the seed and the row's key alone.

        Raises:
            UserError: there are fewer or more keys than rows.
        """
        keys = self.keys or range(rows)
        if len(keys) != rows:
            raise UserError(f"keys: there are {len(keys)} for {rows} rows; give one for each row")
        drawn = [np.random.default_rng([self.seed, key]).random(steps) for key in keys]
        return torch.from_numpy(np.stack(drawn))


GREEDY = Sampling()
"""The most probable token."""


def draw(
    probabilities: Float[Tensor, "rows vocabulary"], uniforms: Float[Tensor, " rows"]
) -> Int[Tensor, " rows"]:
    """Draw tokens by inverse transform sampling; never one of probability zero."""
    total = probabilities.cumsum(-1)
    point = uniforms.to(total)[:, None] * total[:, -1:]
    return torch.searchsorted(total, point, right=True).squeeze(-1).clamp(max=total.shape[-1] - 1)


def _keep(probabilities: Tensor, kept: Bool[Tensor, "rows vocabulary"]) -> Tensor:
    probabilities = probabilities.masked_fill(~kept, 0.0)
    return probabilities / probabilities.sum(-1, keepdim=True)


def _top_k(probabilities: Tensor, k: int) -> Tensor:
    """The k most probable tokens; of equal ones, those with the lowest ids."""
    order = probabilities.argsort(dim=-1, descending=True, stable=True)[:, :k]
    return torch.zeros_like(probabilities, dtype=torch.bool).scatter_(-1, order, True)


def _top_p(probabilities: Tensor, p: float) -> Tensor:
    """The smallest set of most probable tokens whose mass reaches p (Holtzman et al., 2020)."""
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probabilities, dtype=torch.bool).scatter_(-1, order, before < p)
