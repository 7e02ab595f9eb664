"""Attention mechanisms by kind: built-in, of an installed package, or in a file of your own.

A mechanism is a configuration that builds it. A built-in one is a line of `BUILT_IN`. Imports are
lazy: this module imports neither torch nor any mechanism.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from regard.attention import custom
from regard.config import Config, OpenConfig
from regard.errors import UserError, alternatives

if TYPE_CHECKING:
    from regard.attention.base import Attention

BUILT_IN = {
    "softmax": "regard.attention.config:SoftmaxConfig",
    "argmax": "regard.attention.config:ArgmaxConfig",
    "linformer": "regard.attention.config:LinformerConfig",
    "bigbird": "regard.attention.config:BigBirdConfig",
    "sliding-window": "regard.attention.config:SlidingWindowConfig",
    "elu": "regard.attention.config:EluConfig",
    "polynomial": "regard.attention.config:PolynomialConfig",
    "fourier": "regard.attention.config:FourierConfig",
    "favor-positive": "regard.attention.config:FavorPositiveConfig",
    "favor-trigonometric": "regard.attention.config:FavorTrigonometricConfig",
    "favor-hyperbolic": "regard.attention.config:FavorHyperbolicConfig",
}
"""The built-in mechanisms: MODULE:CLASS of a configuration, or of a mechanism without one."""

FEATURES = {
    "causal": "alignment",
    "padding": "key_lengths",
    "documents": "document_ids",
    "any mask": "allowed",
    "bias": "bias",
    "cross": "cross",
    "decodes": "decoding",
}
"""The features that tables show: a title, and a field of `Mask` or of `Support`."""

GROUP = "regard.attention"
"""The entry-point group of packages that add mechanisms."""


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """Sizes of the layer that a mechanism is built for."""

    n_heads: int
    n_kv_heads: int
    d_head: int
    context_length: int
    """Longest sequence, in tokens."""
    layer: int = 0
    seed: int = 0
    dropout: float = 0.0

    def seeded(self, seed: int) -> int:
        """Derive the seed of this layer's draws from another."""
        import numpy as np  # takes a tenth of a second

        return int(np.random.SeedSequence([seed, self.layer]).generate_state(1)[0])


CHECKED_SHAPE = LayerShape(n_heads=4, n_kv_heads=4, d_head=4, context_length=32)
"""The layer of the mechanisms that the contract checks."""


