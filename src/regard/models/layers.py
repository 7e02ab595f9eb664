"""The layers of a Transformer: residual branches and feed-forward networks.

Shapes: b rows, n tokens, d = d_model.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention import AnyBias, Mask, State
from regard.attention.norm import RMSNorm, ZeroCenteredRMSNorm
from regard.attention.state import last_real
from regard.dropout import Dropout
from regard.models.attention_layers import CrossAttention, SharedValues, self_attention_class
from regard.models.config import TargetConfig, TransformerConfig
from regard.models.tensors import Hidden, Lengths, Rope, TokenMask


class CheckpointedModule(nn.Module):
    """A module that may recompute its activations in the backward pass (Chen et al., 2016)."""

    gradient_checkpointing = False
    sets_values = False
    """Whether a call has side effects, so that it isn't repeated."""

    def __call__(self, *args: Any) -> Any:
        """Call `forward`; in training, keep only its inputs if `gradient_checkpointing` is set."""
        recomputes = self.gradient_checkpointing and not self.sets_values
        if recomputes and self.training and torch.is_grad_enabled():
            return checkpoint(super().__call__, *args, use_reentrant=False)
        return super().__call__(*args)


class Layer(CheckpointedModule):
    """Self-attention, attention to a source if there is one, and feed-forward: each a branch.

    The norm of a branch comes before it, x + f(norm(x)) (Radford et al., 2019), or after the sum,
    norm(x + f(x)) (Vaswani et al., 2017). A sandwich has one before and one after it,
    x + norm'(f(norm(x))) (Ding et al., 2021, §2.2). In parallel, both branches read the same x,
    x + f(norm(x)) + g(norm'(x)) (Black et al., 2022, §2.1).
    """

    def __init__(
        self, config: TransformerConfig, layer: int, source: TransformerConfig | None = None
    ) -> None:
        super().__init__()
        self.norm_first, self.parallel = config.norm != "post", config.parallel_residual
        after = make_norm if config.norm == "sandwich" else lambda _: None
        self.norm_attention, self.norm_attention_out = make_norm(config), after(config)
        self.dropout_attention = Dropout(config.dropout)
        self.self_attention = self_attention_class(config)(config, layer)
        if source is not None:
            assert isinstance(config, TargetConfig)
            self.norm_cross, self.norm_cross_out = make_norm(config), after(config)
            self.dropout_cross = Dropout(config.dropout)
            self.cross_attention = CrossAttention(config, layer, source)
        self.norm_feed_forward, self.norm_feed_forward_out = make_norm(config), after(config)
        self.dropout_feed_forward = Dropout(config.dropout)
        self.feed_forward = FeedForward(config)

    def init_state(self, batch: int, capacity: int) -> State:
        """Return the empty decoding state."""
        return self.self_attention.init_state(batch, capacity)

    def forward(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        mask: Mask | None,
        memory: State | None = None,
        values: SharedValues | None = None,
    ) -> Hidden:
        """Return the output of whole rows; cross-attention attends to `memory`.

        `values` are mixed with those of self-attention, here and in decoding.
        """
        attended = self.self_attention(
            self._before(self.norm_attention, x), rope, bias, mask, values
        )
        return self._rest(x, attended, memory)

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
    ) -> tuple[Hidden, State]:
        """Return the output of new tokens, and the state with them.

        With `last`, only the output of each row's last real token is returned.
        """
        read, attention = self._before(self.norm_attention, x), self.self_attention
        out, state = attention.extend(read, rope, bias, state, attention_mask, values, last=last)
        if last:
            x, read = last_real(x, attention_mask), last_real(read, attention_mask)
        return self._rest(x, attention.finish(read, out), memory), state

    def _rest(self, x: Tensor, attended: Tensor, memory: State | None) -> Tensor:
        """Return the stream after self-attention and the following branches."""
        read, x = self._after_attention(x, attended, memory)
        return self._add_fed(x, self.feed_forward(read))

    def _after_attention(
        self, x: Tensor, attended: Tensor, memory: State | None
    ) -> tuple[Tensor, Tensor]:
        """Return the input of the feed-forward layer, and the stream that it is added to."""
        attended = _after(self.norm_attention_out, attended)
        before, x = x, self._add(self.norm_attention, x, self.dropout_attention, attended)
        if memory is not None:
            read = self.cross_attention(self._before(self.norm_cross, x), memory)
            read = _after(self.norm_cross_out, read)
            x = self._add(self.norm_cross, x, self.dropout_cross, read)
        return self._before(self.norm_feed_forward, before if self.parallel else x), x

    def _add_fed(self, x: Tensor, fed: Tensor) -> Tensor:
        """Return the stream plus the output of the feed-forward layer."""
        fed = _after(self.norm_feed_forward_out, fed)
        return self._add(self.norm_feed_forward, x, self.dropout_feed_forward, fed)

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Return the input of a branch."""
        read: Tensor = norm(x) if self.norm_first else x
        return read

    def _add(self, norm: nn.Module, x: Tensor, dropout: Dropout, branch: Tensor) -> Tensor:
        """Return the stream plus the output of a branch."""
        summed: Tensor = x + (dropout(branch) if self.training else branch)
        return summed if self.norm_first else norm(summed)


def _after(norm: nn.Module | None, branch: Tensor) -> Tensor:
    """Return the output of a branch, normalized in a sandwich."""
    normalized: Tensor = branch if norm is None else norm(branch)
    return normalized


def length_mask(lengths: Lengths | None) -> Mask | None:
    """Return the mask of the padding at the ends of rows."""
    return None if lengths is None else Mask.lengths(lengths)


def make_norm(config: TransformerConfig) -> nn.LayerNorm | RMSNorm:
    """Build a norm of the residual stream (Ba et al., 2016; Zhang & Sennrich, 2019)."""
    return _NORMS[config.norm_type](config.d_model, eps=config.norm_eps)


_NORMS: dict[str, type[nn.LayerNorm | RMSNorm]] = {
    "layer-norm": nn.LayerNorm,
    "rms-norm": RMSNorm,
    "zero-centered-rms-norm": ZeroCenteredRMSNorm,
}


# Feed-forward

Inner: TypeAlias = Float[Tensor, "b n d_ff"]


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, W₂ f(W₁ x).

    With a gate, W₂ (f(W_g x) ⊙ W₁ x) (Shazeer, 2020, eq. 5 and 6).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        d_ff = config.d_ff or 4 * config.d_model
        self.up_proj = nn.Linear(config.d_model, d_ff, bias=config.ff_bias)
        self.activation = _ACTIVATIONS[config.activation]()
        self.gate_proj = (
            nn.Linear(config.d_model, d_ff, bias=config.ff_bias) if config.gated else None
        )
        self.down_proj = nn.Linear(d_ff, config.d_model, bias=config.ff_bias)

    def forward(self, x: Hidden) -> Hidden:
        return self.finish(*self.project(x))

    def project(self, x: Hidden) -> list[Inner]:
        """Return the projected inputs: W₁ x, and W_g x if there is a gate."""
        return [self.up_proj(x)] if self.gate_proj is None else [self.up_proj(x), self.gate_proj(x)]

    def finish(self, up: Inner, gate: Inner | None = None) -> Hidden:
        """Return the output, given the projected inputs."""
        inner = self.activation(up) if gate is None else self.activation(gate) * up
        narrowed: Tensor = self.down_proj(inner)
        return narrowed


class SquaredReLU(nn.Module):
    """max(x, 0)² (So et al., 2021, "Primer")."""

    def forward(self, x: Hidden) -> Hidden:
        return F.relu(x).square()


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,  # Hendrycks & Gimpel, 2016, §2
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "relu": nn.ReLU,
    "relu2": SquaredReLU,
    "silu": nn.SiLU,
}
