"""Configurations of attention by all scores, other than softmax itself. Imports no torch."""

from collections.abc import Mapping
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.attention.config import AttentionConfig, LayerShape, SoftmaxConfig
from regard.attention.support import ALL_MASKS, LINEAR_MASKS, SCORES, Support
from regard.config import Config, Positive

if TYPE_CHECKING:
    from regard.attention.base import Attention
    from regard.attention.gates import Gate
    from regard.attention.gating import OutputGate

DROPPING = replace(SCORES, dropout=True)
"""Features of all scores, and dropout of the weights."""
CAUSAL = replace(DROPPING, cross=False, bidirectional=False)


class ScoreConfig(AttentionConfig, Config, frozen=True):
    """Attention by all scores."""

    supports: ClassVar[Support] = DROPPING
    time: ClassVar = "n²·d"
    state: ClassVar = "n·d"


class GatedSoftmaxConfig(SoftmaxConfig, frozen=True, tag_field="kind", tag="gated-softmax"):
    """Softmax attention whose heads' outputs are multiplied by a gate, σ(W x)."""

    paper: ClassVar = "Qiu et al., 2025"

    gate: Literal["channel", "head"] = "channel"
    """One number for each channel of a head's output, or one for each head."""

    def build_gating(
        self, gates: "tuple[Gate, ...]", d_model: int, shape: LayerShape
    ) -> "OutputGate":
        from regard.attention.gating import OutputGate

        return OutputGate(d_model, shape, by_channel=self.gate == "channel")


class SoftmaxOneConfig(ScoreConfig, frozen=True, tag_field="kind", tag="softmax-one"):
    """Softmax with 1 added to the denominator, or a learned number for each head."""

    paper: ClassVar = "Gu et al., 2024"

    learned: bool = False
    """Whether the sink of each head, the logarithm of what is added, is learned."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.softmax_one import SoftmaxOne

        return SoftmaxOne(heads=shape.n_heads if self.learned else None, dropout=shape.dropout)


class SigmoidConfig(ScoreConfig, frozen=True, tag_field="kind", tag="sigmoid"):
    """A sigmoid of each score, without a sum over the keys."""

    paper: ClassVar = "Ramapuram et al., 2024"

    bias: float | None = None
    """Added to each score. Default: −log of the context length."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.sigmoid import Sigmoid

        bias = -log(shape.context_length) if self.bias is None else self.bias
        return Sigmoid(bias=bias, dropout=shape.dropout)


class StickBreakingConfig(ScoreConfig, frozen=True, tag_field="kind", tag="stick-breaking"):
    """The nearest earlier keys take their share first, farther keys share the rest."""

    supports: ClassVar = CAUSAL
    paper: ClassVar = "Tan et al., 2024"

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.stick_breaking import StickBreaking

        return StickBreaking(dropout=shape.dropout)


class TopKConfig(ScoreConfig, frozen=True, tag_field="kind", tag="top-k"):
    """Softmax over the k keys with the highest scores."""

    supports: ClassVar = replace(DROPPING, differentiable=False)
    paper: ClassVar = "Gupta et al., 2021"
    check_options: ClassVar[Mapping[str, Any]] = {"k": 3}

    k: Positive = 16
    """Number of keys of each query."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.top_k import TopK

        return TopK(k=self.k, dropout=shape.dropout)


class MobaConfig(ScoreConfig, frozen=True, tag_field="kind", tag="moba"):
    """Softmax over a query's own block and the earlier blocks with the most similar mean key."""

    supports: ClassVar = Support(
        masks=LINEAR_MASKS,
        bias=True,
        dropout=True,
        decoding=True,
        bidirectional=False,
        differentiable=False,
    )
    paper: ClassVar = "Lu et al., 2025"
    check_options: ClassVar[Mapping[str, Any]] = {"block_size": 2, "blocks": 3}

    block_size: Positive = 16
    """Tokens per block."""
    blocks: Positive = 4
    """Blocks that a query attends to, its own among them."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.moba import MoBA

        return MoBA(block_size=self.block_size, blocks=self.blocks, dropout=shape.dropout)


class ForgettingConfig(ScoreConfig, frozen=True, tag_field="kind", tag="forgetting"):
    """Softmax attention with a forget gate for each head and token."""

    supports: ClassVar = replace(CAUSAL, vectors=False)
    paper: ClassVar = "Lin et al., 2025"

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.forgetting import Forgetting

        return Forgetting(heads=shape.n_heads, dropout=shape.dropout)


class SynthesizerConfig(ScoreConfig, frozen=True, tag_field="kind", tag="synthesizer"):
    """Softmax over scores that are learned, without keys."""

    supports: ClassVar = Support(
        masks=ALL_MASKS - {"document_ids"},
        dropout=True,
        decoding=True,
        differentiable=False,
    )
    paper: ClassVar = "Tay et al., 2020"

    variant: Literal["dense", "random"] = "dense"
    """Scores made from each token by a small network, or a trained matrix that no input changes."""

    @property
    def has_queries(self) -> bool:
        return self.variant == "dense"

    @property
    def has_keys(self) -> bool:
        return False

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.synthesizer import DenseScores, RandomScores, Synthesizer

        length = shape.context_length
        learned = (
            DenseScores(d=shape.d_head, length=length)
            if self.has_queries
            else RandomScores(heads=shape.n_heads, length=length)
        )
        return Synthesizer(learned, length=length, dropout=shape.dropout)
