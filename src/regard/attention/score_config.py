"""Configurations of attention by scores, other than softmax itself. Imports no torch."""

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from regard.attention.config import (
    ALL_MASKS,
    LINEAR_MASKS,
    SCORES,
    AttentionConfig,
    LayerShape,
    SoftmaxConfig,
    Support,
)
from regard.config import Config, Count, Positive, Seed

if TYPE_CHECKING:
    from regard.attention.base import Attention
    from regard.attention.gates import Gate
    from regard.attention.gating import DifferentialGating, DifferentialNorm, OutputGate

DROPPING = replace(SCORES, dropout=True)
"""Features of all scores, and dropout of the weights."""
CAUSAL = replace(DROPPING, cross=False, bidirectional=False)


class ScoreConfig(AttentionConfig, Config, frozen=True):
    """Attention by all scores."""

    supports: ClassVar[Support] = DROPPING
    time: ClassVar = "n²·d"
    state: ClassVar = "n·d"


class ArgmaxConfig(ScoreConfig, frozen=True, tag_field="kind", tag="argmax"):
    """The value of the highest-scoring key, with the gradient of softmax."""

    supports: ClassVar = replace(SCORES, differentiable=False)
    paper: ClassVar = "Bengio et al., 2013"

    scaled: bool = True
    """Whether the scores of the gradient's softmax are divided by √d."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.softmax import Argmax

        return Argmax(scaled=self.scaled)


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
    """Whether the logarithm of the added number, the sink, is learned for each head."""

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
    gating: ClassVar = "regard.attention.gating:IndexerGating"
    paper: ClassVar = "Gupta et al., 2021"
    check_options: ClassVar[Mapping[str, Any]] = {"k": 3}

    k: Positive = 16
    """Number of keys of each query."""
    indexer_heads: Count = 0
    """Heads of an indexer that chooses the keys (DSA); 0: no indexer, choice by the scores."""
    d_indexer: Positive | None = None
    """Width of the indexer's heads. Default: width of an attention head."""

    @property
    def supported(self) -> Support:
        return INDEXED if self.indexer_heads else self.supports

    @property
    def called(self) -> str:
        return "indexed top-k" if self.indexer_heads else "top-k"

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.top_k import IndexedTopK, TopK

        if not self.indexer_heads:
            return TopK(k=self.k, dropout=shape.dropout)
        d = self.d_indexer or shape.d_head
        return IndexedTopK(k=self.k, heads=self.indexer_heads, d=d, dropout=shape.dropout)


INDEXED = replace(TopKConfig.supports, cross=False, vectors=False)
"""Features of `top-k` with an indexer."""


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


class DifferentialConfig(ScoreConfig, frozen=True, tag_field="kind", tag="differential"):
    """The difference of two softmax maps over the same values."""

    supports: ClassVar = replace(DROPPING, cross=False, vectors=False)
    paper: ClassVar = "Ye et al., 2026"

    version: Literal[1, 2] = 2
    """2: two queries for each head, and a weight of the second map for each head and token.
    1 (Ye et al., 2024): two halves of each query and key, a weight for each layer, and a norm."""

    @property
    def queries_per_head(self) -> int:
        return self.version

    def rotary_width(self, d_head: int) -> int:
        return d_head // 2 if self.version == 1 else d_head

    def require_width(self, d_head: int) -> None:
        if self.version == 1 and d_head % 2:
            raise ValueError(
                f"attention.version = 1 halves heads, and their width is {d_head}: choose an even "
                "head_dim"
            )

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.differential import Differential, DifferentialV1

        if self.version == 2:
            return Differential(dropout=shape.dropout)
        lambda_init = _lambda_init(shape.layer)
        return DifferentialV1(d=shape.d_head, lambda_init=lambda_init, dropout=shape.dropout)

    def build_gating(
        self, gates: "tuple[Gate, ...]", d_model: int, shape: LayerShape
    ) -> "DifferentialGating | DifferentialNorm":
        from regard.attention.gating import DifferentialGating, DifferentialNorm

        if self.version == 2:
            return DifferentialGating(gates, d_model, shape)
        return DifferentialNorm(d_model, shape, lambda_init=_lambda_init(shape.layer))


def _lambda_init(layer: int) -> float:
    """Return λ_init of a layer, from 0 (Ye et al., 2024, eq. 3)."""
    return 0.8 - 0.6 * exp(-0.3 * layer)


