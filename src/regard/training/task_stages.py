"""Training for a task: its examples, as the model of the recipe reads them."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import msgspec

from regard.errors import UserError
from regard.models.config_heads import (
    ClassesConfig,
    EmbeddingConfig,
    HeadConfig,
    LanguageConfig,
)
from regard.models.families import Classifier, Embedder, LanguageModel, SequenceToSequence
from regard.runs.config_tasks import ProbeConfig, TaskConfig, TextTask
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.catalogue import make_split
from regard.tasks.encoding import encode_answers, encode_joined, encode_texts, text_room
from regard.tasks.probes import probe_rows
from regard.tasks.questions import Question
from regard.text.tokenizer import Tokenizer, numbers, train_tokenizer
from regard.training import sources
from regard.training.sources import Source
from regard.training.stages import Plan, describe_origin, hold_out, plan, texts_of

PROBE_ROWS = 100_000
"""Rows that a probe trains on; each is drawn by itself."""


def plan_task(
    out: Path,
    recipe: Recipe,
    examples: Sequence[Question] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
) -> Plan:
    """Training for the recipe's task, on its own examples where none are given.

    Raises:
        UserError: the recipe has no task, the model can't learn it, an example is unusable, or
            the task makes its own rows.
    """
    task = recipe.task
    if task is None:
        raise UserError("the recipe has no task: set task.kind (`regard tasks` lists them)")
    if isinstance(task, ProbeConfig):
        if examples is not None or tokenizer is not None:
            raise UserError(
                f"task.kind={_kind(task)}: is a probe, which makes its own rows of tokens of its "
                "own; leave files and --tokenizer out"
            )
        return _plan_probe(out, recipe, task)
    _check_head(recipe.head)
    chosen = make_split(task, recipe.seed).training if examples is None else examples
    return _plan_examples(out, recipe, task, chosen, tokenizer)


def _plan_examples(
    out: Path,
    recipe: Recipe,
    task: TextTask,
    examples: Sequence[Question],
    tokenizer: Tokenizer | None,
) -> Plan:
    if not examples:
        raise UserError(f"task.kind={_kind(task)}: there are no examples to train on; give some")
    tokenizer = tokenizer or train_tokenizer(recipe.tokenizer, texts_of(examples))
    recipe = msgspec.structs.replace(recipe, head=_with_labels(recipe.head, examples))
    run = Run.new(out, recipe, tokenizer, describe_origin(_kind(task), (), examples))
    training, held_out = hold_out(examples, recipe)
    checks = [task_source(run, held_out)] if held_out else []
    return plan(run, [task_source(run, training)], checks, recipe.training, "training")


def task_source(run: Run, examples: Sequence[Question]) -> Source:
    """Examples as a run's model is trained on them.

    Raises:
        UserError: an example can't be encoded, or its answer is too long or no label of the model.
        TypeError: the model doesn't answer.
    """
    tokenizer, room = run.tokenizer, run.room
    match run.model:
        case LanguageModel():
            joined = encode_joined(tokenizer, examples, room)
            _tell(joined.cut, len(examples), text_room(room))
            return sources.questions(joined.pairs)
        case SequenceToSequence():
            texts = encode_texts(tokenizer, examples, run.source_room)
            _tell(texts.cut, len(examples), run.source_room)
            answers = encode_answers(tokenizer, examples, room - 1)
            return sources.pairs(list(zip(texts.rows, answers, strict=True)))
        case Classifier():
            texts = encode_texts(tokenizer, examples, room)
            _tell(texts.cut, len(examples), room)
            return sources.labelled(list(zip(texts.rows, label_ids(run, examples), strict=True)))
        case Embedder():
            texts = encode_texts(tokenizer, examples, room)
            documents = encode_texts(tokenizer, _answers_as_texts(examples), room)
            _tell(texts.cut + documents.cut, 2 * len(examples), room)
            return sources.matches(list(zip(texts.rows, documents.rows, strict=True)))
    raise TypeError(f"{type(run.model).__name__} doesn't answer")


def _check_head(head: HeadConfig) -> None:
    """Refuse a head that doesn't answer.

    Raises:
        UserError: says which ones do.
    """
    if not isinstance(head, LanguageConfig | ClassesConfig | EmbeddingConfig):
        kind = head.__struct_config__.tag
        raise UserError(
            f"head.kind={kind}: doesn't answer; choose language, classes for labels, or embedding "
            "for documents"
        )


def label_ids(run: Run, examples: Sequence[Question]) -> list[int]:
    """The number of each example's label.

    Raises:
        UserError: a label isn't among those that the model was made for.
    """
    assert isinstance(run.recipe.head, ClassesConfig)
    labels = run.recipe.head.labels
    for example in examples:
        if example.answer not in labels:
            raise UserError(
                f"{example.where}: the label {example.answer!r} is none of those that the model "
                f"knows: {', '.join(labels)}"
            )
    return [labels.index(example.answer or "") for example in examples]


def _plan_probe(out: Path, recipe: Recipe, task: ProbeConfig) -> Plan:
    """Rows of ids, each of which is a token."""
    if not recipe.continues_texts:
        raise UserError(
            f"task.kind={_kind(task)}: is for a model that can be asked at each position: set "
            "model.kind=decoder, rnn or window, and head.kind=language"
        )
    run = Run.new(out, recipe, numbers(task.vocabulary), describe_origin(_kind(task), (), ()))
    ids, labels = probe_rows(task, run.tokenizer, recipe.seed, PROBE_ROWS)
    if ids.shape[1] > recipe.model.block:
        raise UserError(
            f"task.kind={_kind(task)}: its rows take {ids.shape[1]} tokens, but model.block is "
            f"{recipe.model.block}; ask for a shorter task, or for a larger model.block"
        )
    rows = list(zip(ids, labels, strict=True))
    return plan(run, [sources.given(rows)], [], recipe.training, "training")


def _with_labels(head: HeadConfig, examples: Sequence[Question]) -> HeadConfig:
    """The head with the labels of the examples, where it has none yet."""
    if isinstance(head, ClassesConfig) and not head.labels:
        labels = sorted({example.answer for example in examples if example.answer is not None})
        return msgspec.structs.replace(head, labels=tuple(labels))
    return head


def _kind(task: TaskConfig) -> str:
    return str(task.__struct_config__.tag)


def _answers_as_texts(examples: Sequence[Question]) -> list[Question]:
    return [Question(text=q.answer or "", where=q.where) for q in examples]


def _tell(cut: int, texts: int, room: int) -> None:
    """Say that texts were too long."""
    if cut:
        warnings.warn(
            f"{cut} of {texts} texts don't fit the {room} tokens that the model has room for, and "
            "lose their ends; a larger model.block keeps them",
            stacklevel=2,
        )
