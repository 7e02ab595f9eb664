"""Look at the attention of a run while it reads a text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.decoding import generate
from regard.errors import UserError
from regard.explorer.capture import capture_attention
from regard.explorer.maps import Side, choose, gather_maps
from regard.explorer.page import in_notebook, page
from regard.explorer.payload import Chosen, payload
from regard.explorer.pictures import draw_map
from regard.explorer.surroundings import surrounded
from regard.models.families import SequenceToSequence
from regard.runs.files import write_file
from regard.runs.run import Run
from regard.text.batches import lengths_of
from regard.text.vocabulary import MASK

WRITTEN = 24
"""Tokens that an encoder–decoder writes where no target is given."""


@dataclass(frozen=True, eq=False, repr=False)
class View:
    """What models did while they read texts. Shows itself in a notebook."""

    title: str
    sides: tuple[Side, ...]
    detailed: Sequence[Chosen] = ((0, 0, 0),)
    """The heads that are shown step by step: map, layer and head, from 0."""
    word: str | None = None
    """The word that is compared between sides; by default the first that they share."""

    @property
    def data(self) -> dict[str, Any]:
        """What a page shows."""
        return payload(self.title, self.sides, self.detailed, self.word)

    def save(self, path: str | Path) -> Path:
        """Write a page that works offline."""
        write_file(Path(path), page(self.data).encode())
        return Path(path)

    def png(
        self, path: str | Path, *, layer: int = 0, head: int = 0, side: int = 0, map: int = 0
    ) -> Path:
        """Draw one head, without a browser; SVG where the name ends so."""
        write_file(Path(path), draw_map(self.sides[side].maps[map], layer, head, Path(path).suffix))
        return Path(path)

    def beside(self, other: "View") -> "View":
        """Both in one page."""
        title = f"{self.title} ∣ {other.title}"
        return replace(self, title=title, sides=(*self.sides, *other.sides))

    def only(
        self, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> "View":
        """Some layers and heads, from 0, where all would be too much.

        Raises:
            UserError: there are no such layers or heads.
        """
        sides = tuple(
            replace(side, maps=tuple(choose(one, layers, heads) for one in side.maps))
            for side in self.sides
        )
        return replace(self, sides=sides)

    def in_steps(self, chosen: Sequence[Chosen]) -> "View":
        """The same with other heads step by step."""
        return replace(self, detailed=tuple(chosen))

    def about(self, word: str) -> "View":
        """The same with another word compared between sides."""
        return replace(self, word=word)

    def __repr__(self) -> str:
        """Short: notebooks keep it beside the page."""
        return f"View({self.title!r})"

    def _repr_html_(self) -> str:
        return in_notebook(self.data)


def look(run: Run, text: str, second: str | None = None) -> View:
    """The attention of each layer while the run reads a text.

    `second` is what an encoder–decoder writes about it (otherwise, what it writes by itself), and
    the second sentence for other models.

    Raises:
        UserError: a text is empty, can't be encoded or is too long, or the model has no attention.
    """
    inputs, source, target, break_ = read(run, text, second)
    captured = capture_attention(run.model.body, *inputs)
    if not captured:
        raise UserError(f"{run.path}: this model has no attention to look at")
    show = run.tokenizer.show
    maps = gather_maps(captured, [show(i) for i in source], [show(i) for i in target], break_)
    maps = tuple(surrounded(one, run.model.body) for one in maps)
    return View(f"{run.path.name}: {text}", (Side(run.path.name, maps, text),))


def untrained(run: Run) -> Run:
    """The same model before its training."""
    fresh = Run.new(
        run.path.with_name(f"{run.path.name}, untrained"), run.recipe, run.tokenizer, {}
    )
    fresh.model.to(next(run.model.parameters()).device).eval()
    return fresh


Read = tuple[Sequence[Any], list[int], list[int], int | None]
"""A model's inputs, the ids of source and target, and where the second of two texts begins."""


def read(run: Run, text: str, second: str | None = None) -> Read:
    """A text as a run's model takes it.

    Raises:
        UserError: a text is empty, can't be encoded or is too long.
    """
    for given in (text, second):
        if given == "":
            raise UserError("a text is empty; a model needs something to look at")
    return (_pair if isinstance(run.model, SequenceToSequence) else _text)(run, text, second)


def _text(run: Run, text: str, second: str | None) -> Read:
    """One sequence, of one text or of two."""
    ids, parts = (
        run.tokenizer.encode_pair(text, second) if second else (run.tokenizer.encode(text), [])
    )
    ids, parts = [*run.prefix, *ids], [*[0] * len(run.prefix), *parts]
    _require(ids, run.recipe.model.block, "the text")
    rows = _tensor(run, ids)
    inputs = [rows, lengths_of([ids]).to(rows.device)]
    if second is not None and getattr(run.recipe.model, "segments", 0) > 1:
        inputs.append(_tensor(run, parts))
    return inputs, ids, [], parts.index(1) if second else None


def _pair(run: Run, text: str, second: str | None) -> Read:
    """A source, and the target that is written about it."""
    assert isinstance(run.model, SequenceToSequence)
    source = run.tokenizer.encode(text)
    _require(source, run.source_room, "the text")
    rows = _tensor(run, source)
    lengths = lengths_of([source]).to(rows.device)
    if second is None:
        most = min(WRITTEN, run.recipe.model.block - 1)
        model = run.model.about(rows, lengths)
        (written,) = generate(model, [[MASK]], max_new_tokens=most, stop=MASK, device=rows.device)
        target = [MASK, *written.ids]
    else:
        target = [MASK, *run.tokenizer.encode(second)]
        _require(target, run.recipe.model.block, "the second text")
    return (rows, lengths, _tensor(run, target)), source, target, None


def _require(ids: Sequence[int], block: int, what: str) -> None:
    """Refuse a text that the model can't read.

    Raises:
        UserError: it is too long.
    """
    if len(ids) > block:
        raise UserError(
            f"{what} takes {len(ids)} tokens, which is more than the model's block of {block}; "
            "shorten it"
        )


def _tensor(run: Run, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=next(run.model.parameters()).device)
