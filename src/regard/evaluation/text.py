"""How well a run predicts a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
import torch.nn.functional as F

from regard.errors import UserError
from regard.metrics import Interval, perplexity
from regard.runs.machine import Machine
from regard.runs.run import Run
from regard.text.batches import make_batch
from regard.text.corpus import Document
from regard.text.objectives import IGNORE, begin, continuation, next_token, pieces
from regard.text.tokenizer import encode_documents


@dataclass(frozen=True, kw_only=True)
class TextScore:
    """How well a text is predicted."""

    perplexity: Interval
    """exp of the mean loss a token; the interval is over documents (or their pieces)."""
    bits_per_character: float
    tokens: int


@torch.inference_mode()
def text_perplexity(
    run: Run, documents: Sequence[Document], machine: Machine, *, batch: int = 64
) -> TextScore:
    """Score documents, long ones in pieces of a block that are read independently.

    Raises:
        UserError: a document can't be encoded, or there is nothing to predict.
    """
    block = run.recipe.model.block
    lines = run.recipe.data.documents == "lines"
    examples = [
        begin(run.prefix, next_token(piece, run.room) if lines else continuation(piece))
        for ids in encode_documents(run.tokenizer, documents)
        for piece in pieces(ids, run.room)
    ]
    losses: list[float] = []
    counts: list[int] = []
    for start in range(0, len(examples), batch):
        rows = make_batch(examples[start : start + batch], block).to(machine.device)
        with machine.autocast():
            logits = run.language_model(rows.ids)
        loss = F.cross_entropy(
            logits.float().mT, rows.labels, ignore_index=IGNORE, reduction="none"
        )
        losses += loss.sum(1).tolist()
        counts += (rows.labels != IGNORE).sum(1).tolist()
    if not sum(counts):
        raise UserError(f"{documents[0].where}: is too short to be scored")
    characters = sum(len(document.text) for document in documents)
    return TextScore(
        perplexity=perplexity(losses, counts),
        bits_per_character=sum(losses) / log(2) / characters,
        tokens=sum(counts),
    )
