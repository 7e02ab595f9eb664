"""Look at the attention of a model while it reads a text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.explorer.looked_run import untrained_run
from regard.explorer.maps import Side, choose
from regard.explorer.page import in_notebook, page
from regard.explorer.payload import Chosen, payload
from regard.explorer.pictures import draw_map
from regard.explorer.subjects import Subject, subject_of
from regard.runs.files import write_file
from regard.runs.run import Run


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


def look(model: Run | Subject, text: str, second: str | None = None) -> View:
    """The attention of each layer while a model, a run or another, reads a text.

    `second` is what an encoder–decoder writes about it (otherwise, what it writes by itself), and
    the second sentence for other models.

    Raises:
        UserError: a text is empty, can't be encoded or is too long, or the model has no attention.
    """
    subject = subject_of(model)
    maps = subject.read(text, second)
    texts = " / ".join(one for one in (text, second) if one)
    return View(f"{subject.name}: {texts}", (Side(subject.name, maps, texts),))


def untrained(model: Run | Subject) -> Run | Subject:
    """The same model before its training."""
    return untrained_run(model) if isinstance(model, Run) else model.untrained()
