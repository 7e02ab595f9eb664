"""Plans of training for a task: its examples, as the model of the recipe reads them."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from jaxtyping import Int

from regard.data import IGNORE
from regard.data.batch import Dataset, RowFormat, WeightedDataset
from regard.data.causal import Questions
from regard.data.supervised import (
    ContrastivePairs,
    LabeledTexts,
    LabeledTokens,
    SequencePairs,
)
from regard.errors import UserError
from regard.models.builders import (
    Classifier,
    Embedder,
    LanguageModel,
    SequenceToSequence,
    TokenClassifier,
)
from regard.models.config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    ReconstructionHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.runs.recipe import Recipe, require_objective
from regard.runs.run import Run, describe_origin
from regard.runs.start import begin_with
from regard.tasks.encoding import (
    encode_answers,
    encode_joined,
    encode_texts,
    encode_words,
    max_prompt_length,
)
from regard.tasks.examples import Example, texts_of
from regard.tasks.mad import CompressionConfig
from regard.tasks.probes import ProbeConfig, as_tokens, draw_probe, draw_probe_test
from regard.tasks.registry import (
    TaskConfig,
    TextTask,
    check_examples,
)
from regard.tasks.tagging import TaggingConfig, tags_of
from regard.text.corpus import Document
from regard.text.tokenizer import (
    Tokenizer,
    encode_documents,
    number_tokenizer,
    train_tokenizer,
)
from regard.training.objectives import objective_datasets
from regard.training.plan import Plan, hold_out, make_plan

Rows: TypeAlias = Int[np.ndarray, "rows length"]

PROBE_ROWS = 100_000
"""Rows that a probe trains on; each is drawn by itself."""

SHOWN_LABELS = 20


def plan_task(
    out: Path,
    recipe: Recipe,
    examples: Sequence[Example] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    start: Run | None = None,
) -> Plan:
    """Plan training for the recipe's task, by default on the task's own examples.

    `start` is a run with this body, whose weights and tokenizer are used.

    Raises:
        UserError: the recipe has no task, the model can't learn it, an example is unusable, or
            the task makes its own rows.
    """
    task = recipe.task
    if task is None:
        raise UserError("the recipe has no task: set task.kind (`regard tasks` lists them)")
    if isinstance(task, ProbeConfig):
        if examples is not None or tokenizer is not None or start is not None:
            raise UserError(
                f"task.kind={_kind(task)}: is a probe, which makes its own rows of tokens of its "
                "own; leave files, --tokenizer and --from out"
            )
        check_model(recipe, task)
        return _plan_probe(out, recipe, task)
    check_model(recipe, task)
    documents = task.documents() if examples is None else ()
    chosen = task.make(recipe.seed).training if examples is None else examples
    return _plan_examples(out, recipe, task, chosen, documents, tokenizer, start)


def _plan_examples(
    out: Path,
    recipe: Recipe,
    task: TextTask,
    examples: Sequence[Example],
    documents: Sequence[Document],
    tokenizer: Tokenizer | None,
    start: Run | None,
) -> Plan:
    if not examples:
        raise UserError(f"task.kind={_kind(task)}: there are no examples to train on; give some")
    check_examples(task, examples)
    known = start.tokenizer if start else tokenizer
    texts = [document.text for document in documents] + _read_or_written(recipe, examples)
    tokenizer = known or train_tokenizer(recipe.tokenizer, texts)
    recipe = msgspec.structs.replace(recipe, head=_with_labels(recipe.head, examples))
    run = Run.new(out, recipe, tokenizer, describe_origin(_kind(task), documents, examples))
    if start:
        begin_with(start, run)
    training, held_out = hold_out(examples, recipe)
    checks = [task_dataset(run, held_out)] if held_out else []
    questions = task_dataset(run, training)
    datasets = [WeightedDataset(questions)]
    if documents:
        ids = encode_documents(tokenizer, documents)
        datasets = objective_datasets(run, documents, ids, questions)
    return make_plan(run, datasets, checks, recipe.training, "training")


def task_dataset(run: Run, examples: Sequence[Example]) -> Dataset:
    """Return examples as a run's model is trained on them.

    Raises:
        UserError: an example can't be encoded, or its answer is too long or no label of the model.
        TypeError: the model doesn't answer.
    """
    template, longest = run.template, run.recipe.max_source_tokens
    affixes, format = run.text_affixes, run.row_format.whole_rows
    match run.model:
        case LanguageModel():
            joined = encode_joined(template, examples, longest)
            _warn_truncated(joined.cut, len(examples), max_prompt_length(longest, template))
            return Questions(joined.pairs, format)
        case SequenceToSequence():
            texts = encode_texts(template, affixes, examples, longest)
            _warn_truncated(texts.cut, len(examples), longest)
            max_tokens = run.recipe.model.context_length - len(template.target)
            answers = encode_answers(run.tokenizer, examples, max_tokens)
            start = run.tokenizer.special.require("decoder_start_id")
            targets = [[start, *template.target.around(answer)] for answer in answers]
            pairs = list(zip(texts.rows, targets, strict=True))
            return SequencePairs(pairs, format, max_source_tokens=longest)
        case Classifier():
            texts = encode_texts(template, affixes, examples, longest)
            _warn_truncated(texts.cut, len(examples), longest)
            labels = label_ids(run, examples)
            types = [texts.marks] if run.recipe.uses_token_types else []
            return LabeledTexts(list(zip(texts.rows, *types, labels, strict=True)), format)
        case TokenClassifier():
            words = encode_words(template, affixes, examples, longest)
            _warn_truncated(words.cut, len(examples), longest)
            asked = zip(examples, words.rows, words.marks, strict=True)
            tagged = [(row, _tag_row(run, e, row, ends)) for e, row, ends in asked]
            return LabeledTokens(tagged, format)
        case Embedder():
            texts = encode_texts(template, affixes, examples, longest)
            documents = encode_texts(template, affixes, _answers_as_texts(examples), longest)
            _warn_truncated(texts.cut + documents.cut, 2 * len(examples), longest)
            return ContrastivePairs(list(zip(texts.rows, documents.rows, strict=True)), format)
    raise TypeError(f"{type(run.model).__name__} doesn't answer")


def _check_head(task: TextTask, head: HeadConfig) -> None:
    """Raise unless the head answers."""
    kind = head.__struct_config__.tag
    if isinstance(task, TaggingConfig):
        if not isinstance(head, LMHeadConfig | TokenClassificationHeadConfig):
            raise UserError(
                f"head.kind={kind}: doesn't answer with tags; choose token-classification, or lm"
            )
    elif not isinstance(head, LMHeadConfig | ClassificationHeadConfig | EmbeddingHeadConfig):
        raise UserError(
            f"head.kind={kind}: doesn't answer; choose lm, classification for labels, or embedding "
            "for documents"
        )


def _read_or_written(recipe: Recipe, examples: Sequence[Example]) -> list[str]:
    """The texts that a tokenizer is for; tags that aren't written would only take up its ids."""
    if isinstance(recipe.head, TokenClassificationHeadConfig):
        return [example.text for example in examples]
    return texts_of(examples)


