"""Capture the attention of each layer while a model runs on its own kernels."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import isclose
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import AnyBias, Attention, Mask, RelativeVectors
from regard.attention.backends import repeat_kv
from regard.attention.base import at_least_float32
from regard.attention.block_sparse import BlockSparse
from regard.attention.differential import MapDifference
from regard.attention.gates import NO_GATES, Gates
from regard.attention.softcap import SoftcappedSoftmax
from regard.attention.softmax import ScoreAttention
from regard.attention.synthesizer import Synthesizer
from regard.attention.top_k import IndexedTopK
from regard.attention.types import Keys, Outputs, Queries, Values, Weights
from regard.errors import RegardError
from regard.explorer.calls import (
    AttentionCall,
    AttentionInputs,
    intercept_calls,
    mechanisms,
    weighted_values,
)


class MismatchError(RegardError):
    """The weights recomputed from queries and keys don't give the output of the kernel."""


@dataclass(frozen=True, eq=False)
class AttentionRecord(AttentionInputs):
    """One call of an attention mechanism; its values are already gated."""

    out: Outputs
    """The output of the kernel."""
    weights: Weights
    edited: Collection[int] = ()
    """Heads with given weights, which don't follow from the scores of queries and keys."""

    @property
    def learned_scores(self) -> Weights | None:
        """Learned scores of a Synthesizer, which replace q·k; None for other mechanisms."""
        if not isinstance(self.mechanism, Synthesizer):
            return None
        return self.mechanism.learned.scores(at_least_float32(self.query), *self.positions)

    @property
    def head_queries(self) -> Queries:
        """The queries of each head; of the two in differential attention, the first."""
        return self.query[:, :: self.mechanism.queries_per_head]

    @property
    def kv_heads(self) -> list[int]:
        """The key/value head of each head."""
        heads = self.weights.shape[1]
        return [head // (heads // self.key.shape[1]) for head in range(heads)]

    def output_from(self, weights: Weights) -> Outputs:
        """Return the output for these weights."""
        return weighted_values(weights, self.value, self.added)

    @property
    def score_attention(self) -> ScoreAttention | None:
        """The mechanism if its weights are computed from scores, else None."""
        return self.mechanism if isinstance(self.mechanism, ScoreAttention) else None


def make_record(
    layer: str,
    mechanism: Attention,
    inputs: tuple[Queries, Keys, Values],
    out: Float[Tensor, "batch heads queries e"],
    *,
    mask: Mask | None = None,
    bias: AnyBias | None = None,
    gates: Gates = NO_GATES,
    weights: Weights | None = None,
) -> AttentionRecord:
    """Recompute the weights of a kernel's call and check them against its output.

    `inputs` are query, key and value. If `weights` are given, they are checked instead.

    Raises:
        MismatchError: weights · values isn't the output of the kernel.
    """
    query, key, value = inputs
    own = mechanism.weights(query, key, mask=mask, bias=bias, gates=gates)
    weights = own if weights is None else weights
    heads = () if weights is own else range(own.shape[1])
    edited = [head for head in heads if not weights[:, head].equal(own[:, head])]
    value = mechanism.gated_values(value, gates)
    query, key = _padded(query, value), _padded(key, value)
    query = repeat_kv(query, mechanism.queries_per_head * weights.shape[1])
    key = repeat_kv(key, value.shape[1])
    record = AttentionRecord(
        layer, mechanism, query, key, value, mask, bias, gates, out, weights, edited
    )
    with torch.no_grad():
        _check(record)
    return record


def _padded(x: Tensor, value: Values) -> Tensor:
    """Return queries or keys; if a mechanism has none, zeros of the values' width."""
    return x if x.shape[-1] else x.new_zeros(*x.shape[:-1], value.shape[-1])


def score_steps(
    record: AttentionRecord, row: int, head: int
) -> list[tuple[str, Float[Tensor, "queries keys"]]]:
    """Return the named matrices from q·k to the weights of one head, in at least float32.

    A mechanism without scores and edited weights have only q·k and weights. Learned scores replace
    q·k.
    """
    query, key = at_least_float32(record.head_queries), record.key[row, record.kv_heads[head]]
    scores = query[row, head] @ at_least_float32(key).mT
    steps = [("q·k", scores)]
    edited, d = head in record.edited, query.shape[-1]
    mechanism = None if edited else record.score_attention
    if mechanism is not None:
        if (scale := mechanism.scale(d)) != 1:
            scores = scores * scale
            steps.append(("÷ √d" if isclose(scale, d**-0.5) else f"× {scale:.4g}", scores))
        if record.added is not None:
            added = record.added.scores(query * scale)
            scores = scores + added.expand(record.weights.shape)[row, head]
            steps.append(("+ position", scores))
        if record.learned_scores is not None:
            scores = record.learned_scores[row, head]
            steps.append(("learned scores", scores))
        gated = mechanism.gate_scores(record.gates)
        if gated is not None:
            scores = scores + gated[row, head]
            steps.append(("+ gates", scores))
        if isinstance(mechanism, SoftcappedSoftmax):
            scores = mechanism.capped(scores)
            steps.append((f"softcap {mechanism.softcap:g}", scores))
        allowed = _allowed(record)
        if allowed is not None and not allowed[row, head].all():
            hidden = ~allowed[row, head]
            steps.append(("masked", scores.masked_fill(hidden, float("-inf"))))
    return [*steps, ("weight, edited" if edited else "weight", record.weights[row, head])]


def _allowed(record: AttentionRecord) -> Bool[Tensor, "batch heads queries keys"] | None:
    """Return a mask of the keys that each query may attend to; None without a mask."""
    query, mask = record.query, record.mask
    if isinstance(record.mechanism, BlockSparse):
        mask = record.mechanism.restrict(mask or Mask(), query)
    if isinstance(record.mechanism, IndexedTopK):
        mask = record.mechanism.restrict(mask, query, record.key, record.gates)
    if (mechanism := record.score_attention) is not None:
        allowed = mechanism.allowed(mask, query, record.key)
    elif mask is not None:
        allowed = mask.to_dense(query.shape[2], record.key.shape[2], query.device)
    else:
        allowed = None
    return None if allowed is None else allowed.expand(record.weights.shape)


def _check(record: AttentionRecord) -> None:
    value, out, weights = record.value.double(), record.out.double(), record.weights
    error = (record.output_from(weights.double()) - out).abs().max()
    # Rounding errors of scores are relative to their size, and become relative errors of weights.
    # The recomputed weights are rounded too; their errors add up over the keys of a row.
    query, mechanism = record.query, record.score_attention
    if isinstance(record.mechanism, MapDifference):
        query = record.mechanism.queries(query)
    query, key = query.double(), repeat_kv(record.key.double(), query.shape[1])
    d = query.shape[-1]
    scores = (query @ key.mT).abs().max() * (mechanism.scale(d) if mechanism else d**-0.5)
    scores = scores + _weighted_bias(record)
    if record.learned_scores is not None:
        scores = scores + record.learned_scores.double().abs().max()
    largest = value.abs().max() + out.abs().max()
    kept, keys = torch.finfo(record.out.dtype), record.key.shape[2]
    bound = (2 * (1 + scores) * kept.eps + keys * torch.finfo(weights.dtype).eps) * largest
    bound = bound + 2 * keys * kept.smallest_normal * kept.eps  # products that underflow
    if not error <= bound:
        raise MismatchError(
            f"{record.layer}: weights·values is {error:.2g} off the kernel's output"
        )


def _weighted_bias(record: AttentionRecord) -> Tensor | float:
    """Return the largest mean |bias| under the weights; rounding matters only where A > 0."""
    if record.bias is None or isinstance(record.bias, RelativeVectors):
        return 0.0
    return (record.weights.abs() * record.bias.dense(*record.positions).abs()).sum(-1).max()


Handler: TypeAlias = Callable[[AttentionRecord], Tensor]
"""Receives the record of each call and returns the output with which the model continues."""
Interceptor: TypeAlias = Callable[[Handler], AbstractContextManager[None]]
"""Calls a handler for each layer that attends in the with block."""


@torch.inference_mode()
def capture_attention(model: nn.Module, *inputs: Tensor) -> list[AttentionRecord]:
    """Run the model on its inputs and return the attention of each layer, first to last.

    Raises:
        MismatchError: weights · values isn't the output of a kernel.
    """
    with recorded(lambda handler: intercept(model, handler)) as records:
        model(*inputs)
    return records


@contextmanager
def recorded(interceptor: Interceptor) -> Iterator[list[AttentionRecord]]:
    """Collect the records of the with block, in the order of the calls."""
    records: list[AttentionRecord] = []

    def handle(record: AttentionRecord) -> Tensor:
        records.append(record)
        return record.out

    with interceptor(handle):
        yield records


def intercept(model: nn.Module, handler: Handler) -> AbstractContextManager[None]:
    """Call the handler with the record of each call in the with block.

    Raises:
        MismatchError: weights · values isn't the output of a kernel.
    """
    return intercept_calls(mechanisms(model), lambda call: handler(record_of(call)))


def record_of(call: AttentionCall) -> AttentionRecord:
    """Compute a call on the model's own kernel and return its record.

    Raises:
        MismatchError: weights · values isn't the output of the kernel.
        UnsupportedError: states are edited, so that there are no weights.
    """
    call.require_weights()
    return make_record(
        call.layer,
        call.mechanism,
        (call.query, call.key, call.value),
        call.compute(),
        mask=call.mask,
        bias=call.bias,
        gates=call.gates,
        weights=call.given_weights,
    )
