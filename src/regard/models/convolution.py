"""A short causal convolution, by which queries, keys and values know the tokens just before them.

A head can look up what follows a token only if keys know what they follow: by a layer that looks
back by one, or by a short causal convolution of each channel (Fu et al., 2022, arXiv:2212.14052,
"shift"; Arora et al., 2023, arXiv:2312.04927), with which one layer is enough.

Shapes: b rows, n tokens, c channels; the convolution reaches back by `reach`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import State


@dataclass(frozen=True, eq=False)
class ConvolvedState:
    """The state of the attention, and the last channels before the convolution."""

    attention: State
    before: Float[Tensor, "b reach c"]

    @property
    def length(self) -> Int[Tensor, " b"]:
        """How many tokens each row has seen."""
        return self.attention.length

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return self.attention.bytes + self.before.nbytes

    def select(self, rows: Int[Tensor, " rows"]) -> "ConvolvedState":
        """The state of the given rows, in that order; a row may be taken several times."""
        return ConvolvedState(self.attention.select(rows), self.before[rows])


class ShortConvolution(nn.Conv1d):
    """Each channel by itself, over a token and the few before it."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=False)
        self.reach = width - 1

    def forward(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        """Whole rows; before them there is nothing."""
        return self._over(F.pad(x, (0, 0, self.reach, 0)))

    def extend(
        self,
        x: Float[Tensor, "b n c"],
        before: Float[Tensor, "b reach c"],
        keep: Bool[Tensor, "b n"] | None,
    ) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b reach c"]]:
        """New tokens, and what comes before the next ones."""
        known = torch.cat([before, x], 1)
        if keep is None:
            last = known[:, known.shape[1] - self.reach :]
        else:
            places = keep.sum(1, keepdim=True) + torch.arange(self.reach, device=x.device)
            last = known.gather(1, places[:, :, None].expand(-1, -1, x.shape[2]))
        return self._over(known), last

    def _over(self, x: Tensor) -> Tensor:
        return super().forward(x.mT).mT
