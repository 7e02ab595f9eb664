"""Features and configurations of attention mechanisms: their base classes, softmax, the registry.

Each built-in mechanism is a line of `BUILT_IN`. Imports neither torch nor any mechanism.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from msgspec import Meta, structs

from regard.attention import custom
from regard.config import Config, OpenConfig, Positive
from regard.errors import RegardError, UnsupportedError, UserError, alternatives, typed_message

if TYPE_CHECKING:
    from regard.attention.base import Attention
    from regard.attention.gates import Gate
    from regard.attention.gating import Gating


# Features, declared as data


@dataclass(frozen=True, kw_only=True)
class Support:
    """Features that a mechanism supports. Using any other raises `UnsupportedError`.

    >>> Softmax.supports.has("cross"), SlidingWindow.supports.has("cross")
    (True, False)
    """

    masks: frozenset[str] = frozenset()
    """Supported fields of `Mask`."""
    bias: bool = False
    """Whether a number can be added to each score."""
    vectors: bool = False
    """Whether vectors can be added to keys and values by relative position."""
    dropout: bool = False
    """Whether weights can be dropped in training."""
    cross: bool = False
    """Whether cross-attention is supported."""
    decoding: bool = False
    """Whether token-by-token decoding is supported."""
    bidirectional: bool = True
    """Whether attention without a causal mask is supported."""
    value_heads: bool = False
    """Whether values may have more heads than keys."""
    kv_heads: bool = True
    """Whether there may be fewer key/value heads than query heads."""
    qk_norm: bool = True
    """Whether a layer may normalize queries and keys by head."""
    short_conv: bool = True
    """Whether a layer may convolve queries, keys and values."""
    added_values: bool = True
    """Whether a layer may add value residuals or value embeddings."""
    differentiable: bool = True
    """Whether gradients are exact everywhere: no straight-through estimate, no jumps in outputs."""

    def has(self, feature: str) -> bool:
        """Whether a field of `Mask`, or a field here, is supported."""
        return feature in self.masks or bool(getattr(self, feature, False))


ALL_MASKS = frozenset(
    {"alignment", "window_size", "key_lengths", "document_ids", "blocks", "allowed"}
)
"""All fields of `Mask` that restrict attention."""
SCORES = Support(masks=ALL_MASKS, bias=True, vectors=True, cross=True, decoding=True)
"""Features of attention whose weights are computed from all scores q·k."""
LINEAR_MASKS = frozenset({"alignment", "key_lengths", "document_ids"})
"""The masks of mechanisms that keep sums over keys; documents must be contiguous."""

FEATURE_NAMES = {
    "alignment": "causal masks",
    "window_size": "window masks",
    "key_lengths": "padding masks",
    "document_ids": "document masks",
    "blocks": "block masks",
    "allowed": "arbitrary masks",
    "bias": "a bias added to scores",
    "vectors": "relative-position vectors",
    "dropout": "dropout of weights",
    "cross": "cross-attention",
    "decoding": "token-by-token decoding",
    "bidirectional": "attention without a causal mask",
    "value_heads": "more value heads than key heads",
    "kv_heads": "fewer key/value heads than query heads",
    "qk_norm": "a norm of queries and keys",
    "added_values": "value residuals and value embeddings",
    "short_conv": "a short convolution",
}
"""Names of the fields of `Mask` and `Support` in errors."""


# Configurations


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """Sizes of the layer that a mechanism is built for.

    >>> from regard.attention.score_config import SlidingWindowConfig
    >>> sizes = dict(n_heads=4, n_kv_heads=2, n_value_heads=2, d_head=8, context_length=64)
    >>> SlidingWindowConfig(size=4).build(LayerShape(**sizes)).size
    4
    """

    n_heads: int
    n_kv_heads: int
    n_value_heads: int
    d_head: int
    context_length: int
    """Longest sequence, in tokens."""
    layer: int = 0
    seed: int = 0
    dropout: float = 0.0

    def seeded(self, seed: int) -> int:
        """Derive a seed for this layer from another seed."""
        import numpy as np  # takes a tenth of a second

        return int(np.random.SeedSequence([seed, self.layer]).generate_state(1)[0])


CHECKED_SHAPE = LayerShape(n_heads=4, n_kv_heads=4, n_value_heads=4, d_head=4, context_length=32)
"""Sizes of the layer for which the contract builds mechanisms."""


class AttentionConfig(OpenConfig):
    """Base class of the configuration structs of attention mechanisms.

    The summary of a mechanism is the first line of its configuration's docstring.

    >>> from regard.attention.score_config import SlidingWindowConfig
    >>> SlidingWindowConfig(size=4).supported.has("cross")
    False
    """

    __slots__ = ()

    supports: ClassVar[Support]
    """Features of the mechanism."""
    time: ClassVar[str] = ""
    """Time complexity for n tokens."""
    state: ClassVar[str] = ""
    """Size of the decoding state after n tokens."""
    paper: ClassVar[str] = ""
    """Author and year of the paper that introduced it."""
    layer: ClassVar[str] = ""
    """MODULE:CLASS of its self-attention layer. Default: projections to queries, keys and values,
    with a short convolution where that is configured."""
    gating: ClassVar[str] = "regard.attention.gating:Gating"
    """MODULE:CLASS of the projections to its gates."""
    check_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Options of the small example that the contract checks."""
    check_inputs: ClassVar[tuple[float, float]] = (-1.5, 1.5)
    """Range of the entries of queries and keys that the contract checks."""

    @property
    def supported(self) -> Support:
        """Features with these options."""
        return self.supports

    @property
    def called(self) -> str:
        """Name in errors."""
        return str(cast(Config, self).__struct_config__.tag)

    def require_support(self, *features: str) -> None:
        """Raise unless every feature (a field of `Mask` or `Support`) is supported.

        Raises:
            UnsupportedError: names the kind, the feature, and the mechanisms supporting it.
        """
        require_support(self.called, self.supported, *features)

    @property
    def queries_per_head(self) -> int:
        """Number of queries that the layer projects for each head; 0: queries have width 0."""
        return 1

    def rotary_width(self, d_head: int) -> int:
        """Return the width of the vectors that rotary positions rotate."""
        return d_head

    def require_width(self, d_head: int) -> None:
        """Raise ValueError unless heads may have this width."""

    @property
    def has_keys(self) -> bool:
        """Whether the layer projects keys; otherwise keys have width 0."""
        return True

    def build(self, shape: LayerShape) -> "Attention":
        """Build the mechanism of a layer."""
        raise NotImplementedError

    def build_for(self, shape: LayerShape, *, queries: int) -> "Attention":
        """Build the mechanism of a layer that projects so many queries for each head.

        Raises:
            UserError: a custom mechanism can't be built, or takes another number of queries.
        """
        try:
            mechanism = self.build(shape)
        except Exception as error:  # a custom mechanism may raise anything
            if self.called in BUILT_IN or isinstance(error, RegardError):
                raise
            options = structs.asdict(cast(Config, self))
            raise UserError(
                f"{self.called} can't be built with {options}: {typed_message(error)}"
            ) from error
        if queries not in (0, mechanism.queries_per_head):
            raise UserError(
                f"{self.called}: its layer projects {queries} queries for each head, but "
                f"{type(mechanism).__name__}.queries_per_head is {mechanism.queries_per_head}; "
                "declare the same number"
            )
        return mechanism

    def build_gating(
        self, gates: "tuple[Gate, ...]", d_model: int, shape: LayerShape
    ) -> "Gating | None":
        """Build the module that computes the gates of a layer, if it has any."""
        made: Gating | None = locate(self.gating)(gates, d_model, shape) if gates else None
        return made

    @classmethod
    def example(cls, shape: LayerShape = CHECKED_SHAPE) -> "Attention":
        """Build the small mechanism that the contract checks.

        Raises:
            UserError: see `build_for`.
        """
        options = cls(**cls.check_options)
        return options.build_for(shape, queries=options.queries_per_head)

    @classmethod
    def struct(cls, kind: str) -> type[Config]:
        return config_type(kind)

    @classmethod
    def kinds(cls) -> list[str]:
        return list(BUILT_IN)


