"""Scores for induction heads: attention to a random sequence that occurs twice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.adapters import Adapter
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import repeated, shares

DEFAULT_TOKENS = 50
"""Default length of the random sequence, if it fits the context twice."""


@dataclass(frozen=True, eq=False)
class RepeatedSequence:
    """A model's attention to a random sequence that occurs twice."""

    map: AttentionMap
    tokens: slice
    """Positions of both occurrences, without the special tokens around the text."""


def attend_repeated_sequence(
    model: Adapter, tokens: int | None = None, *, seed: int = 0
) -> RepeatedSequence:
    """Return the attention of a model's first stack to random tokens, repeated once.

    Raises:
        UserError: the model's context is too short.
    """
    tokens, ids = _length(tokens, model.max_tokens), model.regular_token_ids
    draw = torch.Generator().manual_seed(seed)
    row = [ids[i] for i in torch.randint(len(ids), (tokens,), generator=draw).tolist()]
    one, begin = model.map_of_ids([*row, *row])
    second, end = begin + tokens, begin + 2 * tokens
    return RepeatedSequence(replace(one, second=second), slice(begin, end))


def induction_scores(sequence: RepeatedSequence) -> Mapping[str, Float[Tensor, " heads"]]:
    """Return each head's weight on the previous occurrence and on its successor."""
    found: dict[str, list[Tensor]] = {}
    for layer in sequence.map.layers:
        weights = shares(layer.record)[0, list(layer.heads)].float().cpu()
        for name, scores in repeated(weights[..., sequence.tokens, sequence.tokens]).items():
            found.setdefault(f"{name} twice", []).append(scores)
    return {name: torch.cat(scores) for name, scores in found.items()}


def _length(tokens: int | None, max_tokens: int | None) -> int:
    """Return the requested or default length, at most the longest that fits twice."""
    if max_tokens is None:
        return DEFAULT_TOKENS if tokens is None else tokens
    tokens = min(DEFAULT_TOKENS, max_tokens // 2) if tokens is None else tokens
    if not 1 <= tokens <= max_tokens // 2:
        raise UserError(
            f"--random {tokens}: the sequence occurs twice in a context of {max_tokens} tokens; "
            f"choose 1 to {max_tokens // 2}"
        )
    return tokens
