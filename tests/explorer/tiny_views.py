"""Views of a model small enough to be looked at in no time, in any words."""

from collections.abc import Sequence

import torch

from regard.explorer.attention_maps import Panel, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.page import View
from tiny_models import VOCABULARY, tiny_model

TOKENS = ("The", " dog", " ran", ",", " and", " the", " dog", " sat")


def tiny_view(
    tokens: Sequence[str] = TOKENS,
    *,
    title: str = "tiny",
    layers: int = 2,
    heads: int = 4,
    seed: int = 0,
) -> View:
    """What layers of heads do with so many tokens; the model knows them by numbers."""
    sizes = {
        "n_layers": layers,
        "n_heads": heads,
        "d_model": 4 * heads,
        "context_length": len(tokens),
    }
    model = tiny_model(dtype=torch.float32, seed=seed, **sizes)
    ids = torch.arange(len(tokens))[None] * 7 % VOCABULARY
    captured = capture_attention(model, ids)
    return View(title, (Panel(title, gather_maps(captured, tokens)),))
