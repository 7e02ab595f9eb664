"""Models with random weights, for claims about any weights."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from regard.studies.tensors import seeded

M = TypeVar("M", bound=nn.Module)


def untrained(make: Callable[[], M], seed: int) -> M:
    """Return a float64 model without dropout and gradients, whose layers keep the size of inputs.

    With the usual initial weights, attention is almost uniform; these weights have visible effects.
    """
    model = seeded(make, seed)  # its weights are replaced
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.ndim > 1:
                inputs = module.in_features if isinstance(module, nn.Linear) else 1
                nn.init.normal_(parameter, std=inputs**-0.5, generator=draw)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(parameter)
    return model.double().eval().requires_grad_(False)
