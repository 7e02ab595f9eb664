"""Heads: logits of tokens or labels, or vectors, from hidden states; and losses of logits.

Shapes: b rows, n tokens, d the width of the body.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.base import at_least_float32
from regard.data import IGNORE
from regard.data.batch import Batch, padded_size
from regard.dropout import Dropout
from regard.models.head_config import Pool
from regard.models.tensors import Hidden, Lengths
from regard.positions.absolute import Sinusoidal


class MaskedLMHead(nn.Module):
    """Scores of masked tokens, from an additional layer (Devlin et al., 2019)."""

    def __init__(self, d: int, vocabulary: int, *, norm_eps: float) -> None:
        super().__init__()
        self.layer = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d, eps=norm_eps)
        self.scores = nn.Linear(d, vocabulary)

    def forward(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows vocabulary"]:
        scores: Tensor = self.scores(self.norm(F.gelu(self.layer(hidden))))
        return scores


class ScaledHead(nn.Linear):
    """Scores of tokens from hidden states divided by √d, as in T5 where the head is tied."""

    def forward(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows vocabulary"]:
        return super().forward(hidden * self.in_features**-0.5)


class SoftcappedHead(nn.Linear):
    """Scores of tokens within ±c, c·tanh(W x / c) (Gemma Team, 2024, arXiv:2408.00118, §2)."""

    def __init__(self, d: int, vocabulary: int, *, softcap: float) -> None:
        super().__init__(d, vocabulary, bias=False)
        self.softcap = softcap

    def forward(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows vocabulary"]:
        return self.softcap * (super().forward(hidden) / self.softcap).tanh()


class ClassificationHead(nn.Module):
    """Scores for the labels of whole texts."""

    def __init__(self, d: int, labels: int, *, pool: Pool, dropout: float) -> None:
        super().__init__()
        self.pool = pool
        self.layer = nn.Linear(d, d)
        self.dropout = Dropout(dropout)
        self.scores = nn.Linear(d, labels)

    def forward(self, hidden: Hidden, lengths: Lengths) -> Float[Tensor, "b labels"]:
        pooled = pooled_states(hidden, lengths, self.pool)
        scores: Tensor = self.scores(self.dropout(self.layer(pooled).tanh()))
        return scores


class EmbeddingHead(nn.Module):
    """Vectors of length 1 for whole texts."""

    def __init__(self, d: int, width: int, *, pool: Pool, temperature: float) -> None:
        """Project to `width`; if it is 0, vectors are pooled hidden states.

        Training divides similarities by `temperature`.
        """
        super().__init__()
        self.pool, self.temperature = pool, temperature
        self.layer = nn.Linear(d, width, bias=False) if width else nn.Identity()

    def forward(self, hidden: Hidden, lengths: Lengths) -> Float[Tensor, "b width"]:
        vectors: Tensor = self.layer(pooled_states(hidden, lengths, self.pool))
        return F.normalize(at_least_float32(vectors), dim=-1)


class ReconstructionHead(nn.Module):
    """Logits of all tokens of a row, from the hidden state of its last one and their positions.

    The decoder of MAD's compression task (Poli et al., 2024, arXiv:2403.17844; athms/mad-lab,
    mad/model/auto_encoder.py): two layers of the same width, applied to each position.
    """

    def __init__(self, d: int, vocabulary: int, *, length: int) -> None:
        """`length` is the largest number of positions; `d` is even."""
        super().__init__()
        self.positions = Sinusoidal(length=length, d=d)
        self.layers = nn.Sequential(
            *(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU()),
            *(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU()),
            *(nn.LayerNorm(d), nn.Linear(d, vocabulary)),
        )

    def forward(self, hidden: Hidden, lengths: Lengths) -> Float[Tensor, "b n vocabulary"]:
        last = pooled_states(hidden, lengths, "last")
        positions = self.positions(torch.arange(hidden.shape[1], device=hidden.device))
        logits: Tensor = self.layers(last[:, None] + positions.to(last.dtype))
        return logits


def pooled_states(hidden: Hidden, lengths: Lengths, pool: Pool) -> Float[Tensor, "b d"]:
    """Return one pooled state per row, without its padding."""
    if pool == "first":
        return hidden[:, 0]
    if pool == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
    real = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    return hidden.masked_fill(~real[:, :, None], 0.0).sum(1) / lengths[:, None].to(hidden.dtype)


# Losses


def token_loss(head: nn.Module, hidden: Hidden, batch: Batch) -> Float[Tensor, ""]:
    """Return the loss; only the positions of targets are scored."""
    labels = batch.labels.flatten()
    scored = scored_places(labels, batch.n_targets)
    chosen = hidden.flatten(0, 1).index_select(0, scored)  # faster backward than indexing
    return cross_entropy(head(chosen), labels[scored])


def scored_places(labels: Int[Tensor, " positions"], n_targets: int) -> Int[Tensor, " places"]:
    """Return the places of all targets, padded with other places to few distinct sizes."""
    return (labels == IGNORE).argsort(stable=True)[: padded_size(n_targets)]


def cross_entropy(
    logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Return the cross entropy in nats, summed over the targets, in float32 at least."""
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
