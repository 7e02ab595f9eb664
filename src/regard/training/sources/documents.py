"""Documents in memory, for the objectives of pretraining, with questions mixed in."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from regard.corpus.index import can_index
from regard.data.batch import Dataset, WeightedDataset
from regard.data.causal import Clozes, Documents, Questions, SpanCorruption
from regard.data.masked import MaskedTokens, mask_all, mask_tokens
from regard.data.windows import TokenStream, Windows
from regard.errors import UserError
from regard.runs.recipe import Recipe
from regard.runs.run import Run, describe_origin
from regard.tasks.examples import Example, Examples, answered_examples, texts_of
from regard.text.clozes import WORDS_BEFORE, Cloze, answers_by_title, relevance
from regard.text.clozes import clozes as find_clozes
from regard.text.corpus import Corpus, Document, read_corpus
from regard.text.tokenizer import (
    OutOfVocabularyError,
    Tokenizer,
    encode_documents,
    train_tokenizer,
)
from regard.training.sources.base import (
    NO_EFFECT,
    Datasets,
    Prepared,
    Source,
    hold_out,
    refuse_settings,
    require_next_token,
    require_no_task,
    require_objective,
)
from regard.training.sources.questions import encode_training

SHORTEST = 5
"""Smallest number of tokens of a text in a row, from which a span can be removed."""


@dataclass(frozen=True)
class DocumentSource(Source):
    """Documents, and questions if the objective has a share for them."""

    corpus: Corpus
    questions: Examples = ()
    index: bool = True
    """Whether the text is indexed for `regard ask`, if pydivsufsort is installed."""
    stage = "pretraining"
    unread = (
        "data.packing",
        "data.table.second",
        "data.table.label",
        "data.table.header",
        "data.table.skip_bad",
        "data.table.test",
    )

    def choose_recipe(
        self, recipe: Recipe | str | None, settings: Sequence[str], start: Run | None
    ) -> Recipe:
        """Return a recipe; a setting of questions raises where there are none."""
        if not self.questions:
            refuse_settings(settings, ("data.ascii_questions",), NO_EFFECT)
        return super().choose_recipe(recipe, settings, start)

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Read the documents; a tokenizer is trained on them and the questions."""
        if recipe.data.documents == "auto":
            raise UserError(
                "data.documents=auto: is for `regard train text`; set lines, files, paragraphs or "
                "records"
            )
        documents = read_corpus(
            self.corpus,
            recipe.data.documents,
            field=recipe.data.table.text or "text",
            blank_lines=recipe.data.blank_lines,
        )
        questions = answered_examples(self.questions) if self.questions else ()
        _check(recipe, questions)
        known = tokenizer or corpus_tokenizer(documents, recipe, questions)
        indexed = documents if self.index and can_index() else ()
        ids = encode_documents(known, documents)
        return Prepared(
            recipe=recipe,
            tokenizer=known,
            origin=describe_origin(self.stage, documents, questions),
            datasets=lambda run: _datasets(run, documents, ids, questions, indexed),
        )


def _check(recipe: Recipe, questions: Sequence[Example]) -> None:
    """Raise unless questions, documents, objective and model fit together.

    Raises:
        UserError: names what to set instead.
    """
    objective = recipe.objective
    if bool(questions) != (objective.questions > 0):
        raise UserError(
            "objective.questions is 0, but questions are given: set objective.questions=0.2, say"
            if questions
            else "objective.questions is above 0, but there are no questions: give --questions FILE"
        )
    require_no_task(recipe)
    require_objective(recipe)
    if recipe.data.documents == "files":
        data = "data.documents=files: files are read in windows,"
        require_next_token(recipe, data, "set data.documents=lines")


def corpus_tokenizer(
    corpus: Sequence[Document], recipe: Recipe, questions: Sequence[Example]
) -> Tokenizer:
    """Train the tokenizer for pretraining on a text, with questions mixed in."""
    texts = [document.text for document in corpus]
    return train_tokenizer(recipe.tokenizer, texts + texts_of(questions))


def _datasets(
    run: Run,
    documents: Sequence[Document],
    ids: Sequence[list[int]],
    questions: Sequence[Example],
    indexed: Sequence[Document],
) -> Datasets:
    if run.recipe.objective.span_corruption and run.row_format.max_tokens < SHORTEST:
        raise UserError(
            f"template.document: leaves {run.row_format.max_tokens} of "
            f"model.context_length={run.row_format.context_length} tokens for the text; shorten "
            "it, or set a larger context_length"
        )
    if run.recipe.data.documents == "files":
        training, held_out = _file_windows(run, documents, ids)
    else:
        kept, others = hold_out(ids, run.recipe)
        texts, _ = hold_out(documents, run.recipe)
        pairs = encode_training(run, questions) if questions else ()
        asked = Questions(pairs, run.row_format.whole_rows)
        training = objective_datasets(run, texts, kept, asked, questions)
        held_out = [one.dataset for one in text_datasets(run, others)]
    if not all(len(one.dataset) for one in training):
        raise UserError(f"{documents[0].where}: is too short to learn from")
    return Datasets(training=training, held_out=held_out, indexed=indexed, questions=questions)


