"""What all tasks of texts promise: their examples, the same for ever, and their scores."""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import get_args

import msgspec
import pytest
from msgspec import structs

from regard.tasks.casing import CasingConfig, Place
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.examples import Example
from regard.tasks.names import FIRST_NAMES, LAST_NAMES
from regard.tasks.registry import TextTask
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.split import Answers, Scores, Split
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig
from regard.tasks.world_questions import WorldQuestionsConfig

TASKS: dict[str, TextTask] = {
    "casing": CasingConfig(training=60, test=20),
    "summaries": SummariesConfig(training=60, test=20, people=40),
    "translation": TranslationConfig(training=60, test=20),
    "classification": ClassificationConfig(training=60, test=20),
    "tagging": TaggingConfig(training=60, test=20),
    "entailment": EntailmentConfig(training=60, test=20),
    "retrieval": RetrievalConfig(training=60, test=20, people=40),
    "world": WorldQuestionsConfig(training=60, test=20, people=80),
}
GOLDEN = {
    "casing": "34a654f916da9791",
    "summaries": "6d8c70568e81530c",
    "translation": "015fe58ba4a42bcb",
    "classification": "efdfa2ca9847d9d9",
    "tagging": "1f424eae496ced28",
    "entailment": "c2c3b6f699a8e440",
    "retrieval": "4fd094517a2175c9",
    "world": "ab8b3a1b8021fa69",
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
    config = type(TASKS[task])()
    split = config.make(0)
    assert (len(split.training), len(split.test)) == (config.training, config.test)
    test = {question.text for question in split.test}
    assert len(test) == config.test
    assert not test & {question.text for question in split.training}


NAME = re.compile(rf"\b(?:{'|'.join(FIRST_NAMES)}) (?:{'|'.join(LAST_NAMES)})\b")


def names_in(examples: Sequence[Example]) -> set[str]:
    texts = (text or "" for one in examples for text in (one.text, one.second, one.answer))
    return {name for text in texts for name in NAME.findall(text)}


@pytest.mark.parametrize("task", ["summaries", "retrieval", "entailment", "world"])
def test_nobody_of_the_test_is_in_training(task: str) -> None:
    config = TASKS[task]
    if task == "entailment":  # strangers are drawn from thousands
        config = structs.replace(config, training=1800, test=510)
    split = config.make(0)
    training, test = names_in(split.training), names_in(split.test)
    assert min(len(training), len(test)) >= 10
    assert not training & test


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


# Scores

SCORES = {
    "casing": {"exact match"},
    "summaries": {"ROUGE-1", "ROUGE-2", "ROUGE-L", "exact match"},
    "translation": {"exact match", "BLEU", "chrF"},
    "classification": {"accuracy", "macro F1"},
    "tagging": {"accuracy", "macro F1", "exact match"},
    "entailment": {"accuracy", "macro F1"},
    "retrieval": {"exact match"},
    "world": {"exact match"},
}


def answers(task: str) -> list[str]:
    """Return the right answers of the test."""
    return [question.answer or "" for question in make(task).test]


def scored(task: str, answered: list[str], seed: int = 0) -> Scores:
    return TASKS[task].score(answered, answers(task), seed)


def values(scores: Scores) -> dict[str, float]:
    return {name: interval.value for name, interval in scores.items()}


def baselines(task: str) -> Answers:
    return TASKS[task].baselines(make(task).training, make(task).test)


def test_every_task_of_texts_is_known() -> None:
    assert {type(config) for config in TASKS.values()} == set(get_args(TextTask))
    assert [config.__struct_config__.tag for config in TASKS.values()] == list(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_right_answers_score_full_and_wrong_ones_nothing(task: str) -> None:
    full = {name: 100 if name in ("BLEU", "chrF") else 1 for name in SCORES[task]}
    assert values(scored(task, answers(task))) == pytest.approx(full)
    wrong = values(scored(task, ["§"] * 20))
    assert wrong == pytest.approx(dict.fromkeys(SCORES[task], 0), abs=1e-9)
    for answered in baselines(task).values():
        assert set(scored(task, answered)) == SCORES[task]


@pytest.mark.parametrize("task", TASKS)
def test_one_answer_in_four_is_a_quarter(task: str) -> None:
    answered = [a if i % 4 == 0 else "§" for i, a in enumerate(answers(task))]
    one, same, other = (scored(task, answered, seed) for seed in (1, 1, 2))
    assert one == same
    assert values(one) == values(other), "the seed draws intervals and nothing else"
    share = one["exact match" if "exact match" in one else "accuracy"]
    assert share.value == 0.25
    assert share.low < 0.25 < share.high


# Baselines


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_text_as_it_is_lacks_nothing_but_its_token(place: Place) -> None:
    config = CasingConfig(training=60, test=20, place=place)
    split = config.make(0)
    copied = config.baselines(split.training, split.test)["the text as it is"]
    for text, question in zip(copied, split.test, strict=True):
        token = "<U>" if question.answer == text.upper() else "<L>"
        assert question.text == (f"{token} {text}" if place == "first" else f"{text} {token}")
        assert question.answer == (text.upper() if token == "<U>" else text.lower())


def test_leads_are_the_first_sentences() -> None:
    found = baselines("summaries")
    assert set(found) == {"lead-1", "lead-2", "lead-3"}
    for question, *leads in zip(make("summaries").test, *found.values(), strict=True):
        assert [text.count(".") for text in leads] == [1, 2, 3]
        assert all(question.text.startswith(text) for text in leads)


def test_a_baseline_of_words_is_no_translation() -> None:
    (answered,) = baselines("translation").values()
    found = values(scored("translation", answered))
    assert 0 < found["chrF"] < 100
    assert found["exact match"] < 1
    # It is of the language that the examples are in.
    split, other = make("translation"), structs.replace(TASKS["translation"], seed=1)
    (foreign,) = other.baselines(split.training, split.test).values()
    assert scored("translation", foreign)["chrF"].value < found["chrF"] / 2


def test_labels_of_the_same_words_are_guessed_by_halves() -> None:
    found = baselines("classification")
    assert set(found) == {"majority", "naive Bayes"}
    assert len(set(found["majority"])) == 1
    for answered in found.values():
        assert scored("classification", answered)["accuracy"].value == 0.5


def test_retrieval_has_no_baseline_that_writes() -> None:
    assert baselines("retrieval") == {}
