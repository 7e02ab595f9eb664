"""Embeddings of n-grams: a token and the few before it.

Shapes: b rows, n tokens, d the width of token embeddings, `reach` earlier tokens of an n-gram.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.ngram_config import NgramConfig
from regard.models.tensors import TokenIds, TokenMask

NONE = -1
"""Id in the place of a token before the first of a row or document."""


class NgramEmbedding(nn.Module):
    """Σ_n E_n(t_i, …, t_(i-n+1)), for n from 2 to the longest.

    E_n is a concatenation of rows of hashed tables, row Σ_j a_k^j t_(i-j) mod slots of table k. An
    n-gram that would begin before its document adds nothing. Hashed tables of n-grams are those of
    Huang et al., 2025 (arXiv:2501.16975, §3) and 2601.21204, without their projections.
    """

    powers: Int[Tensor, "longest hashes"]
    first_rows: Int[Tensor, "longest-1 hashes"]

    def __init__(self, config: NgramConfig, width: int) -> None:
        """Build all tables, as one matrix."""
        super().__init__()
        self.reach, self.slots = config.longest - 1, config.slots
        tables = self.reach * config.hashes
        self.tables = nn.Embedding(tables * config.slots, width // config.hashes)
        places, bases = range(config.longest), config.multipliers
        powers = [[pow(base, place, self.slots) for base in bases] for place in places]
        first_rows = torch.arange(tables).view(self.reach, -1) * self.slots
        self.register_buffer("powers", torch.tensor(powers), persistent=False)
        self.register_buffer("first_rows", first_rows, persistent=False)

    def forward(
        self, input_ids: TokenIds, document_ids: Int[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n d"]:
        """Return the embeddings of whole rows."""
        windows = self._windows(F.pad(input_ids, (self.reach, 0), value=NONE))
        if document_ids is not None:
            known = self._windows(F.pad(document_ids, (self.reach, 0), value=NONE))
            windows = windows.masked_fill(known != document_ids[..., None], NONE)
        return self._look_up(windows)

    def first_ids(self, batch: int) -> Int[Tensor, "b reach"]:
        """Return the ids before the first token: NONE."""
        return self.powers.new_full((batch, self.reach), NONE)

    def extend(
        self, input_ids: TokenIds, before: Int[Tensor, "b reach"], attention_mask: TokenMask | None
    ) -> tuple[Float[Tensor, "b n d"], Int[Tensor, "b reach"]]:
        """Return the embeddings of new tokens, and the ids before the next ones."""
        known = torch.cat([before, input_ids], 1)
        if attention_mask is None:
            last = known[:, known.shape[1] - self.reach :]
        else:
            reach = torch.arange(self.reach, device=known.device)
            last = known.gather(1, attention_mask.sum(1, keepdim=True) + reach)
        return self._look_up(self._windows(known)), last

    def _windows(self, known: Int[Tensor, "b known"]) -> Int[Tensor, "b n longest"]:
        """Return each token with those before it, itself first."""
        return known.unfold(1, self.reach + 1, 1).flip(-1)

    def _look_up(self, windows: Int[Tensor, "b n longest"]) -> Float[Tensor, "b n d"]:
        """Return the sum of the embeddings of all n-grams of each window."""
        sums = (windows[..., None] * self.powers).cumsum(-2)[..., 1:, :]
        parts = self.tables(sums % self.slots + self.first_rows).flatten(-2)
        whole = windows[..., 1:, None] != NONE
        summed: Tensor = (parts * whole).sum(-2)
        return summed
