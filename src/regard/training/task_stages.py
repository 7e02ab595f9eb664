"""Training for a task: its examples, as the model of the recipe reads them."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import msgspec

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
    TokenClassificationHeadConfig,
)
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.encoding import (
    encode_answers,
    encode_joined,
    encode_texts,
    encode_words,
    text_room,
)
from regard.tasks.examples import Example
from regard.tasks.probes import ProbeConfig, probe_rows
from regard.tasks.registry import TaskConfig, TextTask, check_examples, make_split
from regard.tasks.tagging import TaggingConfig, tags_of
from regard.text.objectives import IGNORE
from regard.text.tokenizer import Tokenizer, numbers, train_tokenizer
from regard.training import sources
from regard.training.sources import Source
from regard.training.stages import Plan, describe_origin, hold_out, plan, texts_of

PROBE_ROWS = 100_000
"""Rows that a probe trains on; each is drawn by itself."""


def plan_task(
    out: Path,
    recipe: Recipe,
    examples: Sequence[Example] | None = None,
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
    _check_head(task, recipe.head)
    chosen = make_split(task, recipe.seed).training if examples is None else examples
    return _plan_examples(out, recipe, task, chosen, tokenizer)


def _plan_examples(
    out: Path,
    recipe: Recipe,
    task: TextTask,
    examples: Sequence[Example],
    tokenizer: Tokenizer | None,
) -> Plan:
    if not examples:
        raise UserError(f"task.kind={_kind(task)}: there are no examples to train on; give some")
    check_examples(task, examples)
    tokenizer = tokenizer or train_tokenizer(recipe.tokenizer, _read_or_written(recipe, examples))
    recipe = msgspec.structs.replace(recipe, head=_with_labels(recipe.head, examples))
    run = Run.new(out, recipe, tokenizer, describe_origin(_kind(task), (), examples))
    training, held_out = hold_out(examples, recipe)
    checks = [task_source(run, held_out)] if held_out else []
    return plan(run, [task_source(run, training)], checks, recipe.training, "training")


def task_source(run: Run, examples: Sequence[Example]) -> Source:
    """Examples as a run's model is trained on them.

    Raises:
        UserError: an example can't be encoded, or its answer is too long or no label of the model.
        TypeError: the model doesn't answer.
    """
    tokenizer, room = run.tokenizer, run.max_prompt_tokens
    match run.model:
        case LanguageModel():
            joined = encode_joined(tokenizer, examples, room)
            _tell(joined.cut, len(examples), text_room(room))
            return sources.questions(joined.pairs)
        case SequenceToSequence():
            texts = encode_texts(tokenizer, examples, run.max_source_tokens)
            _tell(texts.cut, len(examples), run.max_source_tokens)
            answers = encode_answers(tokenizer, examples, room - 1)
            return sources.pairs(list(zip(texts.rows, answers, strict=True)), run.max_source_tokens)
        case Classifier():
            texts = encode_texts(tokenizer, examples, room)
            _tell(texts.cut, len(examples), room)
            labels = label_ids(run, examples)
            if run.recipe.uses_token_types:
                return sources.segmented(list(zip(texts.rows, texts.segments, labels, strict=True)))
            return sources.labeled(list(zip(texts.rows, labels, strict=True)))
        case TokenClassifier():
            words = encode_words(tokenizer, examples, room)
            _tell(words.cut, len(examples), room)
            asked = zip(examples, words.rows, words.ends, strict=True)
            return sources.tagged([(row, _tag_row(run, e, row, ends)) for e, row, ends in asked])
        case Embedder():
            texts = encode_texts(tokenizer, examples, room)
            documents = encode_texts(tokenizer, _answers_as_texts(examples), room)
            _tell(texts.cut + documents.cut, 2 * len(examples), room)
            return sources.matches(list(zip(texts.rows, documents.rows, strict=True)))
    raise TypeError(f"{type(run.model).__name__} doesn't answer")


def _check_head(task: TextTask, head: HeadConfig) -> None:
    """Refuse a head that doesn't answer.

    Raises:
        UserError: says which ones do.
    """
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
    """The texts that a tokenizer is for; tags that aren't written would only take its room."""
    if isinstance(recipe.head, TokenClassificationHeadConfig):
        return [example.text for example in examples]
    return texts_of(examples)


def label_ids(run: Run, examples: Sequence[Example]) -> list[int]:
    """The number of each example's label.

    Raises:
        UserError: a label isn't among those that the model was made for.
    """
    assert isinstance(run.recipe.head, ClassificationHeadConfig)
    labels = run.recipe.head.labels
    return [_number(example.answer or "", labels, example.where) for example in examples]


def _tag_row(run: Run, example: Example, row: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The number of each word's tag at its last token; nothing is asked at other tokens.

    Raises:
        UserError: a tag isn't among those that the model was made for.
    """
    assert isinstance(run.recipe.head, TokenClassificationHeadConfig)
    labels = [IGNORE] * len(row)
    for place, tag in zip(ends, tags_of(example), strict=False):
        labels[place] = _number(tag, run.recipe.head.labels, example.where)
    return labels


def _number(label: str, labels: Sequence[str], where: str) -> int:
    if label not in labels:
        raise UserError(
            f"{where}: the label {label!r} is none of those that the model knows: "
            f"{', '.join(labels)}"
        )
    return labels.index(label)


def _plan_probe(out: Path, recipe: Recipe, task: ProbeConfig) -> Plan:
    """Rows of ids, each of which is a token."""
    if not recipe.continues_texts:
        raise UserError(
            f"task.kind={_kind(task)}: is for a model that can be asked at each position: set "
            "model.kind=decoder, rnn or fixed-window, and head.kind=lm"
        )
    run = Run.new(out, recipe, numbers(task.vocabulary), describe_origin(_kind(task), (), ()))
    ids, labels = probe_rows(task, run.tokenizer, recipe.seed, PROBE_ROWS)
    if ids.shape[1] > recipe.model.context_length:
        raise UserError(
            f"task.kind={_kind(task)}: its rows take {ids.shape[1]} tokens, but "
            f"model.context_length is {recipe.model.context_length}; ask for a shorter task, or "
            "for a larger model.context_length"
        )
    rows = list(zip(ids, labels, strict=True))
    return plan(run, [sources.given(rows)], [], recipe.training, "training")


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


def _tell(cut: int, texts: int, room: int) -> None:
    """Say that texts were too long."""
    if cut:
        warnings.warn(
            f"{cut} of {texts} texts don't fit the {room} tokens that the model has room for, and "
            "lose their ends; a larger model.context_length keeps them",
            stacklevel=2,
        )
