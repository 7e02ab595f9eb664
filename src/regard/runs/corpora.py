"""Packed corpora as a run reads them: rows of documents, streams; and those it was trained on."""

from pathlib import Path

from regard.data.packing import PackedDocuments
from regard.data.windows import TokenStream
from regard.errors import UserError
from regard.runs.run import Run
from regard.text.packed import DocumentTokens, PackedCorpus, Splits, is_packed, open_packed
from regard.text.template import Template

TOKENS = "tokens"
"""Folder of a run with the packed text that it was trained on."""


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


def text_streams(run: Run, text: Splits) -> tuple[TokenStream, TokenStream]:
    """Return the streams of a text to train on and to validate with.

    The end of the text is held out where there are too few documents to hold out one.
    """
    separator = separator_of(run.template)
    training, validation = (
        TokenStream(part.ids, part.starts, separator) for part in (text.training, text.validation)
    )
    share = run.recipe.data.validation
    if share and not len(validation):
        return training.split(len(training) - int(share * len(training)))
    return training, validation


def separator_of(template: Template) -> list[int]:
    """Return the ids between two documents: the end of one and the beginning of the other."""
    before, behind = template.document.prefix, template.document.suffix
    return [*behind] if before == behind else [*behind, *before]


def training_corpora(run: Run) -> list[PackedCorpus]:
    """Open the packed corpora that a run was trained on; none for other runs.

    Raises:
        UserError: one is missing or damaged, or has changed since.
    """
    if not run.is_trained_on_packed:
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