class LatentConfig(ScoreConfig, frozen=True, tag_field="kind", tag="latent"):
    """Softmax over keys and values from one latent per token (MLA)."""

    supports: ClassVar = replace(
        DROPPING,
        cross=False,
        vectors=False,
        kv_heads=False,
        qk_norm=False,
        short_conv=False,
        added_values=False,
    )
    state: ClassVar = "n·(d_latent + d_rope)"
    paper: ClassVar = "DeepSeek-AI, 2024"
    layer: ClassVar = "regard.models.latent_attention:LatentSelfAttention"

    d_latent: Positive | None = None
    """Width of the latent of keys and values. Default: four times the width of a head."""
    d_rope: Count | None = None
    """Width of the key that all heads share, which rotary positions rotate. Queries and keys have
    it in addition to the width of a head. Default: half the width of a head."""
    d_query_latent: Positive | None = None
    """Width of a latent of the queries. Default: none."""

    def latent_width(self, d_head: int) -> int:
        """Return the width of the latent of keys and values."""
        return self.d_latent or 4 * d_head

    def rotary_width(self, d_head: int) -> int:
        return d_head // 2 if self.d_rope is None else self.d_rope

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.latent import Latent

        d_latent, d_rope = self.latent_width(shape.d_head), self.rotary_width(shape.d_head)
        return Latent(
            d_latent=d_latent,
            d_rope=d_rope,
            scale_dim=d_rope + shape.d_head,
            dropout=shape.dropout,
        )


class SynthesizerConfig(ScoreConfig, frozen=True, tag_field="kind", tag="synthesizer"):
    """Softmax over scores that are learned, without keys."""

    supports: ClassVar = Support(
        masks=ALL_MASKS - {"document_ids"},
        dropout=True,
        decoding=True,
        qk_norm=False,
        differentiable=False,
    )
    paper: ClassVar = "Tay et al., 2020"

    variant: Literal["dense", "random"] = "dense"
    """Scores computed from each token by a small network, or a trained matrix of scores."""

    @property
    def queries_per_head(self) -> int:
        return int(self.variant == "dense")

    @property
    def has_keys(self) -> bool:
        return False

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.synthesizer import DenseScores, RandomScores, Synthesizer

        length = shape.context_length
        learned = (
            DenseScores(d=shape.d_head, length=length)
            if self.variant == "dense"
            else RandomScores(heads=shape.n_heads, length=length)
        )
        return Synthesizer(learned, length=length, dropout=shape.dropout)


class LinformerConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="linformer"):
    """Keys and values projected to k rows by learned matrices; not causal."""

    supports: ClassVar = Support(masks=frozenset({"key_lengths"}), cross=True)
    time: ClassVar = "n·k·d"
    paper: ClassVar = "Wang et al., 2020"
    check_options: ClassVar[Mapping[str, Any]] = {"k": 3}

    k: Positive = 64
    """Rows of the projected keys and values."""
    shared: bool = True
    """Whether all heads share the projections."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.linformer import Linformer

        length, heads = shape.context_length, None if self.shared else shape.n_kv_heads
        return Linformer(length=length, k=min(self.k, length), heads=heads)


BLOCK_SPARSE = Support(masks=LINEAR_MASKS, bias=True, decoding=True)
"""Features of block-sparse attention."""


class BigBirdConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="bigbird"):
    """Attention to a window, global blocks and random blocks."""

    supports: ClassVar = BLOCK_SPARSE
    time: ClassVar = "n·b·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Zaheer et al., 2020"
    check_options: ClassVar[Mapping[str, Any]] = {"block_size": 2}

    block_size: Positive = 16
    """Tokens per block."""
    window: Positive = 3
    """Blocks in the window, an odd number."""
    random: Count = 1
    """Random blocks per block of queries and head."""
    global_blocks: Count = 1
    """Blocks at the beginning to which all tokens attend."""
    seed: Seed = 0
    """Seed of the random blocks, together with the layer; finetuning keeps them."""

    def __post_init__(self) -> None:
        if self.window % 2 == 0:
            raise ValueError(
                f"window = {self.window} has no middle: choose an odd number of blocks"
            )

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.block_sparse import BigBird

        options = msgspec.structs.asdict(self) | {"seed": shape.seeded(self.seed)}
        return BigBird(max_keys=shape.context_length, **options)


class SlidingWindowConfig(
    AttentionConfig, Config, frozen=True, tag_field="kind", tag="sliding-window"
):
    """Attention to the preceding tokens in a window."""

    supports: ClassVar = BLOCK_SPARSE
    time: ClassVar = "n·w·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Beltagy et al., 2020"
    check_options: ClassVar[Mapping[str, Any]] = {"size": 3, "block_size": 2}

    size: Count = 32
    """Number of preceding tokens in the window."""
    block_size: Positive = 16
    """Tokens per block of the computation."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.block_sparse import SlidingWindow

        return SlidingWindow(size=self.size, block_size=self.block_size)
