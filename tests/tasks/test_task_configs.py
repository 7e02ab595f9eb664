"""Tasks are written down by kind and fields; what can't be made is refused with its reason."""

from typing import Any, get_args

import msgspec
import pytest

from regard.tasks.classification import ClassificationConfig
from regard.tasks.registry import TaskConfig
from regard.tasks.summaries import FILLER, SummariesConfig
from tiny_tasks import PROBES, TEXT_TASKS

KINDS = [*TEXT_TASKS, *PROBES]


def read(fields: dict[str, Any]) -> Any:
    return msgspec.convert(fields, TaskConfig)


def test_every_task_has_its_kind() -> None:
    made = [read({"kind": kind}) for kind in KINDS]
    assert {type(config) for config in made} == set(get_args(TaskConfig))
    for kind, config in zip(KINDS, made, strict=True):
        assert msgspec.to_builtins(config)["kind"] == kind
        assert read(msgspec.to_builtins(config)) == config


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "cooking"}, "cooking"),
        ({"kind": "casing", "size": 3}, "size"),
        ({"kind": "casing", "training": 0}, "training"),
        ({"kind": "casing", "place": "middle"}, "place"),
        ({"kind": "casing", "shortest": 9, "longest": 8}, "shortest = 9 is more than longest = 8"),
        ({"kind": "summaries", "people": 1900, "test": 101}, "2001, .* has 2000"),
        ({"kind": "summaries", "training": 999}, "training = 999 leaves some of people = 1000"),
        ({"kind": "summaries", "test": 3, "others": 3}, "others = 3"),
        ({"kind": "summaries", "filler": 13}, "filler"),
        ({"kind": "retrieval", "people": 2000}, "2500, .* has 2000"),
        ({"kind": "classification", "training": 7}, "training = 7 is odd"),
        ({"kind": "classification", "test": 7}, "test = 7 is odd"),
        ({"kind": "mqar", "length": 63}, "length = 63 is odd"),
        ({"kind": "mqar", "pairs": 17}, "need a length of 68, not 64"),
        ({"kind": "mqar", "pairs": 8, "vocabulary": 17}, "vocabulary = 17 has 7"),
        ({"kind": "mqar", "power": 0.0}, "power"),
        ({"kind": "copy", "vocabulary": 3}, "vocabulary"),
        ({"kind": "bigram-backcopy", "trigger_rate": 0.0}, "trigger_rate"),
        ({"kind": "induction", "length": 2}, "length"),
        ({"kind": "needle", "length": 6, "distance": 5}, "choose 4 or less"),
        ({"kind": "parity", "length": 40, "test_length": 40}, "test_length = 40 leaves no"),
        ({"kind": "in-context-recall", "length": 9}, "length = 9 is odd"),
        ({"kind": "noisy-recall", "vocabulary": 16}, "leave fewer than 4 ids"),
        ({"kind": "fuzzy-recall", "vocabulary": 6}, "vocabulary = 6 has 2 for keys"),
        ({"kind": "fuzzy-recall", "length": 10}, "choose 11 or more"),
        ({"kind": "memorization", "length": 9}, "length = 9 is odd"),
        ({"kind": "repeated", "length": 24}, "have 1 to 23 ids"),
        ({"kind": "repeated", "shortest": 25}, "longest isn't less than shortest"),
        ({"kind": "bigram-backcopy", "vocabulary": 5}, "fewer than 2 of 5 ids"),
    ],
)
def test_a_task_that_cannot_be_made_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=says) as refused:
        read(fields)
    assert "\n" not in str(refused.value)


def test_the_limits_themselves_are_allowed() -> None:
    read({"kind": "summaries", "people": 1500, "test": 500})
    read({"kind": "casing", "shortest": 8, "longest": 8})
    read({"kind": "mqar", "pairs": 16, "vocabulary": 34})
    assert SummariesConfig(test=3, others=2, filler=len(FILLER)).others == 2
    assert ClassificationConfig(training=2, test=2).seed == 0
