"""A random text read twice: which heads find what followed the last time."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.capture import capture_attention
from regard.explorer.maps import Map, gather_maps
from regard.explorer.patterns import repeated
from regard.explorer.surroundings import surrounded
from regard.models.families import SequenceToSequence
from regard.runs.run import Run
from regard.text.batches import lengths_of
from regard.text.vocabulary import MASK, SPECIAL

USUAL = 50
"""Tokens of a random text, where the model has room for them twice."""


def read_twice(run: Run, tokens: int | None = None, *, seed: int = 0) -> Map:
    """The attention to a row of random tokens that comes twice; of an encoder–decoder, its source.

    Raises:
        UserError: two such rows are longer than what the model reads.
    """
    pair = isinstance(run.model, SequenceToSequence)
    room, prefix = (run.source_room, []) if pair else (run.room, run.prefix)
    tokens = min(USUAL, room // 2) if tokens is None else tokens
    if not 1 <= tokens <= room // 2:
        raise UserError(
            f"--random {tokens}: the model reads {room} tokens; choose 1 to {room // 2}, "
            "which it reads twice"
        )
    draw = torch.Generator().manual_seed(seed)
    row = torch.randint(len(SPECIAL), run.tokenizer.size, (tokens,), generator=draw).tolist()
    ids = [*prefix, *row, *row]
    device = next(run.model.parameters()).device
    inputs = [torch.tensor([ids], device=device), lengths_of([ids]).to(device)]
    if pair:
        inputs.append(torch.tensor([[MASK]], device=device))
    captured = capture_attention(run.model.body, *inputs)
    if not captured:
        raise UserError(f"{run.path}: this model has no attention to look at")
    show = run.tokenizer.show
    target = [show(MASK)] if pair else []
    second = len(prefix) + tokens
    maps = gather_maps(captured, [show(token) for token in ids], target, second)
    return surrounded(maps[0], run.model.body)


def repeat_scores(one: Map) -> Mapping[str, Float[Tensor, " heads"]]:
    """How much of their weight all heads give to the same token before, and to what followed it.

    What begins the text isn't part of what comes twice.
    """
    assert one.second is not None
    begin = 2 * one.second - len(one.keys)
    found: dict[str, list[Tensor]] = {}
    for layer in one.layers:
        weights = layer.captured.weights[0, list(layer.heads)].float().cpu()
        for name, scores in repeated(weights[..., begin:, begin:]).items():
            found.setdefault(f"{name} twice", []).append(scores)
    return {name: torch.cat(scores) for name, scores in found.items()}
