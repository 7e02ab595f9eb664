"""Perplexity of a text under a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from regard.data import IGNORE
from regard.data.batch import Dataset, evaluation_batches
from regard.data.causal import Documents
from regard.data.windows import VALIDATION_TOKENS, HeldOutWindows
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.metrics import Interval, perplexity
from regard.runs.run import Run
from regard.runs.training_text import TOKENS, training_corpora
from regard.text.corpus import Document, detect_documents, read_corpus
from regard.text.files import find_files, inspect_all
from regard.text.packed import PackedCorpus, open_packed
from regard.text.tokenizer import encode_documents

BATCH = 64
"""Largest number of rows that the model reads together."""
NOTHING_DRAWN = np.random.default_rng(0)
"""Generator for datasets whose examples have no random parts."""


@dataclass(frozen=True, kw_only=True)
class TextScore:
    """Perplexity of a text."""

    perplexity: Interval
    """exp of the mean loss per token; bootstrap interval over documents (or their pieces)."""
    bits_per_character: float
    tokens: int
    in_training: bool | None = None
    """Whether the text was in training; None if unknown."""

    def lines(self) -> list[str]:
        """Return the scores as text."""
        origin = {
            None: "",
            True: "; this text is the training text",
            False: ", held out of training",
        }
        return [
            f"perplexity: {self.perplexity} a token",
            f"bits per character: {self.bits_per_character:.3f}",
            f"tokens: {self.tokens:,}{origin[self.in_training]}",
        ]

    def figures(self) -> dict[str, Any]:
        """Return the scores for a JSON file."""
        return {
            "perplexity": self.perplexity.value,
            "low": self.perplexity.low,
            "high": self.perplexity.high,
            "bits_per_character": self.bits_per_character,
            "tokens": self.tokens,
            **({} if self.in_training is None else {"in_training": self.in_training}),
        }

    @property
    def answered(self) -> list[str]:
        """A text has no answers."""
        return []


def read_texts(run: Run, path: Path) -> list[Document]:
    """Return the documents of a file or folder, read as the text that the run was trained on.

    Raises:
        UserError: a file can't be read.
    """
    data = run.recipe.data
    documents: str = data.documents
    if run.is_trained_on_packed and documents == "records":  # or of files of any kind
        documents = detect_documents(inspect_all(find_files([path])))
    return read_corpus([path], documents, field=data.table.text or "text")


def text_perplexity(
    run: Run, documents: Sequence[Document], environment: ExecutionEnvironment
) -> TextScore:
    """Score documents, long ones in pieces of the context length that are read independently.

    Raises:
        UserError: a document can't be encoded, or there is nothing to predict.
    """
    texts = text_dataset(run, documents)
    losses, counts = _losses(run, texts, environment)
    characters = sum(len(document.text) for document in documents)
    if not run.row_format.prefix:  # the first token of each document is read, but not predicted
        begun = zip(texts.rows, texts.begins, strict=True)
        characters -= sum(_count_characters(run, ids[:1]) for ids, begins in begun if begins)
    if not sum(counts) or not characters:
        raise UserError(f"{documents[0].where}: is too short to be scored")
    return _score(losses, counts, characters)


def text_dataset(run: Run, documents: Sequence[Document]) -> Documents:
    """Return documents as a run reads them, in pieces of the context length.

    Raises:
        UserError: a document can't be encoded.
    """
    end = run.template.document.suffix if run.recipe.data.documents != "files" else ()
    return Documents(encode_documents(run.tokenizer, documents), run.row_format, end=end)


def held_out_perplexity(
    run: Run, environment: ExecutionEnvironment, *, tokens: Path | None = None
) -> TextScore | None:
    """Score the held-out tokens of a run of `train text`, if any, in evenly spaced windows.

    Windows begin at any token, and are read independently. `tokens` is their folder (default: that
    of the run). A run trained on packed corpora is scored on their held-out documents.

    Raises:
        UserError: a packed corpus is missing, damaged, or has changed; or the tokens are missing.
    """
    if corpora := training_corpora(run):
        return packed_perplexity(run, corpora, environment)
    path = tokens or run.path / TOKENS
    if not path.is_dir():
        if run.origin.get("stage") == "training" and run.origin.get("inputs"):
            raise UserError(f"{path}: is missing; restore it from a copy, or name a file to score")
        return None
    _, held_out = open_packed(path).streams(run.template, run.recipe.data.validation)
    windows = HeldOutWindows(held_out, run.row_format.whole_rows)
    if not len(windows):
        return None
    losses, counts = _losses(run, windows, environment)
    rows = (windows.example(index, NOTHING_DRAWN) for index in range(len(windows)))
    characters = sum(_count_characters(run, row[1:].tolist()) for row in rows)
    return _score(losses, counts, characters)


def packed_perplexity(
    run: Run, corpora: Sequence[PackedCorpus], environment: ExecutionEnvironment
) -> TextScore | None:
    """Score the held-out documents of packed corpora, if any; if many, evenly spaced parts.

    Raises:
        UserError: a corpus is of another tokenizer.
    """
    losses: list[float] = []
    counts: list[int] = []
    characters = 0
    for corpus in corpora:
        if corpus.tokenizer.fingerprint != run.tokenizer.fingerprint:
            raise UserError(
                f"{corpus.path}: was packed with another tokenizer than that of {run.path}; pack "
                f"it with --tokenizer {run.path}"
            )
        rows = corpus.validation.rows(run.template, run.row_format, packing=False)
        rows = rows.spread(VALIDATION_TOKENS // len(corpora))
        if len(rows):
            found = _losses(run, rows, environment)
            losses, counts = losses + found[0], counts + found[1]
            parts = (part for i in range(len(rows)) for part in rows.example(i, NOTHING_DRAWN))
            characters += sum(_count_characters(run, part.labels.tolist()) for part in parts)
    return _score(losses, counts, characters) if sum(counts) else None


def _score(losses: Sequence[float], counts: Sequence[int], characters: int) -> TextScore:
    """Return the score of rows, given the summed loss and the number of targets of each.

    Raises:
        UserError: the perplexity is above the largest float.
    """
    scored = [row for row in zip(losses, counts, strict=True) if row[1]]
    try:
        found = perplexity(*zip(*scored, strict=True))
    except OverflowError:
        raise UserError(
            f"the loss is {sum(losses) / sum(counts):.4g} nats a token, too high for a perplexity: "
            "the run has diverged; train with a lower training.lr"
        ) from None
    return TextScore(
        perplexity=found,
        bits_per_character=sum(losses) / log(2) / characters,
        tokens=sum(counts),
    )


def _count_characters(run: Run, ids: Sequence[int]) -> int:
    """Return the number of characters of ids; special tokens between documents have none."""
    between = run.tokenizer.special.ids.intersection(run.template.separator) | {IGNORE}
    return len(run.tokenizer.decode([i for i in ids if i not in between]))


@torch.inference_mode()
def _losses(
    run: Run, texts: Dataset, environment: ExecutionEnvironment
) -> tuple[list[float], list[int]]:
    """Return the summed loss of each row, in nats, and its number of targets."""
    losses: list[float] = []
    counts: list[int] = []
    for rows in evaluation_batches(texts.lengths().tolist(), BATCH):
        examples = [texts.example(i, NOTHING_DRAWN) for i in range(rows.start, rows.stop)]
        batch = texts.collate(examples).to(environment.device)
        with environment.autocast():
            lengths = batch.inputs["input_ids"].lengths
            found = run.language_model.target_logits(batch.input_ids, batch.labels, lengths)
            parts = [F.cross_entropy(scores, i, reduction="none") for i, scores in found]
        of_rows = (batch.labels != IGNORE).sum(1).tolist()
        losses += [float(row.sum()) for row in torch.cat(parts).cpu().split(of_rows)]
        counts += of_rows
    return losses, counts
