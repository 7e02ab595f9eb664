"""What attention computes: masks, mechanisms, and the contract that they keep.

The names below are loaded when they are first used, so that configuration waits for no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.attention.base import AnyBias, Attention, Bias, RelativeVectors, State, Support
    from regard.attention.block_sparse import BigBird, SlidingWindow
    from regard.attention.cost import Cost, Shape
    from regard.attention.kernel import KernelAttention
    from regard.attention.linformer import Linformer
    from regard.attention.low_rank import LowRank, truncate
    from regard.attention.mask import Mask
    from regard.attention.registry import AttentionConfig, LayerShape
    from regard.attention.softmax import Argmax, Softmax

_NAMES = {
    "base": ("AnyBias", "Attention", "Bias", "RelativeVectors", "State", "Support"),
    "block_sparse": ("BigBird", "SlidingWindow"),
    "cost": ("Cost", "Shape"),
    "kernel": ("KernelAttention",),
    "linformer": ("Linformer",),
    "low_rank": ("LowRank", "truncate"),
    "mask": ("Mask",),
    "registry": ("AttentionConfig", "LayerShape"),
    "softmax": ("Argmax", "Softmax"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AnyBias",
    "Argmax",
    "Attention",
    "AttentionConfig",
    "Bias",
    "BigBird",
    "Cost",
    "KernelAttention",
    "LayerShape",
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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
