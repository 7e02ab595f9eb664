"""Each task is scored as its field scores it, and its baselines answer as they are said to."""

from typing import Any, get_args

import msgspec
import pytest

from regard.metrics import Interval
from regard.tasks.casing import CasingConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.examples import Example
from regard.tasks.registry import TextTask
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.split import Scores, Split
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig
from regard.tasks.world_questions import WorldQuestionsConfig

CONFIGS: dict[str, TextTask] = {
    "casing": CasingConfig(training=60, test=20),
    "summaries": SummariesConfig(training=60, test=20, people=40),
    "translation": TranslationConfig(training=60, test=20),
    "classification": ClassificationConfig(training=60, test=20),
    "tagging": TaggingConfig(training=60, test=20),
    "entailment": EntailmentConfig(training=60, test=20),
    "retrieval": RetrievalConfig(training=60, test=20, people=40),
    "world": WorldQuestionsConfig(training=60, test=20, people=80),
}
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


@pytest.fixture(scope="module")
def splits() -> dict[str, Split]:
    return {name: config.make(0) for name, config in CONFIGS.items()}


def answers(questions: tuple[Example, ...]) -> list[str]:
    return [question.answer or "" for question in questions]


def scored(name: str, answered: list[str], split: Split) -> Scores:
    return CONFIGS[name].score(answered, answers(split.test), 0)


def baselines(name: str, split: Split) -> Any:
    return CONFIGS[name].baselines(split.training, split.test)


def test_every_task_of_texts_is_known() -> None:
    assert {type(config) for config in CONFIGS.values()} == set(get_args(TextTask))
    assert [config.__struct_config__.tag for config in CONFIGS.values()] == list(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_right_answers_score_full_and_wrong_ones_nothing(
    splits: dict[str, Split], name: str
) -> None:
    split = splits[name]
    right = scored(name, answers(split.test), split)
    wrong = scored(name, ["§"] * len(split.test), split)
    assert set(right) == set(wrong) == SCORES[name]
    for score, interval in right.items():
        full = 100 if score in ("BLEU", "chrF") else 1
        assert interval.value == pytest.approx(full)
        assert wrong[score].value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", CONFIGS)
def test_one_answer_in_four_is_a_quarter(splits: dict[str, Split], name: str) -> None:
    split = splits[name]
    answered = [a if i % 4 == 0 else "§" for i, a in enumerate(answers(split.test))]
    found = scored(name, answered, split)
    share = found["exact match" if "exact match" in found else "accuracy"]
    assert share.value == 0.25
    assert share.low < 0.25 < share.high


@pytest.mark.parametrize("name", CONFIGS)
def test_the_seed_draws_the_intervals_and_nothing_else(splits: dict[str, Split], name: str) -> None:
    right = answers(splits[name].test)
    half = [a if i % 2 else "§" for i, a in enumerate(right)]
    one, same, other = (CONFIGS[name].score(half, right, seed) for seed in (1, 1, 2))
    assert one == same
    assert values(one) == values(other)


def values(scores: Scores) -> dict[str, float]:
    return {name: interval.value for name, interval in scores.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_baselines_answer_every_question(splits: dict[str, Split], name: str) -> None:
    split = splits[name]
    for answered in baselines(name, split).values():
        found = scored(name, answered, split)
        assert all(isinstance(interval, Interval) for interval in found.values())


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_text_as_it_is_lacks_nothing_but_its_token(place: Any) -> None:
    config = CasingConfig(training=60, test=20, place=place)
    split = config.make(0)
    copied = config.baselines(split.training, split.test)["the text as it is"]
    for text, question in zip(copied, split.test, strict=True):
        token = "<U>" if question.answer == text.upper() else "<L>"
        assert question.text == (f"{token} {text}" if place == "first" else f"{text} {token}")
        assert question.answer == (text.upper() if token == "<U>" else text.lower())


def test_leads_are_the_first_sentences(splits: dict[str, Split]) -> None:
    found = baselines("summaries", splits["summaries"])
    assert set(found) == {"lead-1", "lead-2", "lead-3"}
    for i, question in enumerate(splits["summaries"].test):
        one, two, three = (found[f"lead-{k}"][i] for k in (1, 2, 3))
        assert question.text.startswith(three)
        assert three.startswith(two)
        assert two.startswith(one)
        assert [text.count(".") for text in (one, two, three)] == [1, 2, 3]


def test_a_baseline_of_words_is_no_translation(splits: dict[str, Split]) -> None:
    split = splits["translation"]
    (answered,) = baselines("translation", split).values()
    found = scored("translation", answered, split)
    assert 0 < found["chrF"].value < 100
    assert found["exact match"].value < 1
    # It is of the language that the examples are in.
    other = msgspec.structs.replace(CONFIGS["translation"], seed=1)
    (foreign,) = other.baselines(split.training, split.test).values()
    assert scored("translation", foreign, split)["chrF"].value < found["chrF"].value / 2


def test_the_majority_is_half_of_balanced_labels(splits: dict[str, Split]) -> None:
    split = splits["classification"]
    found = baselines("classification", split)
    assert set(found) == {"majority", "naive Bayes"}
    assert len(set(found["majority"])) == 1
    assert scored("classification", found["majority"], split)["accuracy"].value == 0.5
    # No bag of words tells texts of the same words apart.
    assert scored("classification", found["naive Bayes"], split)["accuracy"].value == 0.5


def test_retrieval_has_no_baseline_that_writes(splits: dict[str, Split]) -> None:
    assert baselines("retrieval", splits["retrieval"]) == {}