class AttentionConfig(OpenConfig):
    """Base of the configurations of attention mechanisms, whose fields are a struct's.

    The summary of a mechanism is the first line of its configuration's docstring.
    """

    __slots__ = ()

    time: ClassVar[str] = ""
    """Time for n tokens."""
    state: ClassVar[str] = ""
    """Size of the decoding state after n tokens."""
    paper: ClassVar[str] = ""
    """Author and year of the paper that introduced it."""
    check_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Options of the small example that the contract checks."""
    check_inputs: ClassVar[tuple[float, float]] = (-1.5, 1.5)
    """The range of queries and keys of the contract."""

    def build(self, shape: LayerShape) -> "Attention":
        """Build the mechanism of a layer."""
        raise NotImplementedError

    @classmethod
    def example(cls) -> "Attention":
        """Build the small mechanism that the contract checks."""
        return cls(**cls.check_options).build(CHECKED_SHAPE)

    @classmethod
    def struct(cls, kind: str) -> type[Config]:
        return config_type(kind)

    @classmethod
    def kinds(cls) -> list[str]:
        return list(BUILT_IN)


class _FromSignature(AttentionConfig):
    """The configuration of a class without one: its keyword-only arguments.

    Arguments named like a field of `LayerShape` are supplied by the layer.
    """

    __slots__ = ()

    mechanism: ClassVar[Any]
    supplied: ClassVar[tuple[str, ...]]

    def build(self, shape: LayerShape) -> "Attention":
        config = cast(Config, self)
        options = {name: getattr(config, name) for name in config.__struct_fields__}
        kind = config.__struct_config__.tag
        try:
            supplied = {name: getattr(shape, name) for name in self.supplied}
            made: Attention = self.mechanism(**options, **supplied)
            return made
        except (TypeError, ValueError) as error:
            raise UserError(f"{kind} can't be built with {options}: {error}") from error


def config_type(kind: str) -> type[Config]:
    """Return the configuration class of a kind.

    Raises:
        UserError: there is none, or it can't be loaded.
    """
    path, _, name = kind.rpartition(":")
    if path.endswith(".py"):
        return _config_of(kind, custom.load(path, name))
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if kind not in BUILT_IN and kind not in entries:
        known = alternatives(kind, [*known_kinds(), "FILE.py:CLASS"])
        raise UserError(f"{kind}: no such mechanism; {known}")
    try:
        found = _built_in(kind) if kind in BUILT_IN else entries[kind].load()
    except Exception as error:  # whatever the module of a package does
        raise UserError(f"{kind}: can't be loaded: {type(error).__name__}: {error}") from error
    return _config_of(kind, found)


def _built_in(kind: str) -> Any:
    module, _, name = BUILT_IN[kind].partition(":")
    return getattr(import_module(module), name)


@cache
def _config_of(kind: str, found: Any) -> type[Config]:
    """The configuration of a class, with the kind as its tag."""
    if isinstance(found, type) and issubclass(found, AttentionConfig) and issubclass(found, Config):
        if found.__struct_config__.tag == kind:
            return found
        return custom.tagged(kind, found, (), {"__doc__": found.__doc__})
    if not _is_mechanism(found):
        raise UserError(f"{kind}: is not a subclass of regard.attention.Attention")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    missing += [field for field in ("name", "supports") if not hasattr(found, field)]
    if missing:
        raise UserError(f"{kind}: lacks {', '.join(missing)}")
    options, supplied = custom.split_signature(kind, found, frozenset(LayerShape.__annotations__))
    described = ("time", "state", "paper", "check_options", "check_inputs")
    namespace = {name: getattr(found, name) for name in described if hasattr(found, name)}
    namespace |= {"mechanism": found, "supplied": supplied, "__doc__": found.__doc__}
    return custom.tagged(kind, _FromSignature, options, namespace)


def _is_mechanism(found: Any) -> bool:
    """Whether this is a subclass of `Attention`, which isn't imported for the question."""
    base = ("regard.attention.base", "Attention")
    return isinstance(found, type) and base in ((c.__module__, c.__name__) for c in found.__mro__)


def known_kinds() -> list[str]:
    """Return the kinds of the built-in mechanisms, and of those of installed packages."""
    return [*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism as the contract, the command line and the docs see it."""

    name: str
    config: type[AttentionConfig]
    type: "type[Attention]"
    example: "Callable[[], Attention]"
    reference: Callable[..., Any] | None
    """The weights of (mechanism, query, key, mask, bias) in float64, if there is a reference."""
    inputs: tuple[float, float]

    @property
    def summary(self) -> str:
        return (self.config.__doc__ or "").strip().partition("\n")[0]

    @property
    def features(self) -> dict[str, bool]:
        return {title: self.type.supports.has(field) for title, field in FEATURES.items()}


def find(kind: str) -> Mechanism:
    """Return the mechanism of a kind.

    Raises:
        UserError: there is none, or it can't be built from its defaults.
    """
    config = cast(type[AttentionConfig], config_type(kind))
    try:
        type_ = type(config.example())
    except TypeError as error:
        raise UserError(
            f"{kind}: {error}; give it a default, or set it in a class attribute check_options"
        ) from None
    return Mechanism(
        name=kind,
        config=config,
        type=type_,
        example=config.example,
        reference=getattr(type_, "reference", None),
        inputs=config.check_inputs,
    )


def mechanisms() -> dict[str, Mechanism]:
    """Return the built-in mechanisms, and those of installed packages.

    Raises:
        UserError: a package's mechanism can't be loaded.
    """
    return {kind: find(kind) for kind in known_kinds()}


def supporting(feature: str) -> list[str]:
    """Return the built-in mechanisms that support a feature, a field of `Mask` or of `Support`."""
    return [kind for kind in BUILT_IN if find(kind).type.supports.has(feature)]
