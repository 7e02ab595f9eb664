"""A random text read twice: which heads find what followed the last time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.maps import Map
from regard.explorer.patterns import repeated
from regard.explorer.subjects import Subject

USUAL = 50
"""Tokens of a random text, where the model has room for them twice."""


@dataclass(frozen=True, eq=False)
class Twice:
    """What a model did with a row of random tokens that comes twice."""

    map: Map
    tokens: slice
    """Where they stand, both times; what begins or ends each text isn't among them."""


def read_twice(model: Subject, tokens: int | None = None, *, seed: int = 0) -> Twice:
    """The attention of a model to random tokens, read twice; of an encoder–decoder, its source's.

    Raises:
        UserError: two such rows are longer than what the model reads.
    """
    tokens, ids = _length(tokens, model.room), model.ordinary
    draw = torch.Generator().manual_seed(seed)
    row = [ids[i] for i in torch.randint(len(ids), (tokens,), generator=draw).tolist()]
    one, begin = model.read_ids([*row, *row])
    second, end = begin + tokens, begin + 2 * tokens
    return Twice(replace(one, second=second), slice(begin, end))


def repeat_scores(twice: Twice) -> Mapping[str, Float[Tensor, " heads"]]:
    """How much of their weight all heads give to the same token before, and to what followed it."""
    found: dict[str, list[Tensor]] = {}
    for layer in twice.map.layers:
        weights = layer.captured.weights[0, list(layer.heads)].float().cpu()
        for name, scores in repeated(weights[..., twice.tokens, twice.tokens]).items():
            found.setdefault(f"{name} twice", []).append(scores)
    return {name: torch.cat(scores) for name, scores in found.items()}


def _length(tokens: int | None, room: int | None) -> int:
    """How many random tokens fit twice: those that are wished for, or the usual number."""
    if room is None:
        return USUAL if tokens is None else tokens
    tokens = min(USUAL, room // 2) if tokens is None else tokens
    if not 1 <= tokens <= room // 2:
        raise UserError(
            f"--random {tokens}: the model reads {room} tokens; choose 1 to {room // 2}, "
            "which it reads twice"
        )
    return tokens
