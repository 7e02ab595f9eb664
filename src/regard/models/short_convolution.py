"""Short causal convolutions, which mix a vector with those of the tokens before.

Shapes: b rows, n tokens, c channels of a convolution over a token and the `reach` before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import State
from regard.attention.state import RowState
from regard.models.config import TransformerConfig
from regard.models.tensors import Lengths, TokenMask


class ShortConvolution(nn.Conv1d):
    """A depthwise causal convolution over a token and the few before it.

    Induction requires keys that depend on the preceding token: by a previous-token layer, or by a
    short convolution in the same layer (Fu et al., 2022, arXiv:2212.14052, "shift"; Arora et al.,
    2023, arXiv:2312.04927).
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=False)
        self.reach = width - 1

    def first_inputs(
        self, batch: int, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "b reach c"]:
        """Return the inputs before the first token: zeros, by default in the weights' dtype."""
        return self.weight.new_zeros(batch, self.reach, self.in_channels, dtype=dtype)

    def forward(
        self, x: Float[Tensor, "b n c"], document_ids: Int[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        """Return the convolution of whole rows, with zeros before each row and document."""
        known = F.pad(x, (0, 0, self.reach, 0))
        if document_ids is None:
            return self._over(known)
        known_ids = F.pad(document_ids, (self.reach, 0), value=-1)
        windows, ids = (t.unfold(1, self.reach + 1, 1) for t in (known, known_ids))
        same = (ids == document_ids[..., None])[:, :, None]
        weight = self.weight[:, 0].to(x.dtype)
        convolved: Tensor = (windows * same * weight).sum(-1)
        return convolved

    def extend(
        self,
        x: Float[Tensor, "b n c"],
        before: Float[Tensor, "b reach c"],
        attention_mask: TokenMask | None,
    ) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b reach c"]]:
        """Return the convolution of new tokens, and the inputs before the next ones."""
        known = torch.cat([before, x], 1)
        if attention_mask is None:
            last = known[:, known.shape[1] - self.reach :]
        else:
            places = attention_mask.sum(1, keepdim=True) + torch.arange(self.reach, device=x.device)
            last = known.gather(1, places[:, :, None].expand(-1, -1, x.shape[2]))
        return self._over(known), last

    def _over(self, x: Tensor) -> Tensor:
        return super().forward(x.mT).mT


class CanonLayer(ShortConvolution):
    """A short convolution with a residual connection, x + conv(x).

    Allen-Zhu, 2025, "Physics of language models: part 4.1", arXiv:2512.17351.
    """

    def forward(
        self, x: Float[Tensor, "b n c"], document_ids: Int[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        """Return x + conv(x) for whole rows."""
        return x + super().forward(x, document_ids)

    def extend(
        self,
        x: Float[Tensor, "b n c"],
        before: Float[Tensor, "b reach c"],
        attention_mask: TokenMask | None,
    ) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b reach c"]]:
        """Return x + conv(x) for new tokens, and the inputs before the next ones."""
        convolved, last = super().extend(x, before, attention_mask)
        return x + convolved, last


def make_qkv_convolution(channels: int, config: TransformerConfig) -> ShortConvolution:
    """Build the convolution of a layer's queries, keys and values."""
    if config.short_conv:
        return ShortConvolution(channels, config.short_conv)
    return CanonLayer(channels, config.canon_width)


@dataclass(frozen=True, eq=False)
class ConvolvedState(RowState):
    """State of the attention, and the last inputs of each convolution."""

    attention: State
    before: Sequence[Float[Tensor, "b reach c"]]

    @property
    def length(self) -> Lengths:
        """Number of tokens so far, per row."""
        return self.attention.length
