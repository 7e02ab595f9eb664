"""Attention of low rank: cut off after the fact (SVD), or learned (Linformer)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.base import Attention, Bias, RelativeVectors, State, Support
from regard.attention.cost import Cost, Shape
from regard.attention.exact import masked, memory_lengths, shared
from regard.attention.mask import Mask


@dataclass(frozen=True, eq=False)
class LowRank:
    """A matrix as a product of a tall and a wide one."""

    left: Float[Tensor, "*batch queries rank"]
    right: Float[Tensor, "*batch rank keys"]
    energy: Float[Tensor, "*batch"]
    """The share of the squared singular values that was kept."""

    def __matmul__(
        self, value: Float[Tensor, "*batch keys e"]
    ) -> Float[Tensor, "*batch queries e"]:
        """The product with values, in O((queries + keys)·rank·e)."""
        product: Tensor = self.left @ (self.right @ value)
        return product

    @property
    def matrix(self) -> Float[Tensor, "*batch queries keys"]:
        """The matrix itself."""
        product: Tensor = self.left @ self.right
        return product


def truncate(matrix: Float[Tensor, "*batch queries keys"], rank: int) -> LowRank:
    """The nearest matrix of a rank, by singular values (Eckart & Young, 1936).

    Rows of attention no longer sum to 1, and may be negative.

    Raises:
        ValueError: the rank isn't one that the matrix can have.
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


@dataclass(frozen=True, eq=False)
class Projected:
    """Keys and values of another sequence, projected to k rows."""

    key: Float[Tensor, "batch kv_heads k d"]
    value: Float[Tensor, "batch kv_heads k e"]
    length: Int[Tensor, " batch"]

    @property
    def bytes(self) -> int:
        return self.key.nbytes + self.value.nbytes + self.length.nbytes

    def select(self, rows: Int[Tensor, " rows"]) -> "Projected":
        return Projected(self.key[rows], self.value[rows], self.length[rows])


class Linformer(Attention):
    """softmax(Q(EK)ᵀ/√d)·FV with learned E and F of k rows (Wang et al., 2020, eq. 7).

    Not causal: each row of EK is a mixture of all keys.
    """

    name = "linformer"
    supports = Support(masks=frozenset({"key_lengths"}), cross=True)

    def __init__(self, *, length: int, k: int, heads: int | None = None) -> None:
        """For up to `length` keys; each of `heads` key/value heads has an E and F, or all share."""
        super().__init__()
        if not 1 <= k <= length:
            raise ValueError(f"k = {k} rows of {length} keys; choose 1 ≤ k ≤ {length}")
        self.length = length
        self.project_key = nn.Parameter(torch.empty(heads or 1, k, length))
        self.project_value = nn.Parameter(torch.empty(heads or 1, k, length))
        for projection in (self.project_key, self.project_value):
            nn.init.normal_(projection, std=k**-0.5)

    def forward(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> Float[Tensor, "batch heads queries e"]:
        self.require(query, key, mask, bias)
        return self.read(query, self.memory(key, value, mask=mask))

    def weights(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        *,
        mask: Mask | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """softmax(Q(EK)ᵀ/√d)·F: rows need not sum to 1, and may be negative."""
        self.require(query, key, mask, bias)
        at_least_float = torch.promote_types(query.dtype, torch.float32)
        query, key = query.to(at_least_float), key.to(at_least_float)
        with torch.autocast(query.device.type, enabled=False):
            projected = shared(self._project(self.project_key, key, mask), query.shape[1])
            shares = (query @ projected.mT * query.shape[-1] ** -0.5).softmax(-1)
            identity = torch.eye(key.shape[2], dtype=key.dtype, device=key.device)
            columns = self._project(
                self.project_value, identity.expand(*key.shape[:2], -1, -1), mask
            )
            weights: Tensor = shares @ shared(columns, query.shape[1])
            return weights

    def memory(
        self,
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
    ) -> State:
        length = memory_lengths(self, key, mask)
        with torch.autocast(key.device.type, enabled=False):
            return Projected(
                self._project(self.project_key, key, mask),
                self._project(self.project_value, value, mask),
                length,
            )

    def read(
        self, query: Float[Tensor, "batch heads queries d"], memory: State
    ) -> Float[Tensor, "batch heads queries e"]:
        assert isinstance(memory, Projected)
        key, value = (shared(x, query.shape[1]) for x in (memory.key, memory.value))
        return masked(query, key, value, None, None, scale=query.shape[-1] ** -0.5)

    def cost(self, shape: Shape) -> Cost:
        heads, k, _ = self.project_key.shape
        width, size = shape.d + shape.e, shape.dtype.itemsize
        projected = shape.batch * shape.kv_heads * k * shape.keys * width
        products = projected + shape.batch * shape.heads * shape.queries * k * width
        projections = 2 * heads * k * shape.keys * size
        return Cost(
            operations=2 * products * shape.passes,
            bytes=shape.bytes_in_and_out + projections * shape.passes,
            parameters=self.project_key.numel() + self.project_value.numel(),
            state_bytes=0,
        )

    def _project(self, projection: Tensor, x: Tensor, mask: Mask | None) -> Tensor:
        """The rows of x mixed to k, those beyond the length zeroed before."""
        n = x.shape[2]
        if n > self.length:
            raise ValueError(f"this Linformer is for {self.length} keys at most, not {n}")
        if projection.shape[0] not in (1, x.shape[1]):
            raise ValueError(
                f"this Linformer is for {projection.shape[0]} key heads, not {x.shape[1]}"
            )
        if mask is not None and mask.key_lengths is not None:
            beyond = torch.arange(n, device=x.device) >= mask.key_lengths[:, None]
            x = x.masked_fill(beyond[:, None, :, None], 0.0)
        rows: Tensor = projection[:, :, :n].to(x.dtype) @ x
        return rows
