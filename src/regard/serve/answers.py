"""What models answer a page: views, steps, and what they write."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch

from regard.decoding import Sampling, stream
from regard.errors import UserError
from regard.evaluation.writing import Writer, writer
from regard.explorer.look import View, look
from regard.explorer.looked_run import LookedRun
from regard.explorer.maps import Side
from regard.explorer.payload import TooLargeError
from regard.explorer.ranges import read_ranges
from regard.explorer.subjects import Subject
from regard.models.families import SequenceToSequence
from regard.runs.run import Run
from regard.serve.wishes import Look, Reading, Steps, Write
from regard.text.batches import lengths_of
from regard.text.vocabulary import MASK

LAYERS, HEADS = "Only layers", "Only heads"
"""What the page calls the fields that choose some."""


def read(model: Run | Subject, wish: Reading) -> View:
    """What a model does while it reads.

    Raises:
        UserError: the model can't read the text, or has no such tokens.
    """
    if wish.written:
        return look_at_writing(_writing(model), wish.text, list(wish.written))
    return look(model, wish.text, wish.second or None)


def view(sides: Sequence[View], wish: Look) -> dict[str, Any]:
    """One side or two as a page shows them; exact steps are asked for head by head.

    Raises:
        UserError: it is too much, or there are no such layers, heads or word.
    """
    shown = _chosen(reduce(View.beside, sides), wish.layers, wish.heads)
    if wish.word is not None:
        shown = shown.about(wish.word)
    with _mended(f"fill in “{LAYERS}” or “{HEADS}”, or choose a shorter text"):
        return shown.in_steps(()).data


def steps(model: Run | Subject, wish: Steps) -> dict[str, Any]:
    """The exact steps of a head.

    Raises:
        UserError: there is no such head, or its steps are too many.
    """
    shown = _chosen(read(model, wish), wish.layers, wish.heads)
    with _mended("choose a shorter text"):
        (side,) = shown.in_steps([(wish.map, wish.layer, wish.head)]).data["sides"]
    exact: dict[str, Any] = side["details"][0]
    return exact


def _chosen(shown: View, layers: str, heads: str) -> View:
    return shown.only(
        read_ranges(LAYERS, layers) if layers.strip() else None,
        read_ranges(HEADS, heads) if heads.strip() else None,
    )


@contextmanager
def _mended(way: str) -> Iterator[None]:
    """What is too large is told of with a way that is open to who uses the page."""
    try:
        yield
    except TooLargeError as error:
        raise TooLargeError(error.fact, way) from None


def write(model: Run | Subject, wish: Write) -> Iterator[dict[str, Any]]:
    """The tokens that a model writes about a text, each with all that is written so far.

    Raises:
        UserError: the model can't write, or can't read the text.
    """
    run = _writing(model)
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


def _writing(model: Run | Subject) -> Run:
    """The model, if it is one that can write here."""
    if not isinstance(model, Run):
        raise UserError(f"{model.name}: models of Hugging Face are looked at here, and don't write")
    return model


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
    maps = LookedRun(run).maps(inputs, source, target)
    return View(f"{run.path.name}: {text}", (Side(run.path.name, maps, text),))


def _device(run: Run) -> torch.device:
    return next(run.model.parameters()).device