def _file_windows(
    run: Run, documents: Sequence[Document], ids: Sequence[list[int]]
) -> tuple[list[WeightedDataset], list[Dataset]]:
    """Return windows of whole files, and the last share of each, which is held out."""
    share, format = run.recipe.data.validation, run.row_format
    cuts = [len(text) - int(share * len(text)) for text in ids]
    joined = [i for text, cut in zip(ids, cuts, strict=True) for i in text[:cut]]
    held_out = [text[cut:] for text, cut in zip(ids, cuts, strict=True) if len(text) - cut > 1]
    if len(joined) < 2:
        raise UserError(f"{documents[0].where}: is too short to learn from")
    windows = Windows(TokenStream(np.array(joined), np.zeros(1, int)), format)
    return [WeightedDataset(windows)], [Documents(held_out, format)]


def objective_datasets(
    run: Run,
    documents: Sequence[Document],
    ids: Sequence[list[int]],
    questions: Dataset,
    examples: Sequence[Example],
) -> list[WeightedDataset]:
    """Return documents, their clozes and questions, with their shares of the objective.

    `questions` is the dataset made of `examples`.

    Raises:
        UserError: the documents have no clozes.
    """
    objective = run.recipe.objective
    datasets, size = text_datasets(run, ids), objective.question_batch
    if objective.clozes:
        clozes = cloze_dataset(run, documents, examples)
        datasets.append(WeightedDataset(clozes, objective.clozes, size))
    if objective.questions:
        datasets.append(WeightedDataset(questions, objective.questions, size))
    return datasets


def text_datasets(run: Run, ids: Sequence[list[int]]) -> list[WeightedDataset]:
    """Return the datasets made of documents alone, each objective's with its share."""
    objective, format = run.recipe.objective, run.row_format
    n, share, special = format.max_tokens, objective.masking, run.tokenizer.special
    parts = [text[start : start + n] for text in ids for start in range(0, len(text), n)]
    datasets: list[WeightedDataset] = []
    if objective.next_token:
        end = run.template.document.suffix
        affixes = len(format.prefix) + len(end)
        several = [text for text in ids if affixes + len(text) > 1]  # one has nothing to predict
        texts = Documents(several, format, end=end)
        datasets.append(WeightedDataset(texts, objective.next_token))
    if objective.span_corruption:
        corrupted = SpanCorruption(ids, format, mask=special.require("mask"))
        datasets.append(WeightedDataset(corrupted, objective.span_corruption))
    if objective.masked_tokens:
        mask, regular_ids = special.require("mask"), run.tokenizer.regular_ids
        corrupt = partial(mask_tokens, mask=mask, share=share, regular_ids=regular_ids)
        masked = MaskedTokens(parts, format, corrupt)
        datasets.append(WeightedDataset(masked, objective.masked_tokens))
    if objective.masked_autoencoding:
        corrupt = partial(mask_all, mask=special.require("mask"), share=share)
        masked = MaskedTokens(parts, format, corrupt)
        datasets.append(WeightedDataset(masked, objective.masked_autoencoding))
    return datasets


def cloze_dataset(run: Run, corpus: Sequence[Document], questions: Sequence[Example]) -> Clozes:
    """Return all prompts of each cloze, with its completion; relevant clozes are repeated.

    Clozes are left out if they don't fit the context or contain unknown tokens: with words as
    tokens, the vocabulary may have «(Leeds» without «Leeds».

    Raises:
        UserError: there are no clozes, or no question is about a document with a title.
    """
    fewest, most = run.recipe.objective.cloze_words
    encode, template, encoded = run.tokenizer.encode, run.template, []
    context_length = run.recipe.model.context_length
    kept, unk = max(most, WORDS_BEFORE), run.tokenizer.special.unk
    found = [cloze for document in corpus for cloze in find_clozes(document.text, kept)]
    repeated = repetitions(run.recipe.objective.cloze_relevance, found, questions)
    for cloze, times in zip(found, repeated, strict=True):
        words = len(cloze.left)
        shown = range(min(fewest, words), min(most, words) + 1)
        try:
            answer, *asked = map(encode, (cloze.answer, *map(cloze.question, shown)))
        except OutOfVocabularyError:
            continue
        if any(unk in ids for ids in (answer, *asked)):
            continue
        completion = template.completion.around(answer)
        prompts = [template.prompt.around(ids) for ids in asked]
        fitting = [p for p in prompts if len(p) + len(completion) <= context_length + 1]
        if fitting:
            encoded += [(fitting, completion)] * times
    if not encoded:
        raise UserError(
            f"objective.clozes is above 0, but no document, as {corpus[0].where}, yields one: each "
            "must begin with its title and a full stop, as in «Ada Finch. Born in Leeds», and fit "
            f"model.context_length={context_length}; or set objective.clozes=0"
        )
    return Clozes(encoded, run.row_format.whole_rows)


def repetitions(most: float, found: Sequence[Cloze], questions: Sequence[Example]) -> list[int]:
    """Return the occurrences of each cloze in an epoch: 1 + `most` · P(it answers a question).

    Raises:
        UserError: no question is about a document with a title.
    """
    if not most or not found:
        return [1] * len(found)
    asked = [(question.text, question.answer) for question in questions if question.answer]
    answers = answers_by_title({cloze.title for cloze in found}, asked)
    if not answers:
        raise UserError(
            f"objective.cloze_relevance is above 0, but no question, as {questions[0].place}, "
            f"contains the title of a document, such as «{found[0].title}»; ask about titles, or "
            "set objective.cloze_relevance=0"
        )
    return [1 + round(most * p) for p in relevance(found, answers)]
