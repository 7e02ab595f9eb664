"""Small untrained models, with which answers to the quiz are checked."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.builders import make_model
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    FixedWindowConfig,
    ModelConfig,
    RecurrentConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import HeadConfig, LMHeadConfig
from regard.positions.config import RotaryConfig
from regard.studies.tensors import seeded

WIDTH, BLOCK, TOKENS = 16, 64, 12
"""Width of the models, their context length, and the size of their vocabulary."""

_SIZES: dict[str, Any] = {"context_length": BLOCK, "d_model": WIDTH, "dropout": 0.0}
_STACK: dict[str, Any] = _SIZES | {"n_layers": 2, "n_heads": 2, "positions": RotaryConfig()}

ENCODER = EncoderConfig(**_STACK)
DECODER = DecoderConfig(**_STACK)
PAIR = EncoderDecoderConfig(encoder=TransformerConfig(**_STACK), decoder=TargetConfig(**_STACK))
RNN = RecurrentConfig(cell="vanilla", n_layers=1, **_SIZES)
BOTH_WAYS = RecurrentConfig(cell="vanilla", n_layers=1, bidirectional=True, **_SIZES)
WINDOW = FixedWindowConfig(size=4, d_hidden=WIDTH, **_SIZES)


@dataclass(frozen=True)
class Draw:
    """Random weights and tokens."""

    seed: int
    std: float
    """Standard deviation of all weights."""

    def model(
        self,
        config: ModelConfig,
        head: HeadConfig = LMHeadConfig(),  # noqa: B008 (frozen)
        tokens: int = TOKENS,
    ) -> Any:
        """Return an untrained float64 model."""
        # The biases of an RNN are drawn by its constructor.
        model = seeded(lambda: make_model(config, head, tokens).double().eval(), self.seed)
        generator = torch.Generator().manual_seed(self.seed)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=self.std, generator=generator)
        return model

    def ids(self, *shape: int) -> Int[Tensor, "*shape"]:
        """Draw regular tokens."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randint(2, TOKENS, shape, generator=generator)


@torch.inference_mode()
def influence(body: nn.Module, ids: Int[Tensor, " n"]) -> Float[Tensor, "n n"]:
    """Return the influence of each token on each hidden state: ‖Δh_i‖ if token j is replaced."""
    replaced = ids.repeat(len(ids), 1)
    replaced.fill_diagonal_(0)
    changes: Tensor = (body(replaced) - body(ids[None])).norm(dim=-1)
    return changes.T