def label_ids(run: Run, examples: Sequence[Example]) -> list[int]:
    """The number of each example's label.

    Raises:
        UserError: a label isn't among those that the model was made for.
    """
    assert isinstance(run.recipe.head, ClassificationHeadConfig)
    numbers = _numbers(run.recipe.head.labels)
    return [_number(example.answer or "", numbers, example.where) for example in examples]


def _tag_row(run: Run, example: Example, row: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The number of each word's tag at its last token; nothing is asked at other tokens.

    Raises:
        UserError: a tag isn't among those that the model was made for.
    """
    assert isinstance(run.recipe.head, TokenClassificationHeadConfig)
    numbers = _numbers(run.recipe.head.labels)
    labels = [IGNORE] * len(row)
    for place, tag in zip(ends, tags_of(example), strict=False):
        labels[place] = _number(tag, numbers, example.where)
    return labels


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels)}


def _number(label: str, numbers: Mapping[str, int], where: str) -> int:
    if label not in numbers:
        shown = ", ".join(list(numbers)[:SHOWN_LABELS])
        more = f" and {len(numbers) - SHOWN_LABELS} more" if len(numbers) > SHOWN_LABELS else ""
        raise UserError(
            f"{where}: the label {label!r} is none of those that the model knows: {shown}{more}"
        )
    return numbers[label]


def check_model(recipe: Recipe, task: TaskConfig) -> None:
    """Raise unless a recipe's kind of model can learn a task, and reads rows of its length.

    Raises:
        UserError: names what to set instead.
    """
    if not isinstance(task, ProbeConfig):
        _check_head(task, recipe.head)
        if task.documents():
            require_objective(recipe)
        return
    if isinstance(task, CompressionConfig):
        if not isinstance(recipe.head, ReconstructionHeadConfig):
            raise UserError(
                "task.kind=compression: is for one hidden state: set head.kind=reconstruction"
            )
    elif not recipe.continues_texts:
        raise UserError(
            f"task.kind={_kind(task)}: is for a model that can be asked at each position: set "
            "model.kind=decoder, rnn or fixed-window, and head.kind=lm"
        )
    rows = draw_probe(task, recipe.seed, 1), draw_probe_test(task, recipe.seed, 1)
    longest = max(ids.shape[1] for ids, _ in rows)
    if longest > recipe.model.context_length:
        raise UserError(
            f"task.kind={_kind(task)}: its rows take {longest} tokens, but "
            f"model.context_length is {recipe.model.context_length}; ask for a shorter task, or "
            "for a larger model.context_length"
        )


def _plan_probe(out: Path, recipe: Recipe, task: ProbeConfig) -> Plan:
    """Rows of ids, each of which is a token."""
    run = Run.new(
        out, recipe, number_tokenizer(task.vocabulary), describe_origin(_kind(task), (), ())
    )
    ids, labels = as_tokens(draw_probe(task, recipe.seed, PROBE_ROWS), run.tokenizer)
    return plan_labeled_rows(run, ids, labels, "training")


def plan_labeled_rows(run: Run, ids: Rows, labels: Rows, title: str) -> Plan:
    """Plan training on rows of one length that have a label at each position; none is held out."""
    format = RowFormat(ids.shape[1], run.tokenizer.special.padding)
    dataset = LabeledTokens(list(zip(ids, labels, strict=True)), format)
    return make_plan(run, [WeightedDataset(dataset)], [], run.recipe.training, title)


def _with_labels(head: HeadConfig, examples: Sequence[Example]) -> HeadConfig:
    """The head with the labels of the examples, where it has none yet."""
    match head:
        case ClassificationHeadConfig(labels=()):
            labels = {example.answer for example in examples if example.answer is not None}
        case TokenClassificationHeadConfig(labels=()):
            labels = {tag for example in examples for tag in tags_of(example)}
        case _:
            return head
    return msgspec.structs.replace(head, labels=tuple(sorted(labels)))


def _kind(task: TaskConfig) -> str:
    return str(task.__struct_config__.tag)


def _answers_as_texts(examples: Sequence[Example]) -> list[Example]:
    return [Example(text=q.answer or "", where=q.where) for q in examples]


def _warn_truncated(cut: int, texts: int, max_tokens: int) -> None:
    """Warn that texts were too long."""
    if cut:
        warnings.warn(
            f"{cut} of {texts} texts don't fit the model's {max_tokens} tokens and "
            "lose their ends; a larger model.context_length keeps them",
            stacklevel=2,
        )
