"""Generation with Hugging Face models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class HuggingFaceGenerator:
    """A model that generates one row, with all tokens read anew for each new one.

    The caches of architectures differ, and the page captures the attention to all tokens anyway.
    """

    model: "PreTrainedModel"
    source: Mapping[str, Any]
    """Outputs of the encoder and its mask; empty for a decoder."""

    def init_state(self, batch: int, capacity: int) -> Int[Tensor, "b 0"]:
        """Return the tokens that are read: none."""
        return torch.empty(batch, 0, dtype=torch.long, device=self.model.device)

    def extend(
        self,
        input_ids: Int[Tensor, "b n"],
        states: Int[Tensor, "b before"],
        attention_mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b vocabulary"], Int[Tensor, "b after"]]:
        """Read further tokens and score the next one."""
        new = input_ids if attention_mask is None else input_ids[:, attention_mask[0]]
        ids = torch.cat([states, new], 1)
        inputs = {"decoder_input_ids": ids, **self.source} if self.source else {"input_ids": ids}
        logits: Tensor = self.model(**inputs, use_cache=False).logits[:, -1]
        return logits.float(), ids
