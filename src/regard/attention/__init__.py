"""What attention computes: masks, mechanisms, and the contract that they keep."""

from regard.attention.base import Attention, Bias, RelativeVectors, State, Support
from regard.attention.cost import Cost, Shape
from regard.attention.exact import Argmax, Softmax
from regard.attention.kernel import KernelAttention
from regard.attention.lowrank import Linformer, LowRank, truncate
from regard.attention.mask import Mask
from regard.attention.sparse import BigBird, SlidingWindow

__all__ = [
    "Argmax",
    "Attention",
    "Bias",
    "BigBird",
    "Cost",
    "KernelAttention",
    "Linformer",
    "LowRank",
    "Mask",
    "RelativeVectors",
    "Shape",
    "SlidingWindow",
    "Softmax",
    "State",
    "Support",
    "truncate",
]
