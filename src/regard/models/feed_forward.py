"""The feed-forward layer of a Transformer.

Shapes: b rows, n tokens, d = d_model.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.config import TransformerConfig
from regard.models.tensors import Hidden

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
        """Return what the activation takes: W₁ x, and W_g x if there is a gate."""
        return [self.up_proj(x)] if self.gate_proj is None else [self.up_proj(x), self.gate_proj(x)]

    def finish(self, up: Inner, gate: Inner | None = None) -> Hidden:
        """Return the output, given the projected inputs."""
        inner = self.activation(up) if gate is None else self.activation(gate) * up
        narrowed: Tensor = self.down_proj(inner)
        return narrowed


class SquaredReLU(nn.Module):
    """So et al., 2021, "Primer"."""

    def forward(self, x: Hidden) -> Hidden:
        return F.relu(x).square()


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,  # Hendrycks & Gimpel, 2016, §2
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "relu": nn.ReLU,
    "relu2": SquaredReLU,
    "silu": nn.SiLU,
}
