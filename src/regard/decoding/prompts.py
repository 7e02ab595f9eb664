"""Prompts of a run in its template, and the texts that it generates from them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data.batch import lengths_of, pad_rows
from regard.decoding.generate import Generator
from regard.errors import UserError
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.text.corpus import Document
from regard.text.tokenizer import Tokenizer, encode_documents


@dataclass(frozen=True)
class Prompts:
    """A model that is ready to generate, and the rows that it continues."""

    model: Generator
    starts: list[list[int]]
    """The ids to continue, a row per prompt."""
    shown: list[list[int]]
    """The part of them that belongs to the text: the prompt if it is continued, or nothing."""
    max_new_tokens: int
    """Number of new tokens per row. Default: fill the context."""
    tokenizer: Tokenizer

    def text(self, row: int, new: Sequence[int], stop_string: str | None) -> str:
        """Return the text of a row with its new tokens, up to the first stop string in those."""
        before = self.tokenizer.decode(self.shown[row])
        text = self.tokenizer.decode([*self.shown[row], *new])
        end = text.find(stop_string, len(before)) if stop_string else -1
        return text if end < 0 else text[:end]


@torch.inference_mode()
def encode_prompts(
    run: Run,
    prompts: Sequence[str],
    device: torch.device,
    *,
    max_new_tokens: int | None = None,
    raw: bool = False,
) -> Prompts:
    """Encode prompts: questions in a run that answers, unless `raw`, or else texts to continue.

    `max_new_tokens` defaults to what fits the context.

    Raises:
        UserError: the model doesn't generate; or a prompt is empty, too long, or can't be encoded.
    """
    texts = encode_documents(
        run.tokenizer, [Document(prompt, f"prompt {i}") for i, prompt in enumerate(prompts, 1)]
    )
    for number, text in enumerate(texts, 1):
        if not text:
            raise UserError(f"prompt {number}: is empty; a model needs a beginning")
    has_source = isinstance(run.model, SequenceToSequence)
    answers = has_source or (run.answers_questions and not raw)
    affixes = run.template.prompt if answers and not has_source else run.text_affixes
    rows = [affixes.around(text) for text in texts]
    if has_source:
        _require_fit(rows, 0, run.max_source_tokens)
    model, starts = begin_answers(run, rows, device) if answers else (run.language_model, rows)
    context_length = run.recipe.model.context_length
    _require_fit(starts, (max_new_tokens or 1) - 1, context_length)
    new_tokens = max_new_tokens or context_length + 1 - max(map(len, starts))
    return Prompts(
        model, starts, [[]] * len(texts) if answers else texts, new_tokens, run.tokenizer
    )


def begin_answers(
    run: Run, rows: Sequence[list[int]], device: torch.device
) -> tuple[Generator, list[list[int]]]:
    """Return what generates the answers to rows, prompts or sources, and the ids it continues.

    Raises:
        UserError: the model doesn't generate.
    """
    if not isinstance(run.model, SequenceToSequence):
        return run.language_model, [run.template.open_answer(row) for row in rows]
    special = run.tokenizer.special
    start = [special.require("decoder_start_id"), *run.template.target.prefix]
    padded = pad_rows(rows, special.padding, limit=run.max_source_tokens).to(device)
    return run.model.condition(padded, lengths_of(rows).to(device)), [start] * len(rows)


def _require_fit(rows: Sequence[Sequence[int]], new: int, context_length: int) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) + new > context_length:
            with_new = f", and with {new + 1} new ones that" if new else ", which"
            raise UserError(
                f"prompt {number}: takes {len(row)} tokens{with_new} is more than the model's "
                f"context length of {context_length}; shorten it or ask for fewer"
            )
