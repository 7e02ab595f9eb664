"""Datasets of the pretraining objectives, each with its share of the batches."""

from collections.abc import Sequence

from regard.data.batch import Dataset, WeightedDataset
from regard.data.causal import Documents, SpanCorruption
from regard.data.masked import MaskedAutoencoding, MaskedTokens
from regard.runs.run import Run
from regard.text.corpus import Document
from regard.training.clozes import cloze_dataset


def objective_datasets(
    run: Run, documents: Sequence[Document], ids: Sequence[list[int]], questions: Dataset
) -> list[WeightedDataset]:
    """Return documents, their clozes and questions, with their shares of the objective.

    Raises:
        UserError: the documents have no clozes.
    """
    objective = run.recipe.objective
    datasets, size = text_datasets(run, ids), objective.question_batch
    if objective.clozes:
        clozes = cloze_dataset(run, documents)
        datasets.append(WeightedDataset(clozes, objective.clozes, size))
    if objective.questions:
        datasets.append(WeightedDataset(questions, objective.questions, size))
    return datasets


def text_datasets(run: Run, ids: Sequence[list[int]]) -> list[WeightedDataset]:
    """Return what is made of documents alone, each objective with its share."""
    objective, format = run.recipe.objective, run.row_format
    n, share, special = format.max_tokens, objective.masking, run.tokenizer.special
    parts = [text[start : start + n] for text in ids for start in range(0, len(text), n)]
    datasets: list[WeightedDataset] = []
    if objective.next_token:
        texts = Documents(ids, format, end=run.template.document.suffix)
        datasets.append(WeightedDataset(texts, objective.next_token))
    if objective.span_corruption:
        corrupted = SpanCorruption(ids, format, mask=special.require("mask"))
        datasets.append(WeightedDataset(corrupted, objective.span_corruption))
    if objective.masked_tokens:
        mask, regular_ids = special.require("mask"), run.tokenizer.regular_ids
        masked = MaskedTokens(parts, format, mask=mask, share=share, regular_ids=regular_ids)
        datasets.append(WeightedDataset(masked, objective.masked_tokens))
    if objective.masked_autoencoding:
        masked = MaskedAutoencoding(parts, format, mask=special.require("mask"), share=share)
        datasets.append(WeightedDataset(masked, objective.masked_autoencoding))
    return datasets
