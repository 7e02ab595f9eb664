"""Position encodings: on the input, on the scores, on keys and values, or by rotation.

The names below are imported on first use, so that configuration imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.positions.absolute import Learned as Learned
    from regard.positions.absolute import OneHot as OneHot
    from regard.positions.absolute import Sinusoidal as Sinusoidal
    from regard.positions.absolute import shift_matrix as shift_matrix
    from regard.positions.bias import Alibi as Alibi
    from regard.positions.bias import RelativeBias as RelativeBias
    from regard.positions.bias import ShawVectors as ShawVectors
    from regard.positions.bias import T5Bias as T5Bias
    from regard.positions.rotary import DynamicRotary as DynamicRotary
    from regard.positions.rotary import Rotary as Rotary
    from regard.positions.rotary import frequencies as frequencies
    from regard.positions.rotary import llama3_frequencies as llama3_frequencies
    from regard.positions.rotary import rotate as rotate

_NAMES = {
    "absolute": "Learned OneHot Sinusoidal shift_matrix",
    "bias": "Alibi RelativeBias ShawVectors T5Bias",
    "rotary": "DynamicRotary Rotary frequencies llama3_frequencies rotate",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
