"""Configurations of the gated linear recurrences. Imports no torch."""

from typing import TYPE_CHECKING, ClassVar

from regard.attention.config import AttentionConfig, LayerShape
from regard.config import Config

if TYPE_CHECKING:
    from regard.attention.gated import RecurrentAttention
    from regard.attention.gates import Gate
    from regard.attention.gating import Gating


class RecurrentConfig(AttentionConfig, Config, frozen=True):
    """A gated linear recurrence."""

    mechanism: ClassVar[str]
    """Its class in `gated.py`."""
    gating: ClassVar[str]
    """The class of its projections in `gating.py`."""
    time: ClassVar = "n·d·d"
    state: ClassVar = "d·d"
    check_inputs: ClassVar[tuple[float, float]] = (-0.5, 0.5)

    output_gate: bool = False
    """Whether the output is multiplied by σ(W x)."""

    def build(self, shape: LayerShape) -> "RecurrentAttention":
        from regard.attention import gated

        made: RecurrentAttention = getattr(gated, self.mechanism)()
        return made

    def build_gating(self, gates: "tuple[Gate, ...]", d_model: int, shape: LayerShape) -> "Gating":
        from regard.attention import gating

        options = {name: getattr(self, name) for name in self.__struct_fields__}
        made: Gating = getattr(gating, self.gating)(gates, d_model, shape, **options)
        return made

    @classmethod
    def example(cls) -> "RecurrentAttention":
        """Build one whose chunks are shorter than the rows of the contract."""
        from regard.attention import gated

        made: RecurrentAttention = getattr(gated, cls.mechanism)(chunk=4)
        return made


class GatedLinearConfig(RecurrentConfig, frozen=True, tag_field="kind", tag="gated-linear"):
    """Linear attention with a decay per channel."""

    mechanism: ClassVar = "GatedLinear"
    gating: ClassVar = "GatedLinearGating"
    paper: ClassVar = "Yang et al., 2023"

    qk_norm: bool = False
    """Whether queries and keys are scaled to length 1."""


class Mamba2Config(RecurrentConfig, frozen=True, tag_field="kind", tag="mamba2"):
    """Linear attention with a decay per head (state-space duality)."""

    mechanism: ClassVar = "Mamba2"
    gating: ClassVar = "Mamba2Gating"
    paper: ClassVar = "Dao & Gu, 2024"

    qk_norm: bool = False
    """Whether queries and keys are scaled to length 1."""


class DeltaConfig(RecurrentConfig, frozen=True):
    """A recurrence that erases what it replaces."""

    gating: ClassVar = "DeltaGating"

    qk_norm: bool = True
    """Whether queries and keys are scaled to length 1."""
    negative_eigenvalues: bool = False
    """Whether β reaches 2 instead of 1, for eigenvalues from -1 to 1; requires qk_norm."""

    def __post_init__(self) -> None:
        if self.negative_eigenvalues and not self.qk_norm:
            raise ValueError(
                "negative_eigenvalues needs keys of length 1: leave out qk_norm = false"
            )


class DeltaNetConfig(DeltaConfig, frozen=True, tag_field="kind", tag="deltanet"):
    """The delta rule: a token replaces the value stored at its key."""

    mechanism: ClassVar = "DeltaNet"
    paper: ClassVar = "Schlag et al., 2021"


class GatedDeltaNetConfig(DeltaConfig, frozen=True, tag_field="kind", tag="gated-deltanet"):
    """The delta rule with a decay per head."""

    mechanism: ClassVar = "GatedDeltaNet"
    paper: ClassVar = "Yang et al., 2025"


class KimiDeltaConfig(DeltaConfig, frozen=True, tag_field="kind", tag="kimi-delta"):
    """The delta rule with a decay per channel."""

    mechanism: ClassVar = "KimiDelta"
    paper: ClassVar = "Kimi Team, 2025"


class GatedDeltaNet2Config(DeltaConfig, frozen=True, tag_field="kind", tag="gated-deltanet-2"):
    """The delta rule with decay, erasing and writing per channel."""

    mechanism: ClassVar = "GatedDeltaNet2"
    paper: ClassVar = "Hatamizadeh et al., 2026"


class RWKV7Config(RecurrentConfig, frozen=True, tag_field="kind", tag="rwkv7"):
    """A delta rule that erases at a key of its own."""

    mechanism: ClassVar = "RWKV7"
    gating: ClassVar = "RWKV7Gating"
    paper: ClassVar = "Peng et al., 2025"

    qk_norm: bool = False
    """Whether queries and keys are scaled to length 1."""
