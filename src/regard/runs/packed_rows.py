"""Packed corpora as rows of a run: those to train on, and those that it was trained on."""

from pathlib import Path

from regard.data.packing import PackedDocuments
from regard.errors import UserError
from regard.runs.run import Run
from regard.text.packed import DocumentTokens, PackedCorpus, is_packed, open_packed


def packed_rows(run: Run, documents: DocumentTokens, *, packing: bool) -> PackedDocuments:
    """Return the rows of documents, each with the affixes of the run's template around it."""
    around = run.template.document
    return PackedDocuments(
        documents.ids,
        documents.starts,
        run.row_format.whole_rows,
        packing=packing,
        prefix=around.prefix,
        suffix=around.suffix,
        vocabulary=documents.vocabulary,
        path=documents.path,
    )


def is_trained_on_packed(run: Run) -> bool:
    """Return whether a run was trained on packed corpora."""
    return "packed" in run.origin


def training_corpora(run: Run) -> list[PackedCorpus]:
    """Open the packed corpora that a run was trained on; none for other runs.

    Raises:
        UserError: one is missing or damaged, or has changed since.
    """
    if not is_trained_on_packed(run):
        return []
    found = []
    for name, fingerprint in zip(run.origin["inputs"], run.origin["packed"], strict=True):
        path = Path(name)
        if not is_packed(path):
            raise UserError(
                f"{path}: is no packed corpus any more, but {run.path} was trained on it; name a "
                "text or packed corpus to score"
            )
        corpus = open_packed(path)
        if corpus.header.fingerprint != fingerprint:
            raise UserError(
                f"{path}: has changed since {run.path} was trained on it; name a text or packed "
                "corpus to score"
            )
        found.append(corpus)
    return found
