"""RMS norms of layers and mechanisms, with support for mixed precision."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """nn.RMSNorm for an input and a weight of different precision, as under autocast."""

    def forward(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """Normalize in the higher precision of the two, which torch does only with a warning."""
        if x.dtype == self.weight.dtype:
            return self._normalize(x, self.weight)
        dtype = torch.promote_types(x.dtype, self.weight.dtype)
        return self._normalize(x.to(dtype), self.weight.to(dtype)).to(x.dtype)

    def _normalize(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.is_cuda or x.dtype.itemsize < 4:
            return F.rms_norm(x, self.normalized_shape, weight, self.eps)
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        # The same by five operators, instead of nine on a CPU.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        square = torch.addcmul(x.new_full((), eps), length, length, value=1 / x.shape[-1])
        return x * square.rsqrt() * weight


class ZeroCenteredRMSNorm(RMSNorm):
    """x / RMS(x) ⊙ (1 + w), with w = 0 at first (transformers 5.23, `modeling_gemma2.py`)."""

    def reset_parameters(self) -> None:
        """Set the weights to 0."""
        nn.init.zeros_(self.weight)

    def _normalize(self, x: Tensor, weight: Tensor) -> Tensor:
        # 1 + w, rounded to bfloat16, would lose most of w.
        wide = torch.promote_types(x.dtype, torch.float32)
        return super()._normalize(x.to(wide), 1 + weight.to(wide)).to(x.dtype)
