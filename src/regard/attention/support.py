"""Features of attention mechanisms, declared as data. Imports no torch."""

from dataclasses import dataclass


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
    """Whether there may be fewer key/value heads than heads of queries."""
    qk_norm: bool = True
    """Whether a layer may normalize queries and keys by head."""
    short_conv: bool = True
    """Whether a layer may convolve queries, keys and values."""
    added_values: bool = True
    """Whether a layer may add to the values, or hand its own on."""
    differentiable: bool = True
    """Whether the gradient is that of the output everywhere: no surrogate, and no jumps."""

    def has(self, feature: str) -> bool:
        """Whether a field of `Mask`, or a field here, is supported."""
        return feature in self.masks or bool(getattr(self, feature, False))


ALL_MASKS = frozenset(
    {"alignment", "window_size", "key_lengths", "document_ids", "blocks", "allowed"}
)
"""All fields of `Mask` that restrict attention."""
SCORES = Support(masks=ALL_MASKS, bias=True, vectors=True, cross=True, decoding=True)
"""Features of attention whose weights are made of all scores q·k."""
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
    "kv_heads": "fewer key/value heads than heads",
    "qk_norm": "a norm of queries and keys",
    "added_values": "value residuals and value embeddings",
    "short_conv": "a short convolution",
}
"""Each field of `Mask` and `Support`, as an error names it."""
