"""Examples of a task, as the model of the recipe reads them."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from regard.data import IGNORE
from regard.data.batch import Dataset, WeightedDataset
from regard.data.causal import Questions
from regard.data.supervised import (
    ContrastivePairs,
    LabeledTexts,
    LabeledTokens,
    SequencePairs,
)
from regard.errors import UserError, some
from regard.models.builders import (
    Classifier,
    Embedder,
    LanguageModel,
    SequenceToSequence,
    TokenClassifier,
)
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    TokenClassificationHeadConfig,
    require_head,
    with_labels,
)
from regard.runs.recipe import Recipe
from regard.runs.recipes import TASKS
from regard.runs.run import Run, describe_origin
from regard.tasks.encoding import (
    encode_answers,
    encode_joined,
    encode_texts,
    encode_words,
    max_prompt_length,
)
from regard.tasks.examples import Example, texts_of
from regard.tasks.registry import TaskConfig, check_examples
from regard.tasks.split import TextTaskConfig
from regard.tasks.tagging import TaggingConfig, tags_of
from regard.text.corpus import Document
from regard.text.tokenizer import Tokenizer, encode_documents, train_tokenizer
from regard.training.sources.base import Datasets, Prepared, Source, hold_out, require_objective
from regard.training.sources.documents import objective_datasets

SHOWN_LABELS = 20


class TaskSource(Source):
    """The base of sources for a task."""

    unread: tuple[str, ...] = (
        "data.documents",
        "data.blank_lines",
        "data.ascii_questions",
        "data.packing",
    )

    def __init__(self, task: str) -> None:
        self.stage, self.usual = task, TASKS[task]

    def task_of(self, recipe: Recipe) -> TaskConfig:
        """Return the task of a recipe.

        Raises:
            UserError: it isn't the task of the source.
        """
        kind = recipe.task and task_kind(recipe.task)
        if recipe.task is None or kind != self.stage:
            found = f"task.kind={kind}" if kind else "no task"
            raise UserError(
                f"train {self.stage}: the recipe has {found}; set task.kind={self.stage}, or leave "
                "--recipe out"
            )
        return recipe.task


class ExampleSource(TaskSource):
    """Examples of a task."""

    def __init__(self, task: str, examples: Sequence[Example] | None = None) -> None:
        """By default, `examples` are those that the task generates."""
        super().__init__(task)
        self.unread += ("data.table.",)
        if examples is not None or not TASKS[task].objective.questions:  # there are no documents
            self.unread += ("objective.",)
        self._examples = examples

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Make or check the examples; a tokenizer is trained on their texts."""
        task = self.task_of(recipe)
        assert isinstance(task, TextTaskConfig)
        check_head(recipe, task)
        if self._examples is not None:
            return prepare_examples(recipe, self._examples, tokenizer)
        return prepare_examples(
            recipe, task.make(recipe.seed).training, tokenizer, task.documents()
        )


def check_head(recipe: Recipe, task: TextTaskConfig) -> None:
    """Raise unless the model of a recipe can learn a task.

    Raises:
        UserError: names what to set instead.
    """
    head, kind = recipe.head, recipe.head.__struct_config__.tag
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
    if task.documents():
        require_objective(recipe)
    require_head(recipe.model, head)


def prepare_examples(
    recipe: Recipe,
    examples: Sequence[Example],
    tokenizer: Tokenizer | None,
    documents: Sequence[Document] = (),
) -> Prepared:
    """Return examples for the task of a recipe, and documents for its objectives.

    Raises:
        UserError: there are no examples, or one is unusable.
    """
    task = recipe.task
    assert isinstance(task, TextTaskConfig)
    kind = task_kind(task)
    if not examples:
        raise UserError(f"task.kind={kind}: there are no examples to train on; give some")
    check_examples(task, examples)
    texts = [document.text for document in documents] + _read_or_written(recipe, examples)
    return Prepared(
        recipe=msgspec.structs.replace(recipe, head=_with_found_labels(recipe.head, examples)),
        tokenizer=tokenizer or train_tokenizer(recipe.tokenizer, texts),
        origin=describe_origin(kind, documents, examples),
        datasets=lambda run: _datasets(run, examples, documents),
    )


