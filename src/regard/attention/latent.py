"""Multi-head latent attention: softmax, with a cache of one latent per token."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.attention.cost import Cost, Shape
from regard.attention.score_config import LatentConfig
from regard.attention.softmax import Softmax
from regard.attention.state import KeyValueCache, State, StateShape


@dataclass(frozen=True, eq=False)
class LatentCache(KeyValueCache):
    """Vectors of all tokens that are keys and values at once, for all heads."""

    @staticmethod
    def empty(shape: StateShape) -> "LatentCache":
        """Allocate slots for vectors of width `shape.d`."""
        cache = KeyValueCache.empty(replace(shape, kv_heads=1, e=0))
        return LatentCache(**vars(cache))

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return the vectors twice, without the slots that no row has filled."""
        vectors, _ = super().filled()
        return vectors, vectors


class Latent(Softmax):
    """Softmax attention whose layer computes keys and values from a latent of each token.

    DeepSeek-AI, 2024, arXiv:2405.04434, §2.1. On whole rows, each head has its own keys and values.
    In decoding, a `LatentCache` has one vector per token, [rotary key; latent], for all heads, and
    the layer absorbs its projections of the latent into queries and outputs. `init_state` returns
    one for values of width 0.

    >>> query, key = torch.randn(2, 1, 2, 5, 8 + 4)  # width 8, and 4 for rotary positions
    >>> value = torch.randn(1, 2, 5, 8)
    >>> Latent(d_latent=6, d_rope=4)(query, key, value, mask=Mask.causal()).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "latent"
    supports = LatentConfig.supports

    def __init__(self, *, d_latent: int, d_rope: int, **options: Any) -> None:
        """`d_latent` and `d_rope` are the widths of latents and rotary keys.

        Scores are divided by √scale_dim, the width of queries and keys on whole rows, in decoding
        too.
        """
        super().__init__(**options)
        self.width = d_latent + d_rope

    def _init_state(self, shape: StateShape) -> State:
        return KeyValueCache.empty(shape) if shape.e else LatentCache.empty(shape)

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of whole rows with the given widths, or of decoding with latents."""
        latent = replace(shape, kv_heads=1, d=self.width, e=0)
        if shape.mode != "step":
            return replace(super().cost(shape), state_bytes=latent.cache_bytes)
        outputs = shape.batch * shape.heads * shape.queries * self.width * shape.dtype.itemsize
        return Cost(
            operations=super().cost(replace(latent, e=self.width)).operations,
            bytes=latent.bytes_in_and_out + outputs,
            parameters=0,
            state_bytes=latent.cache_bytes,
        )
