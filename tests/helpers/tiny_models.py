"""Language models small enough to run in no time, and sharp enough that every part matters."""

from typing import Any

import torch
from torch import nn

from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig

BLOCK = 16
VOCABULARY = 11


def tiny_config(**settings: Any) -> DecoderConfig:
    """Two layers of four heads, without dropout unless it is asked for."""
    defaults = {"context_length": BLOCK, "n_layers": 2, "n_heads": 4, "d_model": 16, "dropout": 0.0}
    return DecoderConfig(**{**defaults, **settings})


def tiny_model(
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    vocabulary: int = VOCABULARY,
    **settings: Any,
) -> LanguageModel:
    """An untrained model in evaluation mode whose weights are large.

    With the weights of a fresh model, attention is nearly uniform and logits are nearly equal, and
    an error would hide in the rounding.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LanguageModel(tiny_config(**settings), vocabulary)
        for name, parameter in model.named_parameters():
            one_at_first = "norm" in name and name.endswith("weight")
            nn.init.normal_(parameter, mean=float(one_at_first), std=0.4)
    # In float32 nothing is cast, as nothing is where models are trained.
    return (model if dtype == torch.float32 else model.to(dtype)).eval()


@torch.no_grad()
def greedily(model: LanguageModel, prompt: list[int], new: int) -> list[int]:
    """New tokens without a cache, without a batch."""
    ids = list(prompt)
    for _ in range(new):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]
