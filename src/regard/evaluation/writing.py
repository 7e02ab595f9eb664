"""A run as something that writes: what it continues for each prompt, and what is shown of it.

A language model continues a prompt, and one that was trained on a probe its row; one that was
trained for a task answers it, behind a ⁇; an encoder–decoder reads it, and writes from the
beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data.batch import lengths_of, pad_rows
from regard.decoding.generate import Generator
from regard.errors import UserError
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.tasks.probes import ProbeConfig
from regard.text.corpus import Document
from regard.text.tokenizer import Tokenizer, encode_documents
from regard.text.vocabulary import MASK, PAD


@dataclass(frozen=True)
class Writer:
    """A model that is ready to write."""

    model: Generator
    starts: list[list[int]]
    """What it continues, a row for each prompt."""
    shown: list[list[int]]
    """The part of it that belongs to the text."""
    room: int
    """How many new tokens each row has room for."""
    tokenizer: Tokenizer

    def text(self, row: int, new: Sequence[int], stop: str | None) -> str:
        """What a row's text is with its new tokens, up to the first stop among those."""
        before = self.tokenizer.decode(self.shown[row])
        text = self.tokenizer.decode([*self.shown[row], *new])
        end = text.find(stop, len(before)) if stop else -1
        return text if end < 0 else text[:end]


@torch.inference_mode()
def writer(
    run: Run, prompts: Sequence[str], device: torch.device, max_new_tokens: int | None = None
) -> Writer:
    """The run before it writes; `max_new_tokens` are as many as fit where none are given.

    Raises:
        UserError: the model can't write; or a prompt is empty, too long, or can't be encoded.
    """
    texts = encode_documents(
        run.tokenizer, [Document(prompt, f"prompt {i}") for i, prompt in enumerate(prompts, 1)]
    )
    for number, text in enumerate(texts, 1):
        if not text:
            raise UserError(f"prompt {number}: is empty; a model needs a beginning")
    wanted, block = max_new_tokens or 1, run.recipe.model.context_length
    if isinstance(run.model, SequenceToSequence):
        _require_room(texts, 0, run.max_source_tokens)
        starts = [[MASK]] * len(texts)
        sources = pad_rows(texts, PAD, limit=run.max_source_tokens).to(device)
        model: Generator = run.model.condition(sources, lengths_of(texts).to(device))
        shown: list[list[int]] = [[]] * len(texts)
    else:
        model = run.language_model
        before, behind = _frame(run)
        starts = [[*before, *text, *behind] for text in texts]
        shown = [[] if behind else text for text in texts]
    _require_room(starts, wanted - 1, block)
    room = max_new_tokens or block + 1 - max(map(len, starts))
    return Writer(model, starts, shown, room, run.tokenizer)


def _frame(run: Run) -> tuple[list[int], list[int]]:
    """What stood before and behind each text in training."""
    if isinstance(run.recipe.task, ProbeConfig):
        return [], []
    return run.prefix, [] if run.recipe.task is None else [MASK]


def _require_room(rows: Sequence[Sequence[int]], new: int, block: int) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) + new > block:
            with_new = f", and with {new + 1} new ones that" if new else ", which"
            raise UserError(
                f"prompt {number}: takes {len(row)} tokens{with_new} is more than the model's "
                f"context length of {block}; shorten it or ask for fewer"
            )
