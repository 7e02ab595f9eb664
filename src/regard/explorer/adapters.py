"""Interface of models for the explorer."""

from collections.abc import Sequence
from typing import Protocol

import torch

from regard.decoding.generate import Prompts
from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap, Prediction
from regard.explorer.gradients import Gradient

HUGGING_FACE = "hf:"
"""Prefix of Hugging Face model names; any other name is a run folder."""
MAX_GENERATED = 24
"""Largest number of tokens that an encoder–decoder generates if no target is given."""


class Adapter(Protocol):
    """A model whose attention can be shown."""

    @property
    def name(self) -> str:
        """Name on pages."""

    @property
    def device(self) -> torch.device:
        """Device of the model."""

    @property
    def max_tokens(self) -> int | None:
        """Largest number of tokens of a text, without special tokens; None if unlimited."""

    @property
    def regular_token_ids(self) -> Sequence[int]:
        """Ids of all tokens except the special ones."""

    def attention_maps(self, text: str, second: str | None = None) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to one text or two."""

    def prediction(self, text: str, second: str | None = None) -> Prediction | None:
        """Return the next tokens or labels that the model predicts; None if it predicts neither."""

    def token_text(self, token: int) -> str:
        """Return a token as text, a special one by its name."""

    def prompt(self, text: str, *, raw: bool = False) -> Prompts:
        """Return the prompt for generation after a text; `raw`: without the model's template."""

    def maps_of_generated(
        self, text: str, generated: Sequence[int], *, raw: bool = False
    ) -> tuple[AttentionMap, ...]:
        """Return the attention of all layers to a text and the tokens that continue it."""

    def map_of_ids(self, ids: Sequence[int]) -> tuple[AttentionMap, int]:
        """Return the attention of the first stack to tokens, and the first token's position."""

    def gradients(self, text: str) -> Sequence[Gradient]:
        """Return ∂L/∂A of the loss of a text for each layer of the first stack."""

    def untrained(self) -> "Adapter":
        """Return the same model before its training."""


def require_characters(*texts: str | None) -> None:
    """Raise if a text is empty."""
    if "" in texts:
        raise UserError("a text is empty; attention needs at least one token")


def require_fit(tokens: int, context_length: int | None, what: str) -> None:
    """Raise if a text has more tokens than the model's context."""
    if context_length is not None and tokens > context_length:
        raise UserError(
            f"{what} has {tokens} tokens, more than the model's context length of "
            f"{context_length}; shorten it"
        )


def require_tokens(ids: Sequence[int], vocabulary: int) -> None:
    """Raise if a token isn't in the model's vocabulary."""
    if max(ids, default=0) >= vocabulary:
        raise UserError("these tokens aren't in this model's vocabulary; generate again")
