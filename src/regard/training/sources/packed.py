"""Packed corpora, mixed by weights."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from regard.data.batch import Dataset, WeightedDataset
from regard.data.packing import Joined, Mixture, PackedDocuments
from regard.data.windows import VALIDATION_TOKENS
from regard.errors import UserError
from regard.files import fingerprint_of
from regard.models.transformer import Decoder
from regard.runs.recipe import Documents, Recipe
from regard.runs.run import Run, describe_origin
from regard.text.packed import DocumentTokens, PackedCorpus, open_packed, require_intact
from regard.text.tokenizer import Tokenizer
from regard.training.processes import join_processes
from regard.training.sources.base import (
    Datasets,
    Prepared,
    Source,
    refuse_settings,
    require_continuing,
    require_next_token,
    require_no_task,
    require_objective,
)
from regard.training.sources.text import perplexity_record, with_documents

CHOSEN_BY_PACKING = (
    "tokenizer.",
    "data.documents",
    "data.blank_lines",
    "data.validation",
    "data.table.",
)
"""Settings that are fixed when a corpus is packed."""


@dataclass(frozen=True)
class PackedSource(Source):
    """Packed corpora with their weights; those of weight 0 are joined."""

    weights: Mapping[Path, float]
    stage: str
    """Stage of the command: pretraining, or training."""
    usual: Recipe | str
    unread = ("data.ascii_questions",)

    def choose_recipe(
        self, recipe: Recipe | str | None, settings: Sequence[str], start: Run | None
    ) -> Recipe:
        """Return a recipe; settings that are fixed by packing raise."""
        why = f"{next(iter(self.weights))} is packed already; leave it out, or pack again"
        refuse_settings(settings, CHOSEN_BY_PACKING, why)
        return super().choose_recipe(recipe, settings, start)

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Open the corpora; `tokenizer`, if given, must be theirs."""
        require_no_task(recipe)
        if self.stage == "pretraining":
            require_objective(recipe)
        else:
            require_continuing(recipe)
        require_next_token(recipe, "packed corpora are", "pretrain on the text itself")
        corpora = [open_packed(path) for path in self.weights]
        for corpus in corpora:
            join_processes().alone(partial(require_intact, corpus))
        known = packed_tokenizer(corpora, tokenizer)
        return Prepared(
            recipe=with_documents(recipe, _documents(corpora[0])),
            tokenizer=known,
            origin=_origin(self.stage, corpora, self.weights),
            datasets=lambda run: _datasets(run, corpora, self.weights),
        )


def packed_tokenizer(corpora: Sequence[PackedCorpus], known: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer of packed corpora; `known`, if given, must be equal.

    Raises:
        UserError: tokenizers differ.
    """
    first = corpora[0]
    for corpus in corpora[1:]:
        if corpus.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise UserError(
                f"{corpus.path}: was packed with another tokenizer than {first.path}; pack it with "
                f"--tokenizer {first.path}"
            )
    if known and known.fingerprint != first.tokenizer.fingerprint:
        raise UserError(
            f"{first.path}: was packed with another tokenizer than the one given; pack the corpus "
            "with that, or leave it out"
        )
    return first.tokenizer


def _datasets(run: Run, corpora: Sequence[PackedCorpus], weights: Mapping[Path, float]) -> Datasets:
    """Return rows of the corpora, mixed by weights.

    Raises:
        UserError: a corpus has nothing to learn from, or the model doesn't support packing.
    """
    packing = run.recipe.data.packing
    if packing:
        _require_packing(run)

    def rows(documents: DocumentTokens) -> PackedDocuments:
        return documents.rows(run.template, run.row_format, packing=packing)

    training = [rows(corpus.training) for corpus in corpora]
    for corpus, made in zip(corpora, training, strict=True):
        if not len(made):
            raise UserError(f"{corpus.path}: has no document of two tokens to learn from")
    held_out = [rows(corpus.validation) for corpus in corpora]
    mixed: Dataset = training[0]
    if len(training) > 1:
        shares = list(weights.values())
        mixed = Mixture(training, shares) if all(shares) else Joined(training)
    return Datasets(
        training=[WeightedDataset(mixed)],
        held_out=[made.spread(VALIDATION_TOKENS // len(corpora)) for made in held_out if len(made)],
        facts=_facts(corpora, weights),
        at_checkpoint=perplexity_record,
    )


def _documents(corpus: PackedCorpus) -> Documents:
    """Return the kind of documents for the recipe; whole files, read in windows, are records."""
    kind = corpus.header.spec.documents
    return "records" if kind == "files" else cast("Documents", kind)


def _require_packing(run: Run) -> None:
    body = run.model.body
    if not isinstance(body, Decoder):
        kind = run.recipe.model.__struct_config__.tag
        raise UserError(
            f"data.packing=true: model.kind={kind} has no document masks; set data.packing=false"
        )
    try:
        body.require_documents()
    except UserError as error:
        raise type(error)(f"data.packing=true: {error}; or set data.packing=false") from None


def _origin(
    stage: str, corpora: Sequence[PackedCorpus], weights: Mapping[Path, float]
) -> dict[str, Any]:
    """Return how a run is made; its fingerprint depends on the order and weights of the corpora."""
    made_of = [[corpus.header.fingerprint, weights[corpus.path]] for corpus in corpora]
    sizes = [corpus.header.sizes for corpus in corpora]
    return describe_origin(stage, (), ()) | {
        "inputs": [str(corpus.path.resolve()) for corpus in corpora],
        "packed": [corpus.header.fingerprint for corpus in corpora],
        "fingerprint": fingerprint_of(json.dumps(made_of).encode()),
        "documents": sum(size.training.documents + size.validation.documents for size in sizes),
    }


def _facts(corpora: Sequence[PackedCorpus], weights: Mapping[Path, float]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if len(corpora) > 1:
        facts["mixture"] = ", ".join(
            corpus.path.resolve().name
            + (f"={weights[corpus.path]:g}" if weights[corpus.path] else "")
            for corpus in corpora
        )
    for name in ("training", "validation"):
        sizes = [getattr(corpus.header.sizes, name) for corpus in corpora]
        facts[f"{name}_documents"] = sum(size.documents for size in sizes)
        facts[f"{name}_tokens"] = sum(size.tokens for size in sizes)
    return facts
