"""What a run answers a page: views, steps, and what it writes."""

from collections.abc import Iterator
from typing import Any

import torch

from regard.decoding import Sampling, stream
from regard.errors import UserError
from regard.evaluation.writing import Writer, writer
from regard.explorer.capture import capture_attention
from regard.explorer.look import View, look
from regard.explorer.maps import Side, gather_maps
from regard.explorer.surroundings import surrounded
from regard.models.families import SequenceToSequence
from regard.runs.run import Run
from regard.serve.wishes import Look, Steps, Write
from regard.text.batches import lengths_of
from regard.text.vocabulary import MASK


def view(run: Run, wish: Look) -> dict[str, Any]:
    """All heads, as a page shows them; exact steps are asked for head by head."""
    return _view(run, wish).in_steps(()).data


def steps(run: Run, wish: Steps) -> dict[str, Any]:
    """The exact steps of a head.

    Raises:
        UserError: there is no such head, or its steps are too many.
    """
    chosen = (wish.map, wish.layer, wish.head)
    (side,) = _view(run, wish).in_steps([chosen]).data["sides"]
    exact: dict[str, Any] = side["details"][0]
    return exact


def write(run: Run, wish: Write) -> Iterator[dict[str, Any]]:
    """The tokens that the run writes about a text, each with all that is written so far.

    Raises:
        UserError: the run can't write, or can't read the text.
    """
    device = _device(run)
    asked = writer(run, [wish.text], device)
    tokens = stream(
        asked.model,
        asked.starts,
        max_new_tokens=min(asked.room, wish.tokens),
        stop=MASK,
        sampling=Sampling(temperature=wish.temperature, seed=wish.seed),
        device=device,
    )
    return _told(asked, (int(token[0]) for token, _ in tokens))


def _told(asked: Writer, tokens: Iterator[int]) -> Iterator[dict[str, Any]]:
    """The last line says why no more is written."""
    ids: list[int] = []
    for token in tokens:
        if token == MASK:
            yield {"end": "The model ended its text."}
            return
        ids.append(token)
        yield {"token": token, "text": asked.text(0, ids, None)}
    full = len(ids) == asked.room
    yield {"end": "The model's block is full." if full else "As many tokens as were asked for."}


def _view(run: Run, wish: Look) -> View:
    if wish.written:
        return look_at_writing(run, wish.text, list(wish.written))
    return look(run, wish.text, wish.second or None)


def look_at_writing(run: Run, text: str, written: list[int]) -> View:
    """The attention of each layer while the run reads a text and what it wrote about it.

    Raises:
        UserError: the run can't write, can't read the text, or has no such tokens.
    """
    if max(written) >= run.tokenizer.size:
        raise UserError("these tokens are none of this model's; write anew")
    (start,) = writer(run, [text], _device(run)).starts
    # Of a full block, the model never reads the token that it wrote last.
    ids = [*start, *written][: run.recipe.model.block]
    pair = isinstance(run.model, SequenceToSequence)
    source, target = (run.tokenizer.encode(text), ids) if pair else (ids, [])
    rows = [torch.tensor([part], device=_device(run)) for part in (source, target) if part]
    inputs = [rows[0], lengths_of([source]).to(_device(run)), *rows[1:]]
    show = run.tokenizer.show
    maps = gather_maps(
        capture_attention(run.model.body, *inputs), [*map(show, source)], [*map(show, target)]
    )
    if not maps:
        raise UserError(f"{run.path}: this model has no attention to look at")
    maps = tuple(surrounded(one, run.model.body) for one in maps)
    return View(f"{run.path.name}: {text}", (Side(run.path.name, maps, text),))


def _device(run: Run) -> torch.device:
    return next(run.model.parameters()).device
