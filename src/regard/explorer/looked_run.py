"""A run, looked at while it reads a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.decoding import generate
from regard.errors import UserError
from regard.explorer.capture import capture_attention
from regard.explorer.gradients import Gradient, attention_gradients, text_loss
from regard.explorer.maps import Map, gather_maps, kind_of
from regard.explorer.surroundings import surrounded
from regard.explorer.texts import WRITTEN, require_room, require_text
from regard.models.families import SequenceToSequence
from regard.runs.run import Run
from regard.text.batches import lengths_of
from regard.text.vocabulary import MASK, SPECIAL


@dataclass(frozen=True, eq=False)
class LookedRun:
    """A run as what can be looked at: see `regard.explorer.subjects.Subject`."""

    run: Run

    @property
    def name(self) -> str:
        """Its folder's."""
        return self.run.path.name

    @property
    def room(self) -> int:
        """The most tokens of a text, or of a source where it writes a target."""
        return self.run.source_room if self._writes else self.run.room

    @property
    def ordinary(self) -> Sequence[int]:
        """The ids of all tokens but the special ones."""
        return range(len(SPECIAL), self.run.tokenizer.size)

    def read(self, text: str, second: str | None = None) -> tuple[Map, ...]:
        """What its layers do with a text, or with two.

        Raises:
            UserError: a text can't be encoded or is too long, or the model has no attention.
        """
        return self.maps(*read(self.run, text, second))

    def read_ids(self, ids: Sequence[int]) -> tuple[Map, int]:
        """What its first stack does with tokens, and where they begin.

        Raises:
            UserError: the model has no attention.
        """
        before = [] if self._writes else self.run.prefix
        row, target = [*before, *ids], [MASK] if self._writes else []
        rows = _tensor(self.run, row)
        inputs = [rows, lengths_of([row]).to(rows.device)]
        inputs += [_tensor(self.run, target)] if target else []
        return self.maps(inputs, row, target)[0], len(before)

    def maps(
        self,
        inputs: Sequence[Tensor],
        source: Sequence[int],
        target: Sequence[int],
        second: int | None = None,
    ) -> tuple[Map, ...]:
        """What its layers do with a model's inputs, made of these ids.

        Raises:
            UserError: the model has no attention.
        """
        body, show = self.run.model.body, self.run.tokenizer.show
        captured = capture_attention(body, *inputs)
        if not captured:
            raise UserError(f"{self.run.path}: this model has no attention to look at")
        maps = gather_maps(captured, [show(i) for i in source], [show(i) for i in target], second)
        return tuple(surrounded(one, body) for one in maps)

    def gradients(self, text: str) -> list[Gradient]:
        """How its loss on a text depends on each weight of its first stack, layer by layer.

        Raises:
            UserError: the text can't be read, or has no loss.
        """
        model = self.run.model
        inputs, *_ = read(self.run, text)
        found = attention_gradients(model.body, partial(text_loss, model, *inputs))
        kinds = [kind_of(one.layer, self._writes) for one in found]
        return [one for one, kind in zip(found, kinds, strict=True) if kind == kinds[0]]

    def untrained(self) -> "LookedRun":
        """The same before its training."""
        return LookedRun(untrained_run(self.run))

    @property
    def _writes(self) -> bool:
        return isinstance(self.run.model, SequenceToSequence)


def untrained_run(run: Run) -> Run:
    """The same run before its training."""
    name = f"{run.path.name}, untrained"
    fresh = Run.new(run.path.with_name(name), run.recipe, run.tokenizer, {})
    fresh.model.to(next(run.model.parameters()).device).eval()
    return fresh


Read = tuple[Sequence[Any], list[int], list[int], int | None]
"""A model's inputs, the ids of source and target, and where the second of two texts begins."""


def read(run: Run, text: str, second: str | None = None) -> Read:
    """A text as a run's model takes it.

    Raises:
        UserError: a text is empty, can't be encoded or is too long.
    """
    require_text(text, second)
    return (_pair if isinstance(run.model, SequenceToSequence) else _text)(run, text, second)


def _text(run: Run, text: str, second: str | None) -> Read:
    """One sequence, of one text or of two."""
    ids, parts = (
        run.tokenizer.encode_pair(text, second) if second else (run.tokenizer.encode(text), [])
    )
    ids, parts = [*run.prefix, *ids], [*[0] * len(run.prefix), *parts]
    require_room(ids, run.recipe.model.block, "the text")
    rows = _tensor(run, ids)
    inputs = [rows, lengths_of([ids]).to(rows.device)]
    if second is not None and getattr(run.recipe.model, "segments", 0) > 1:
        inputs.append(_tensor(run, parts))
    return inputs, ids, [], parts.index(1) if second else None


def _pair(run: Run, text: str, second: str | None) -> Read:
    """A source, and the target that is written about it."""
    assert isinstance(run.model, SequenceToSequence)
    source = run.tokenizer.encode(text)
    require_room(source, run.source_room, "the text")
    rows = _tensor(run, source)
    lengths = lengths_of([source]).to(rows.device)
    if second is None:
        most = min(WRITTEN, run.recipe.model.block - 1)
        model = run.model.about(rows, lengths)
        (written,) = generate(model, [[MASK]], max_new_tokens=most, stop=MASK, device=rows.device)
        target = [MASK, *written.ids]
    else:
        target = [MASK, *run.tokenizer.encode(second)]
        require_room(target, run.recipe.model.block, "the second text")
    return (rows, lengths, _tensor(run, target)), source, target, None


def _tensor(run: Run, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=next(run.model.parameters()).device)