# Softmax


class SoftmaxConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="softmax"):
    """Exact softmax attention."""

    supports: ClassVar = replace(SCORES, dropout=True)
    time: ClassVar = "n²·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Vaswani et al., 2017"

    scaled: bool = True
    """Whether scores are divided by √d of the head."""
    scale_dim: Positive | None = None
    """Scores are divided by √scale_dim instead of √d."""
    scale_by_layer: bool = False
    """Whether scores are also divided by the number of the layer, from 1."""
    softcap: Annotated[float, Meta(gt=0)] | None = None
    """Bound c of the scores: c·tanh(score / c) instead of each score (Gemma 2). Default: none."""

    def __post_init__(self) -> None:
        if self.scale_dim is not None and not self.scaled:
            raise ValueError(f"scale_dim = {self.scale_dim} needs scaled = true: leave one out")

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.softcap import SoftcappedSoftmax
        from regard.attention.softmax import Softmax

        options: dict[str, Any] = {
            "scaled": self.scaled,
            "scale_dim": self.scale_dim,
            "dropout": shape.dropout,
            "divisor": shape.layer + 1 if self.scale_by_layer else 1,
        }
        if self.softcap is None:
            return Softmax(**options)
        return SoftcappedSoftmax(softcap=self.softcap, **options)


