"""The loss of a batch, summed over its targets, by what kind of batch it is."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models.builders import Model
from regard.text.batches import (
    Batch,
    LabelBatch,
    MaskedBatch,
    MatchBatch,
    PairBatch,
    TextBatch,
    padded_size,
)
from regard.text.objectives import IGNORE

Body: TypeAlias = Callable[..., Tensor]
"""A batch's inputs to hidden states: a model's body, or a compiled form of it."""


def summed_loss(model: Model, batch: Batch, body: Body | None = None) -> Tensor:
    """Cross entropy in nats, summed over the targets.

    Raises:
        TypeError: the batch is of no kind that is known.
    """
    body, head = model.body if body is None else body, model.head
    match batch:
        case TextBatch() | MaskedBatch() | PairBatch():
            return _token_loss(body, head, batch)
        case LabelBatch(lengths=lengths, labels=labels):
            return _cross_entropy(head(body(*batch.inputs), lengths), labels)
        case MatchBatch():
            return _contrastive_loss(body, head, batch)
    raise TypeError(f"{type(batch).__name__} has no loss")


def _token_loss(body: Body, head: Any, batch: TextBatch | MaskedBatch | PairBatch) -> Tensor:
    """Only the positions that carry loss are scored, and others that fill up their number."""
    hidden, labels = body(*batch.inputs).flatten(0, 1), batch.labels.flatten()
    scored = (labels == IGNORE).argsort(stable=True)[: padded_size(batch.n_targets)]
    return _cross_entropy(head(hidden[scored]), labels[scored])


def _contrastive_loss(body: Body, head: Any, batch: MatchBatch) -> Tensor:
    """Each question's own document against those of the batch (van den Oord et al., 2018, eq. 4).

    A document that answers two questions of the batch is no wrong answer to either.
    """
    questions = head(body(batch.questions, batch.question_lengths), batch.question_lengths)
    documents = head(body(batch.documents, batch.document_lengths), batch.document_lengths)
    same = (batch.documents[:, None] == batch.documents[None]).all(-1)
    others = same & ~torch.eye(len(same), dtype=torch.bool, device=same.device)
    scores = (questions @ documents.mT / head.temperature).masked_fill(others, float("-inf"))
    return _cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    at_least_float = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(at_least_float)
    return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
