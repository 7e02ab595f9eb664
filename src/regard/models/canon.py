"""Transformer layers with Canon layers: short convolutions beside attention.

Shapes: b rows, n tokens, d = d_model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from regard.attention import AnyBias, Mask, State
from regard.attention.base import product_dtype
from regard.attention.state import last_real
from regard.models.attention_layers import SharedValues
from regard.models.config import TransformerConfig
from regard.models.layers import Layer
from regard.models.short_convolution import CanonLayer, ConvolvedState
from regard.models.tensors import Hidden, Rope, TokenIds, TokenMask

Convolve: TypeAlias = Callable[[CanonLayer | None, Tensor], Tensor]
"""Applies a Canon layer, if there is one."""


class LayerWithCanon(Layer):
    """A layer with Canon layers in some of four places (Allen-Zhu, 2025, arXiv:2512.17351).

    A and C convolve the normalized inputs of attention and of the feed-forward layer; D convolves
    the inputs of the activation, including those of the gate; B convolves queries, keys and values,
    and is part of the attention.
    """

    def __init__(
        self, config: TransformerConfig, layer: int, source: TransformerConfig | None = None
    ) -> None:
        """Build the parts of a layer, and the Canon layers at `config.canon`."""
        super().__init__(config, layer, source)
        d_inner = self.feed_forward.up_proj.out_features * (2 if config.gated else 1)
        self.canon_a, self.canon_c, self.canon_d = (
            CanonLayer(channels, config.canon_width) if place in config.canon else None
            for place, channels in (("A", config.d_model), ("C", config.d_model), ("D", d_inner))
        )

    def init_state(self, batch: int, capacity: int) -> ConvolvedState:
        """Return the empty decoding state."""
        normalized = (self.canon_a, self.canon_c)
        before = [canon.first_inputs(batch) for canon in normalized if canon is not None]
        if self.canon_d is not None:
            dtype = product_dtype(self.feed_forward.up_proj.weight)
            before.append(self.canon_d.first_inputs(batch, dtype))
        return ConvolvedState(super().init_state(batch, capacity), before)

    def forward(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        mask: Mask | None,
        memory: State | None = None,
        values: SharedValues | None = None,
    ) -> Hidden:
        """Return the output of whole rows; cross-attention attends to `memory`."""
        convolve = partial(_over_rows, None if mask is None else mask.document_ids)
        read = convolve(self.canon_a, self._before(self.norm_attention, x))
        return self._feed(x, self.self_attention(read, rope, bias, mask, values), memory, convolve)

    def extend(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: TokenMask | None,
        memory: State | None = None,
        values: SharedValues | None = None,
        *,
        last: bool = False,
    ) -> tuple[Hidden, ConvolvedState]:
        """Return the output of new tokens, and the state with them, as `Layer.extend`."""
        assert isinstance(state, ConvolvedState)
        convolve = _OverNewTokens(iter(state.before), attention_mask)
        read = convolve(self.canon_a, self._before(self.norm_attention, x))
        out, attention = self.self_attention.extend(
            read, rope, bias, state.attention, attention_mask, values
        )
        x = self._feed(x, self.self_attention.finish(read, out), memory, convolve)
        x = last_real(x, attention_mask) if last else x
        return x, ConvolvedState(attention, convolve.last)

    def _feed(
        self, x: Tensor, attended: Tensor, memory: State | None, convolve: Convolve
    ) -> Tensor:
        """Return the stream after self-attention and the following branches."""
        read, x = self._after_attention(x, attended, memory)
        inner = self.feed_forward.project(convolve(self.canon_c, read))
        if self.canon_d is not None:
            inner = list(convolve(self.canon_d, torch.cat(inner, -1)).chunk(len(inner), -1))
        return self._add_fed(x, self.feed_forward.finish(*inner))


def _over_rows(document_ids: TokenIds | None, canon: CanonLayer | None, x: Hidden) -> Hidden:
    """Return the convolution of whole rows, within documents."""
    convolved: Tensor = x if canon is None else canon(x, document_ids)
    return convolved


@dataclass
class _OverNewTokens:
    """Convolutions of new tokens: each takes its previous inputs, and stores its last ones."""

    before: Iterator[Tensor]
    attention_mask: TokenMask | None
    last: list[Tensor] = field(default_factory=list)

    def __call__(self, canon: CanonLayer | None, x: Hidden) -> Hidden:
        if canon is None:
            return x
        convolved, last = canon.extend(x, next(self.before), self.attention_mask)
        self.last.append(last)
        return convolved