# Registry

BUILT_IN = {
    "softmax": "regard.attention.config:SoftmaxConfig",
    "argmax": "regard.attention.score_config:ArgmaxConfig",
    "gated-softmax": "regard.attention.score_config:GatedSoftmaxConfig",
    "softmax-one": "regard.attention.score_config:SoftmaxOneConfig",
    "forgetting": "regard.attention.score_config:ForgettingConfig",
    "latent": "regard.attention.score_config:LatentConfig",
    "differential": "regard.attention.score_config:DifferentialConfig",
    "top-k": "regard.attention.score_config:TopKConfig",
    "moba": "regard.attention.score_config:MobaConfig",
    "stick-breaking": "regard.attention.score_config:StickBreakingConfig",
    "sigmoid": "regard.attention.score_config:SigmoidConfig",
    "synthesizer": "regard.attention.score_config:SynthesizerConfig",
    "linformer": "regard.attention.score_config:LinformerConfig",
    "bigbird": "regard.attention.score_config:BigBirdConfig",
    "sliding-window": "regard.attention.score_config:SlidingWindowConfig",
    "elu": "regard.attention.kernel_config:EluConfig",
    "polynomial": "regard.attention.kernel_config:PolynomialConfig",
    "fourier": "regard.attention.kernel_config:FourierConfig",
    "favor-positive": "regard.attention.kernel_config:FavorPositiveConfig",
    "favor-trigonometric": "regard.attention.kernel_config:FavorTrigonometricConfig",
    "favor-hyperbolic": "regard.attention.kernel_config:FavorHyperbolicConfig",
    "gated-linear": "regard.attention.recurrent_config:GatedLinearConfig",
    "mamba2": "regard.attention.recurrent_config:Mamba2Config",
    "deltanet": "regard.attention.recurrent_config:DeltaNetConfig",
    "gated-deltanet": "regard.attention.recurrent_config:GatedDeltaNetConfig",
    "kimi-delta": "regard.attention.recurrent_config:KimiDeltaConfig",
    "gated-deltanet-2": "regard.attention.recurrent_config:GatedDeltaNet2Config",
    "rwkv7": "regard.attention.recurrent_config:RWKV7Config",
}
"""Built-in mechanisms: MODULE:CLASS of a configuration, or of a mechanism without one."""

GROUP = "regard.attention"
"""The entry-point group of packages that add mechanisms."""


class _FromSignature(AttentionConfig):
    """Configuration made from the keyword-only arguments of a mechanism without one.

    Arguments named like a field of `LayerShape` are supplied by the layer.
    """

    __slots__ = ()

    mechanism: ClassVar[Any]
    supplied: ClassVar[tuple[str, ...]]

    def build(self, shape: LayerShape) -> "Attention":
        supplied = {name: getattr(shape, name) for name in self.supplied}
        made: Attention = self.mechanism(**structs.asdict(cast(Config, self)), **supplied)
        return made


