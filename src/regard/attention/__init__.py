"""Attention: masks, mechanisms and their contract.

The names below are imported on first use, so that configuration imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.attention.base import Attention as Attention
    from regard.attention.block_sparse import BigBird as BigBird
    from regard.attention.block_sparse import SlidingWindow as SlidingWindow
    from regard.attention.config import AttentionConfig as AttentionConfig
    from regard.attention.config import LayerShape as LayerShape
    from regard.attention.config import Support as Support
    from regard.attention.cost import Cost as Cost
    from regard.attention.cost import Shape as Shape
    from regard.attention.differential import Differential as Differential
    from regard.attention.differential import DifferentialV1 as DifferentialV1
    from regard.attention.forgetting import Forgetting as Forgetting
    from regard.attention.gated import RWKV7 as RWKV7
    from regard.attention.gated import DeltaNet as DeltaNet
    from regard.attention.gated import GatedDeltaNet as GatedDeltaNet
    from regard.attention.gated import GatedDeltaNet2 as GatedDeltaNet2
    from regard.attention.gated import GatedLinear as GatedLinear
    from regard.attention.gated import KimiDelta as KimiDelta
    from regard.attention.gated import Mamba2 as Mamba2
    from regard.attention.gates import Gate as Gate
    from regard.attention.kernel import KernelAttention as KernelAttention
    from regard.attention.latent import Latent as Latent
    from regard.attention.linformer import Linformer as Linformer
    from regard.attention.low_rank import LowRank as LowRank
    from regard.attention.low_rank import truncate as truncate
    from regard.attention.mask import Mask as Mask
    from regard.attention.moba import MoBA as MoBA
    from regard.attention.sigmoid import Sigmoid as Sigmoid
    from regard.attention.softmax import Argmax as Argmax
    from regard.attention.softmax import Softmax as Softmax
    from regard.attention.softmax_one import SoftmaxOne as SoftmaxOne
    from regard.attention.state import State as State
    from regard.attention.stick_breaking import StickBreaking as StickBreaking
    from regard.attention.synthesizer import Synthesizer as Synthesizer
    from regard.attention.top_k import TopK as TopK
    from regard.attention.types import AnyBias as AnyBias
    from regard.attention.types import Bias as Bias
    from regard.attention.types import RelativeVectors as RelativeVectors

_NAMES = {
    "base": "Attention",
    "block_sparse": "BigBird SlidingWindow",
    "config": "AttentionConfig LayerShape Support",
    "cost": "Cost Shape",
    "differential": "Differential DifferentialV1",
    "forgetting": "Forgetting",
    "gated": "DeltaNet GatedDeltaNet GatedDeltaNet2 GatedLinear KimiDelta Mamba2 RWKV7",
    "gates": "Gate",
    "kernel": "KernelAttention",
    "latent": "Latent",
    "linformer": "Linformer",
    "low_rank": "LowRank truncate",
    "mask": "Mask",
    "moba": "MoBA",
    "sigmoid": "Sigmoid",
    "softmax": "Argmax Softmax",
    "softmax_one": "SoftmaxOne",
    "state": "State",
    "stick_breaking": "StickBreaking",
    "synthesizer": "Synthesizer",
    "top_k": "TopK",
    "types": "AnyBias Bias RelativeVectors",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
