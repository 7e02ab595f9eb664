"""Position encodings: on the input, on the scores, on keys and values, or by rotation.

The names below are loaded when they are first used, so that configuration waits for no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.positions.absolute import Learned, OneHot, Sinusoidal, shift_matrix
    from regard.positions.bias import Alibi, RelativeBias, T5Bias
    from regard.positions.rotary import Rotary, rotate
    from regard.positions.vectors import ShawVectors

_NAMES = {
    "absolute": ("Learned", "OneHot", "Sinusoidal", "shift_matrix"),
    "bias": ("Alibi", "RelativeBias", "T5Bias"),
    "rotary": ("Rotary", "rotate"),
    "vectors": ("ShawVectors",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Alibi",
    "Learned",
    "OneHot",
    "RelativeBias",
    "Rotary",
    "ShawVectors",
    "Sinusoidal",
    "T5Bias",
    "rotate",
    "shift_matrix",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
