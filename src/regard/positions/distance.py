"""How far a key stands from a query."""

from jaxtyping import Int
from torch import Tensor


def distances(
    query_positions: Int[Tensor, "*rows queries"], key_positions: Int[Tensor, " keys"]
) -> Int[Tensor, "*rows queries keys"]:
    """j - i for query i and key j: negative where the key comes first."""
    return key_positions - query_positions[..., None]


def clipped(distance: Int[Tensor, "*shape"], clip: int) -> Int[Tensor, "*shape"]:
    """Where a distance finds its entry among 2·clip + 1, the farthest sharing the last ones."""
    return distance.clamp(-clip, clip) + clip
