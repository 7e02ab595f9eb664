"""The attention of one layer: what it received and returned, and how its weights came about."""

from dataclasses import dataclass
from math import isclose
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Attention, Bias, Mask, RelativeVectors
from regard.attention.block_sparse import BlockSparse
from regard.attention.softmax import ScoreAttention, repeat_kv
from regard.errors import RegardError

AnyBias: TypeAlias = Bias | RelativeVectors | None


class MismatchError(RegardError):
    """The weights recomputed from queries and keys don't give the output of the kernel."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionRecord:
    """One call of an attention mechanism."""

    layer: str
    mechanism: Attention
    query: Float[Tensor, "batch heads queries d"]
    """As the mechanism received them: with rotary positions, after the rotation."""
    key: Float[Tensor, "batch kv_heads keys d"]
    value: Float[Tensor, "batch kv_heads keys e"]
    out: Float[Tensor, "batch heads queries e"]
    """The output of the kernel."""
    mask: Mask | None
    bias: AnyBias
    weights: Float[Tensor, "batch heads queries keys"]

    @property
    def positions(self) -> tuple[Int[Tensor, "*rows queries"], Int[Tensor, " keys"]]:
        """Positions of the queries and of the keys."""
        keys, device = self.key.shape[2], self.key.device
        queries = (self.mask or Mask()).query_positions(self.query.shape[2], keys, device)
        return queries, torch.arange(keys, device=device)

    @property
    def kv_heads(self) -> list[int]:
        """The key/value head of each query head."""
        heads = self.query.shape[1]
        return [head // (heads // self.key.shape[1]) for head in range(heads)]

    def output_from(
        self, weights: Float[Tensor, "batch heads queries keys"]
    ) -> Float[Tensor, "batch heads queries e"]:
        """Σ_j A_ij (v_j + a^V_ij), with a^V only where the bias adds vectors to the values."""
        out = weights @ repeat_kv(self.value, weights.shape[1]).to(weights.dtype)
        if isinstance(self.bias, RelativeVectors):
            out = out + self.bias.gather(weights, *self.positions)
        return out

    @property
    def score_attention(self) -> ScoreAttention | None:
        """The part of the mechanism that turns scores into weights, if there are scores."""
        mechanism = self.mechanism
        inner = mechanism.exact if isinstance(mechanism, BlockSparse) else mechanism
        return inner if isinstance(inner, ScoreAttention) else None


def make_record(
    layer: str,
    mechanism: Attention,
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    value: Float[Tensor, "batch kv_heads keys e"],
    out: Float[Tensor, "batch heads queries e"],
    *,
    mask: Mask | None = None,
    bias: AnyBias = None,
) -> AttentionRecord:
    """Recompute the weights of a kernel's call and check them against its output.

    Raises:
        MismatchError: weights · values isn't the output of the kernel.
    """
    record = AttentionRecord(
        layer=layer,
        mechanism=mechanism,
        query=query,
        key=key,
        value=value,
        out=out,
        mask=mask,
        bias=bias,
        weights=mechanism.weights(query, key, mask=mask, bias=bias),
    )
    with torch.no_grad():
        _check(record)
    return record


def score_steps(
    record: AttentionRecord, row: int, head: int
) -> list[tuple[str, Float[Tensor, "queries keys"]]]:
    """Return the named matrices from q·k to the weights of one head, in float32 at least.

    A mechanism without scores has only products and weights.
    """
    query, key = _query_and_key(record, row, head)
    scores = query @ key.mT
    steps = [("q·k", scores)]
    mechanism, d = record.score_attention, query.shape[-1]
    if mechanism is not None:
        if (scale := mechanism.scale(d)) != 1:
            scores = scores * scale
            steps.append(("÷ √d" if isclose(scale, d**-0.5) else f"× {scale:.4g}", scores))
        if record.bias is not None:
            scores = scores + _position_scores(record, mechanism)[row, head]
            steps.append(("+ position", scores))
        hidden = ~_allowed(record)[row, head]
        if hidden.any():
            steps.append(("masked", scores.masked_fill(hidden, float("-inf"))))
    return [*steps, ("weight", record.weights[row, head])]


def _query_and_key(record: AttentionRecord, row: int, head: int) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(record.query.dtype, torch.float32)
    return record.query[row, head].to(dtype), record.key[row, record.kv_heads[head]].to(dtype)


def _position_scores(
    record: AttentionRecord, mechanism: ScoreAttention
) -> Float[Tensor, "batch heads queries keys"]:
    """The part of the scores that depends on positions."""
    query, bias = record.query, record.bias
    if isinstance(bias, RelativeVectors):
        return bias.scores(query * mechanism.scale(query.shape[-1]), *record.positions)
    assert bias is not None
    return bias.dense(*record.positions).expand(record.weights.shape)


def _allowed(record: AttentionRecord) -> Bool[Tensor, "batch heads queries keys"]:
    """The keys that each query may attend to."""
    mechanism, mask = record.mechanism, record.mask or Mask()
    heads, n = record.query.shape[1:3]
    allowed = mask.to_dense(n, record.key.shape[2], record.query.device)
    if isinstance(mechanism, BlockSparse):
        causal = mask.alignment is not None
        pattern = mechanism.pattern(heads, n, causal=causal, device=record.query.device)
        allowed = allowed & pattern.to_dense(n, n, record.query.device)
    return allowed.expand(record.weights.shape)


def _check(record: AttentionRecord) -> None:
    value, out, weights = record.value.double(), record.out.double(), record.weights
    error = (record.output_from(weights.double()) - out).abs().max()
    # The kernel rounds scores relative to their size, which becomes a relative error of weights;
    # the recomputed weights are rounded too, each of those that a row sums over.
    query, key = record.query.double(), repeat_kv(record.key.double(), weights.shape[1])
    mechanism, d = record.score_attention, query.shape[-1]
    scores = (query @ key.mT).abs().max() * (mechanism.scale(d) if mechanism else d**-0.5)
    scores = scores + _weighted_bias(record)
    largest = value.abs().max() + out.abs().max()
    eps, keys = torch.finfo(record.out.dtype).eps, record.key.shape[2]
    bound = (2 * (1 + scores) * eps + keys * torch.finfo(weights.dtype).eps) * largest
    if not error <= bound:
        raise MismatchError(
            f"{record.layer}: weights·values is {error:.2g} off the kernel's output"
        )


def _weighted_bias(record: AttentionRecord) -> Tensor | float:
    """The size of the bias where the weights are; elsewhere its rounding doesn't matter."""
    if record.bias is None or isinstance(record.bias, RelativeVectors):
        return 0.0
    return (record.weights * record.bias.dense(*record.positions).abs()).sum(-1).max()
