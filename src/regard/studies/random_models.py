"""Models with random weights, for what is true of any weights."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from regard.studies.tensors import seeded

M = TypeVar("M", bound=nn.Module)


def untrained(make: Callable[[], M], seed: int) -> M:
    """A model in float64 whose layers keep the size of what they read, without dropout.

    A fresh model's weights are so small that attention is almost uniform; what these do is seen.
    Nothing of it can be trained.
    """
    model = seeded(make, seed)  # whose weights aren't kept
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.ndim > 1:
                inputs = module.in_features if isinstance(module, nn.Linear) else 1
                nn.init.normal_(parameter, std=inputs**-0.5, generator=draw)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(parameter)
    return model.double().eval().requires_grad_(False)