def _datasets(run: Run, examples: Sequence[Example], documents: Sequence[Document]) -> Datasets:
    training, held_out = hold_out(examples, run.recipe)
    questions = task_dataset(run, training)
    datasets = [WeightedDataset(questions)]
    if documents:
        ids = encode_documents(run.tokenizer, documents)
        datasets = objective_datasets(run, documents, ids, questions, training)
    checks = [task_dataset(run, held_out)] if held_out else []
    return Datasets(training=datasets, held_out=checks)


def task_dataset(run: Run, examples: Sequence[Example]) -> Dataset:
    """Return the dataset of examples to train a run's model on.

    Raises:
        UserError: an example can't be encoded, or its answer is too long or not a label.
        TypeError: the model can't answer.
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
            suffix = template.target.suffix
            targets = [[*template.open_target(answer), *suffix] for answer in answers]
            pairs = list(zip(texts.rows, targets, strict=True))
            return SequencePairs(pairs, format, max_source_tokens=longest)
        case Classifier():
            texts = encode_texts(template, affixes, examples, longest)
            _warn_truncated(texts.cut, len(examples), longest)
            labels = _label_ids(run, [(e.answer or "", e.place) for e in examples])
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
            answered = [Example(text=e.answer or "", where=e.place) for e in examples]
            documents = encode_texts(template, affixes, answered, longest)
            _warn_truncated(texts.cut + documents.cut, 2 * len(examples), longest)
            return ContrastivePairs(list(zip(texts.rows, documents.rows, strict=True)), format)
    raise TypeError(f"{type(run.model).__name__} doesn't answer")


def _read_or_written(recipe: Recipe, examples: Sequence[Example]) -> list[str]:
    """Return the texts to train a tokenizer on; tags as classes would only take up ids."""
    if isinstance(recipe.head, TokenClassificationHeadConfig):
        return [example.text for example in examples]
    return texts_of(examples)


def _label_ids(run: Run, labels: Iterable[tuple[str, str]]) -> list[int]:
    """Return the index of each label; the text beside a label is its place, for messages.

    Raises:
        UserError: a label isn't one of the model's.
    """
    head = run.recipe.head
    assert isinstance(head, ClassificationHeadConfig | TokenClassificationHeadConfig)
    numbers = {label: number for number, label in enumerate(head.labels)}
    ids = []
    for label, where in labels:
        if label not in numbers:
            known = some(numbers, SHOWN_LABELS)
            raise UserError(
                f"{where}: the label {label!r} is none of those that the model knows: {known}"
            )
        ids.append(numbers[label])
    return ids


def _tag_row(run: Run, example: Example, row: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the index of each word's tag at its last token, and IGNORE at other tokens."""
    tags = [(tag, example.place) for tag in tags_of(example)[: len(ends)]]
    labels = [IGNORE] * len(row)
    for place, number in zip(ends, _label_ids(run, tags), strict=False):
        labels[place] = number
    return labels


def _with_found_labels(head: HeadConfig, examples: Sequence[Example]) -> HeadConfig:
    """Return the head with the labels of the examples, if it has none yet."""
    match head:
        case ClassificationHeadConfig(labels=()):
            labels = {example.answer for example in examples if example.answer is not None}
        case TokenClassificationHeadConfig(labels=()):
            labels = {tag for example in examples for tag in tags_of(example)}
        case _:
            return head
    return with_labels(head, tuple(sorted(labels)))


def task_kind(task: TaskConfig) -> str:
    """Return the name of a task."""
    return str(task.__struct_config__.tag)


def _warn_truncated(cut: int, texts: int, max_tokens: int) -> None:
    """Warn that texts were too long."""
    if cut:
        warnings.warn(
            f"{cut} of {texts} texts don't fit the model's {max_tokens} tokens and "
            "lose their ends; a larger model.context_length keeps them",
            stacklevel=2,
        )
