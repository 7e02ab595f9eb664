"""Configurations of the gated linear recurrences. Imports no torch."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta, structs

from regard.attention.config import (
    CHECKED_SHAPE,
    LINEAR_MASKS,
    AttentionConfig,
    LayerShape,
    Support,
    locate,
)
from regard.config import Config

if TYPE_CHECKING:
    from regard.attention.gated import RecurrentAttention
    from regard.attention.gates import Gate
    from regard.attention.gating import Gating


class RecurrentConfig(AttentionConfig, Config, frozen=True):
    """A gated linear recurrence."""

    mechanism: ClassVar[str]
    """MODULE:CLASS of the recurrence."""
    gating: ClassVar = "regard.attention.gating:NormalizedGating"
    supports: ClassVar = Support(
        masks=LINEAR_MASKS, decoding=True, bidirectional=False, value_heads=True
    )
    time: ClassVar = "n·d·d"
    state: ClassVar = "d·d"
    check_inputs: ClassVar[tuple[float, float]] = (-0.5, 0.5)

    output_gate: bool = False
    """Whether the output is multiplied by σ(W x)."""
    gate_activation: Literal["sigmoid", "silu"] = "sigmoid"
    """Function of W x in the output gate; silu is that of Qwen3-Next."""
    norm_eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """Added to the variance in the norm of outputs."""
    qk_norm: bool = False
    """Whether queries and keys are scaled to length 1."""

    def __post_init__(self) -> None:
        if self.gate_activation != "sigmoid" and not self.output_gate:
            raise ValueError(f"gate_activation = {self.gate_activation} needs output_gate = true")

    def build(self, shape: LayerShape) -> "RecurrentAttention":
        made: RecurrentAttention = locate(self.mechanism)()
        return made

    def build_gating(self, gates: "tuple[Gate, ...]", d_model: int, shape: LayerShape) -> "Gating":
        made: Gating = locate(self.gating)(gates, d_model, shape, **structs.asdict(self))
        return made

    @classmethod
    def example(cls, shape: LayerShape = CHECKED_SHAPE) -> "RecurrentAttention":
        """Build a mechanism whose chunks are shorter than the rows of the contract."""
        made: RecurrentAttention = locate(cls.mechanism)(chunk=4)
        return made


class GatedLinearConfig(RecurrentConfig, frozen=True, tag_field="kind", tag="gated-linear"):
    """Linear attention with a decay per channel."""

    mechanism: ClassVar = "regard.attention.gated:GatedLinear"
    gating: ClassVar = "regard.attention.gating:GatedLinearGating"
    paper: ClassVar = "Yang et al., 2023"


class Mamba2Config(RecurrentConfig, frozen=True, tag_field="kind", tag="mamba2"):
    """Linear attention with a decay per head (state-space duality)."""

    mechanism: ClassVar = "regard.attention.gated:Mamba2"
    gating: ClassVar = "regard.attention.gating:Mamba2Gating"
    paper: ClassVar = "Dao & Gu, 2024"


class DeltaConfig(RecurrentConfig, frozen=True):
    """A delta rule."""

    gating: ClassVar = "regard.attention.gating:DeltaGating"

    qk_norm: bool = True
    """Whether queries and keys are scaled to length 1."""
    qk_norm_eps: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Added to the squared length of queries and keys before its square root is taken."""
    negative_eigenvalues: bool = False
    """Whether β reaches 2 instead of 1, for eigenvalues from -1 to 1; requires qk_norm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negative_eigenvalues and not self.qk_norm:
            raise ValueError(
                "negative_eigenvalues needs keys of length 1: leave out qk_norm = false"
            )


class DeltaNetConfig(DeltaConfig, frozen=True, tag_field="kind", tag="deltanet"):
    """The delta rule: a token replaces the value stored at its key."""

    mechanism: ClassVar = "regard.attention.gated:DeltaNet"
    paper: ClassVar = "Schlag et al., 2021"


class GatedDeltaNetConfig(DeltaConfig, frozen=True, tag_field="kind", tag="gated-deltanet"):
    """The delta rule with a decay per head."""

    mechanism: ClassVar = "regard.attention.gated:GatedDeltaNet"
    paper: ClassVar = "Yang et al., 2025"


class KimiDeltaConfig(DeltaConfig, frozen=True, tag_field="kind", tag="kimi-delta"):
    """The delta rule with a decay per channel."""

    mechanism: ClassVar = "regard.attention.gated:KimiDelta"
    paper: ClassVar = "Kimi Team, 2025"


class GatedDeltaNet2Config(DeltaConfig, frozen=True, tag_field="kind", tag="gated-deltanet-2"):
    """The delta rule with decay, erasing and writing per channel."""

    mechanism: ClassVar = "regard.attention.gated:GatedDeltaNet2"
    paper: ClassVar = "Hatamizadeh et al., 2026"


class RWKV7Config(RecurrentConfig, frozen=True, tag_field="kind", tag="rwkv7"):
    """A delta rule that erases at a separate key."""

    mechanism: ClassVar = "regard.attention.gated:RWKV7"
    gating: ClassVar = "regard.attention.gating:RWKV7Gating"
    paper: ClassVar = "Peng et al., 2025"
