"""The RMS norm of layers and mechanisms, in mixed precision too."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """nn.RMSNorm for an input and a weight of different precision, as under autocast."""

    def forward(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """Normalize in the higher precision of the two, which torch does only with a warning."""
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        dtype = torch.promote_types(x.dtype, self.weight.dtype)
        weight = self.weight.to(dtype)
        return F.rms_norm(x.to(dtype), self.normalized_shape, weight, self.eps).to(x.dtype)
