"""Truncation of an attention matrix to low rank, by its singular values."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LowRank:
    """A matrix as a product of a tall and a wide one.

    >>> low_rank = truncate(torch.rand(6, 6), 2)
    >>> low_rank.left.shape, low_rank.right.shape
    (torch.Size([6, 2]), torch.Size([2, 6]))
    """

    left: Float[Tensor, "*batch queries rank"]
    right: Float[Tensor, "*batch rank keys"]
    energy: Float[Tensor, "*batch"]
    """Share of the squared singular values that is kept."""

    def __matmul__(
        self, value: Float[Tensor, "*batch keys e"]
    ) -> Float[Tensor, "*batch queries e"]:
        """Return the product with values, in O((queries + keys)·rank·e)."""
        return self.left @ (self.right @ value)

    @property
    def matrix(self) -> Float[Tensor, "*batch queries keys"]:
        """The matrix itself."""
        return self.left @ self.right


def truncate(matrix: Float[Tensor, "*batch queries keys"], rank: int) -> LowRank:
    """Return the nearest matrix of the given rank, by truncated SVD (Eckart & Young, 1936).

    Rows of attention no longer sum to 1, and may be negative.

    Raises:
        ValueError: the rank is below 1, or above the smaller dimension.

    >>> truncate(torch.diag(torch.tensor([3.0, 2.0, 1.0])), 2).matrix
    tensor([[3., 0., 0.],
            [0., 2., 0.],
            [0., 0., 0.]])
    """
    if not 1 <= rank <= min(matrix.shape[-2:]):
        raise ValueError(f"a matrix {tuple(matrix.shape[-2:])} has no truncation to rank {rank}")
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    energy = values.square()
    total = energy.sum(-1)
    kept = energy[..., :rank].sum(-1) / total.masked_fill(total == 0, 1.0)
    return LowRank(
        left[..., :rank] * values[..., None, :rank],
        right[..., :rank, :],
        torch.where(total == 0, 1.0, kept),
    )
