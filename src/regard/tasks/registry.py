"""All tasks: examples, scores and baselines. Imports no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from regard.metrics import (
    Interval,
    accuracy,
    bleu,
    chrf,
    exact_match,
    macro_f1,
    rouge,
    tag_accuracy,
    tag_macro_f1,
)
from regard.tasks.bag_of_words import naive_bayes
from regard.tasks.casing import CASES, CasingConfig, make_casing, read_cases
from regard.tasks.classification import ClassificationConfig, make_classification
from regard.tasks.entailment import EntailmentConfig, make_entailment
from regard.tasks.examples import Example, majority_answer, read_questions
from regard.tasks.probes import ProbeConfig
from regard.tasks.retrieval import RetrievalConfig, make_retrieval
from regard.tasks.split import Split
from regard.tasks.summaries import SummariesConfig, lead, make_summaries
from regard.tasks.tables import TableConfig, TableExamples, is_table, read_table_examples
from regard.tasks.tagging import TaggingConfig, commonest_tags, make_tagging, require_tags
from regard.tasks.text_pairs import read_labeled, read_text_pairs, require_second
from regard.tasks.translation import (
    TranslationConfig,
    make_language,
    make_translation,
    word_by_word,
)

TextTask: TypeAlias = (
    CasingConfig
    | SummariesConfig
    | TranslationConfig
    | ClassificationConfig
    | TaggingConfig
    | EntailmentConfig
    | RetrievalConfig
)
"""Tasks whose examples are texts with answers."""

TaskConfig: TypeAlias = TextTask | ProbeConfig

Scores = dict[str, Interval]
"""A score by its name."""
Answers: TypeAlias = dict[str, list[str]]
"""Answers to test examples, by the name of the baseline that gives them."""
ExampleSet: TypeAlias = Sequence[Example]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Functions that make, score and read the examples of a task, and its baselines."""

    make: Callable[[Any, int], Split]
    """Makes the examples from the task's configuration and a seed."""
    score: Callable[[Sequence[str], Sequence[str], int], Scores]
    """Scores answers against the right ones; the seed is that of the intervals."""
    baselines: Callable[[Any, ExampleSet, ExampleSet], Answers] = lambda *_: {}
    """Answers test examples, given after those for training, without a model."""
    read: Callable[[Path], list[Example]] = read_questions
    """Reads examples from a file."""
    check: Callable[[Example], None] = lambda _: None
    """Raises for an example of another task."""


def task_of(config: TextTask) -> Task:
    """Return the task of a configuration."""
    return TASKS[str(config.__struct_config__.tag)]


def make_split(config: TextTask, seed: int) -> Split:
    """Make the examples of a task.

    Raises:
        UserError: the task has fewer different examples.
    """
    return task_of(config).make(config, seed)


def read_examples(config: TaskConfig, path: Path) -> list[Example]:
    """Read a user's examples of a task; for casing, any .txt file yields some.

    Raises:
        UserError: a line is malformed, or there is no example.
    """
    if isinstance(config, ProbeConfig):
        return read_questions(path)
    if isinstance(config, CasingConfig) and path.suffix == ".txt":
        return read_cases(path, config.place)
    return task_of(config).read(path)


def read_labeled_rows(
    path: Path, table: TableConfig, *, label_required: bool = True
) -> TableExamples:
    """Read texts and labels from a table, or from lines without a header, which may hold pairs.

    Raises:
        UserError: as `read_table_examples` and `read_labeled`.
    """
    if is_table(path, table):
        return read_table_examples(path, table, label_required=label_required)
    return TableExamples(read_labeled(path), (), "lines, no header")


def check_examples(config: TextTask, examples: Sequence[Example]) -> None:
    """Raise for examples of another task.

    Raises:
        UserError: names the first of them.
    """
    for example in examples:
        task_of(config).check(example)


# Scores


def _exact(answered: Sequence[str], right: Sequence[str], _seed: int) -> Scores:
    pairs = zip(answered, right, strict=True)
    return {"exact match": accuracy([exact_match(a, r) for a, r in pairs])}


def _summaries(answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
    return rouge(answered, right, seed=seed) | _exact(answered, right, seed)


def _translation(answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
    return _exact(answered, right, seed) | {
        "BLEU": bleu(answered, right, seed=seed).interval,
        "chrF": chrf(answered, right, seed=seed).interval,
    }


def _labels(answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
    return {
        "accuracy": _exact(answered, right, seed)["exact match"],
        "macro F1": macro_f1(answered, right, seed=seed),
    }


def _tags(answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
    said, true = ([text.split() for text in texts] for texts in (answered, right))
    return {
        "accuracy": tag_accuracy(said, true, seed=seed),
        "macro F1": tag_macro_f1(said, true, seed=seed),
        **_exact([" ".join(tags) for tags in said], [" ".join(tags) for tags in true], seed),
    }


# Baselines


def _without_token(_config: CasingConfig, _training: ExampleSet, test: ExampleSet) -> Answers:
    def copied(text: str) -> str:
        for token in CASES:
            text = text.removeprefix(f"{token} ").removesuffix(f" {token}")
        return text

    return {"the text as it is": [copied(q.text) for q in test]}


def _leads(_config: SummariesConfig, _training: ExampleSet, test: ExampleSet) -> Answers:
    return {f"lead-{k}": [lead(q.text, k) for q in test] for k in (1, 2, 3)}


def _word_by_word(config: TranslationConfig, _training: ExampleSet, test: ExampleSet) -> Answers:
    language = make_language(config.seed)
    return {"word by word": [word_by_word(language, q.text) for q in test]}


def _bags(
    _config: ClassificationConfig | EntailmentConfig, training: ExampleSet, test: ExampleSet
) -> Answers:
    joined = [msgspec.structs.replace(q, text=_whole(q)) for q in training]
    return {
        "majority": [majority_answer(training)] * len(test),
        "naive Bayes": naive_bayes(joined, [_whole(q) for q in test]),
    }


def _whole(question: Example) -> str:
    return question.text if question.second is None else f"{question.text} {question.second}"


TASKS: dict[str, Task] = {
    "casing": Task(make=make_casing, score=_exact, baselines=_without_token),
    "summaries": Task(make=make_summaries, score=_summaries, baselines=_leads),
    "translation": Task(make=make_translation, score=_translation, baselines=_word_by_word),
    "classification": Task(
        make=make_classification, score=_labels, baselines=_bags, read=read_labeled
    ),
    "tagging": Task(
        make=make_tagging,
        score=_tags,
        baselines=lambda _, training, test: commonest_tags(training, test),
        check=require_tags,
    ),
    "entailment": Task(
        make=make_entailment,
        score=_labels,
        baselines=_bags,
        read=read_text_pairs,
        check=require_second,
    ),
    "retrieval": Task(make=make_retrieval, score=_exact),
}
"""By the kind of their configuration. Retrieval is scored by ranks where documents are embedded."""
