"""Attention mechanisms for the contract, the command line and the docs. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from regard.attention.config import (
    CHECKED_SHAPE,
    AttentionConfig,
    LayerShape,
    config_type,
    known_kinds,
)
from regard.errors import RegardError, UserError, typed_message

if TYPE_CHECKING:
    from regard.attention.base import Attention

FEATURES = {
    "causal": "alignment",
    "bidirectional": "bidirectional",
    "padding": "key_lengths",
    "documents": "document_ids",
    "any mask": "allowed",
    "bias": "bias",
    "cross": "cross",
    "decodes": "decoding",
}
"""The features that tables show: a title, and a field of `Mask` or of `Support`."""
CHECKED_LAYERS = 4
"""Number of layers that the contract checks of a mechanism that depends on its layer index."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism with its configuration, an example and its reference."""

    name: str
    config: type[AttentionConfig]
    type: "type[Attention]"
    example: "Callable[..., Attention]"
    """Builds a small mechanism, for a `LayerShape` if given."""
    reference: Callable[..., Any] | None
    """The weights of (mechanism, query, key, mask, bias) in float64, if there is a reference."""
    layers: int = 1
    """Number of layers that the contract checks."""

    @property
    def summary(self) -> str:
        return (self.config.__doc__ or "").strip().partition("\n")[0]

    @property
    def features(self) -> dict[str, bool]:
        return {title: self.config.supports.has(field) for title, field in FEATURES.items()}


def find(kind: str) -> Mechanism:
    """Return the mechanism of a kind.

    Raises:
        UserError: there is none, it can't be built from its defaults, or it declares other
            features than its configuration.
    """
    config = cast(type[AttentionConfig], config_type(kind))
    try:
        type_ = type(config.example())
    except TypeError as error:
        raise UserError(
            f"{kind}: {error}; give it a default, or set it in a class attribute check_options"
        ) from None
    except RegardError:
        raise
    except Exception as error:  # a custom configuration may raise anything
        raise UserError(f"{kind} can't be built: {typed_message(error)}") from error
    if type_.supports != config.supports:
        raise UserError(f"{kind}: {type_.__name__}.supports is not that of {config.__name__}")
    return Mechanism(
        name=kind,
        config=config,
        type=type_,
        example=config.example,
        reference=getattr(type_, "reference", None),
        layers=_checked_layers(config),
    )


class _ObservedShape(LayerShape):
    """A shape that records whether its layer index is read, except for a seed."""

    is_layer_read = False

    def __getattribute__(self, name: str) -> Any:
        if name == "layer":
            object.__setattr__(self, "is_layer_read", True)
        return super().__getattribute__(name)

    def seeded(self, seed: int) -> int:
        return CHECKED_SHAPE.seeded(seed)


def _checked_layers(config: type[AttentionConfig]) -> int:
    """Return the number of layers to check: 1 unless the mechanism depends on its layer."""
    shape = _ObservedShape(**vars(CHECKED_SHAPE))
    config.example(shape)
    return CHECKED_LAYERS if shape.is_layer_read else 1


def mechanisms() -> dict[str, Mechanism]:
    """Return the built-in mechanisms, and those of installed packages.

    Raises:
        UserError: the mechanism of a package can't be loaded.
    """
    return {kind: find(kind) for kind in known_kinds()}