def config_type(kind: str) -> type[Config]:
    """Return the configuration class of a kind.

    Raises:
        UserError: there is none, or it can't be loaded.
    """
    path, _, name = kind.rpartition(":")
    if path.endswith(".py"):
        return _config_of(kind, custom.load(path, name))
    if kind.endswith(".py"):
        found = " or ".join(custom.kinds_in(kind)) or "FILE.py:CLASS"
        raise UserError(f"{kind}: names no class; write {found}")
    try:
        found = locate(BUILT_IN[kind]) if kind in BUILT_IN else _installed(kind)
    except UserError:
        raise
    except Exception as error:  # the module of a package may raise anything
        raise UserError(f"{kind}: can't be loaded: {type(error).__name__}: {error}") from error
    return _config_of(kind, found)


def locate(path: str) -> Any:
    """Return the class at MODULE:CLASS."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _installed(kind: str) -> Any:
    for entry in entry_points(group=GROUP):
        if entry.name == kind:
            return entry.load()
    known = alternatives(kind, [*known_kinds(), "FILE.py:CLASS"])
    raise UserError(f"{kind}: no such mechanism; {known}")


@cache
def _config_of(kind: str, found: Any) -> type[Config]:
    """Return the configuration of a class, with the kind as its tag."""
    if isinstance(found, type) and issubclass(found, AttentionConfig) and issubclass(found, Config):
        if not hasattr(found, "supports"):
            raise UserError(f"{kind}: lacks supports")
        _require_features(kind, found)
        if found.__struct_config__.tag == kind:
            return found
        return custom.tagged(kind, found, (), {"__doc__": found.__doc__})
    if not _is_mechanism(found):
        raise UserError(f"{kind}: is not a subclass of regard.attention.Attention")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    missing += [field for field in ("name", "supports") if not hasattr(found, field)]
    if missing:
        raise UserError(f"{kind}: lacks {', '.join(missing)}")
    _require_features(kind, found)
    options, supplied = custom.split_signature(kind, found, frozenset(LayerShape.__annotations__))
    described = (
        *("supports", "time", "state", "paper"),
        *("queries_per_head", "gating", "check_options", "check_inputs"),
    )
    namespace = {name: getattr(found, name) for name in described if hasattr(found, name)}
    namespace |= {"mechanism": found, "supplied": supplied, "__doc__": found.__doc__}
    for name, *_ in options:
        if name in {"kind", *dir(_FromSignature), *namespace}:
            raise UserError(
                f"{kind}: an option can't be named {name}, as all configurations have a {name}; "
                "rename it"
            )
    return custom.tagged(kind, _FromSignature, options, namespace)


def _require_features(kind: str, found: Any) -> None:
    """Raise unless the features of a class are a `Support`."""
    if not isinstance(found.supports, Support):
        given = type(found.supports).__name__
        raise UserError(f"{kind}: supports is a {given}; write Support(masks=..., bias=...)")


def _is_mechanism(found: Any) -> bool:
    """Whether this is a subclass of `Attention`, without importing it."""
    base = ("regard.attention.base", "Attention")
    return isinstance(found, type) and base in ((c.__module__, c.__name__) for c in found.__mro__)


def known_kinds() -> list[str]:
    """Return the kinds of the built-in mechanisms, and of those of installed packages."""
    return [*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))]


def supporting(feature: str) -> list[str]:
    """Return the built-in mechanisms that support a feature, a field of `Mask` or of `Support`."""
    configs = {kind: cast(type[AttentionConfig], config_type(kind)) for kind in BUILT_IN}
    return [kind for kind, config in configs.items() if config.supports.has(feature)]


def require_support(name: str, supports: Support, *features: str) -> None:
    """Raise unless a mechanism supports every feature (a field of `Mask` or `Support`).

    Raises:
        UnsupportedError: names the mechanism, the feature, and the mechanisms supporting it.
    """
    for feature in features:
        if not supports.has(feature):
            raise UnsupportedError(
                f"{name} attention does not support {FEATURE_NAMES[feature]}; supported by: "
                f"{', '.join(supporting(feature))}"
            )
