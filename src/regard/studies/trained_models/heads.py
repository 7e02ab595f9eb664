"""Scores, weights and values of all heads of a model, as tensors."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import Head


def by_layer(heads: Sequence[Head], score: str) -> Float[Tensor, "layers heads"]:
    """Return a score of each head, a row per layer."""
    values = torch.tensor([head.scores[score] for head in heads], dtype=torch.float64)
    return values.view(len({head.layer for head in heads}), -1)


def weights_of(one: AttentionMap) -> Float[Tensor, "layers heads n n"]:
    """Return the weights of all heads on a text."""
    return torch.stack([layer.record.weights[0] for layer in one.layers])


def value_norms(one: AttentionMap) -> Float[Tensor, "layers heads n"]:
    """Return ‖v_j W_O‖ of all heads on a text."""
    norms = (layer.value_lengths for layer in one.layers)
    return torch.stack([each for each in norms if each is not None])
