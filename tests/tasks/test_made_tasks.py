"""What all made tasks promise: their sizes, no test in training, the same data for ever."""

import hashlib
from functools import cache

import msgspec
import pytest
from msgspec import structs

from regard.tasks.casing import CasingConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.registry import TextTask
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.split import Split
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig

TASKS: dict[str, TextTask] = {
    "casing": CasingConfig(training=60, test=20),
    "summaries": SummariesConfig(training=60, test=20, people=40),
    "translation": TranslationConfig(training=60, test=20),
    "classification": ClassificationConfig(training=60, test=20),
    "tagging": TaggingConfig(training=60, test=20),
    "entailment": EntailmentConfig(training=60, test=20),
    "retrieval": RetrievalConfig(training=60, test=20, people=40),
}
GOLDEN = {
    "casing": "34a654f916da9791",
    "summaries": "6d8c70568e81530c",
    "translation": "015fe58ba4a42bcb",
    "classification": "efdfa2ca9847d9d9",
    "tagging": "1f424eae496ced28",
    "entailment": "c2c3b6f699a8e440",
    "retrieval": "4fd094517a2175c9",
}
"""sha256 of each, cut short: the same on every platform, for ever."""


@cache
def make(task: str, *, own: int = 0, run: int = 0) -> Split:
    return structs.replace(TASKS[task], seed=own).make(run)


def fingerprint(split: Split) -> str:
    return hashlib.sha256(msgspec.json.encode(split)).hexdigest()[:16]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_the_sizes_asked_for(task: str) -> None:
    split = make(task)
    assert (len(split.training), len(split.test)) == (60, 20)
    for number, question in enumerate((*split.training, *split.test), start=1):
        assert question.where == f"{task} example {number}"
        assert question.text.strip()
        assert (question.answer or "").strip()


@pytest.mark.parametrize("task", TASKS)
def test_no_text_of_the_test_stands_in_training_at_full_size(task: str) -> None:
    split = type(TASKS[task])().make(0)
    assert (len(split.training), len(split.test)) == (8000, 500)
    test = {question.text for question in split.test}
    assert len(test) == 500
    assert not test & {question.text for question in split.training}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_the_same_for_ever(task: str) -> None:
    assert fingerprint(make(task)) == GOLDEN[task]


@pytest.mark.parametrize("task", TASKS)
def test_both_seeds_decide_what_is_drawn(task: str) -> None:
    prints = {fingerprint(make(task, own=own, run=run)) for own in (0, 1) for run in (0, 1)}
    assert len(prints) == 4


def people_of(split: Split) -> set[str]:
    """Names stand in answers, at their beginning."""
    return {" ".join(str(question.answer).split()[:2]).strip(",.") for question in split.training}


@pytest.mark.parametrize("task", ["summaries", "retrieval"])
def test_the_people_are_the_tasks_and_not_the_runs(task: str) -> None:
    assert people_of(make(task, run=1)) == people_of(make(task))
    assert people_of(make(task, own=1)) != people_of(make(task))
