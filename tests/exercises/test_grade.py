"""Grades of answers that a student's process may send, right or tampered with."""

import json
from typing import Any

import pytest
import torch
from graded import ALL, SEED, filled, graded, run, solution
from torch.utils._pytree import tree_map_only

from regard.exercises.exercise import INSTANCES
from regard.exercises.grade import as_gradescope, grade, judge
from regard.exercises.values import encode
from regard.exercises.worker import Answers, Job

MAP = ALL["attention_map"]
CASES = [MAP.inputs(SEED, index) for index in range(INSTANCES)]
RIGHT = [encode(MAP.reference(**case)) for case in CASES]


def judged(returned: list[Any], entries: list[int]) -> tuple[str, str]:
    return judge(MAP, CASES, Answers(returned, entries))


@pytest.mark.parametrize(
    ("returned", "entries"),
    [
        ([], []),
        (RIGHT[:-1], [0] * INSTANCES),
        (RIGHT, [0]),
        ([*RIGHT, RIGHT[0]], [0] * (INSTANCES + 1)),
        ([{"tensor": "text", "shape": [1], "dtype": "float64"}] * INSTANCES, [0] * INSTANCES),
        ([{"tensor": [1.0], "shape": [2], "dtype": "float64"}] * INSTANCES, [0] * INSTANCES),
        ([{"tensor": [1.0], "shape": [1], "dtype": "nn"}] * INSTANCES, [0] * INSTANCES),
        ([{"tensor": [1.0]}] * INSTANCES, [0] * INSTANCES),
        ([{"tensor": [10**400], "shape": [1], "dtype": "float64"}] * INSTANCES, [0] * INSTANCES),
        ([{}] * INSTANCES, [0] * INSTANCES),
    ],
)
def test_answers_that_were_tampered_with_score_0(returned: list[Any], entries: list[int]) -> None:
    assert judged(returned, entries) == ("", "sends results that can't be read")


def test_a_result_that_is_right_for_some_inputs_scores_0() -> None:
    wrong = [*RIGHT[:-1], encode(2 * MAP.reference(**CASES[-1]))]
    hint, reason = judged(wrong, [0] * INSTANCES)
    assert (hint, reason) == ("", "the largest error is 1 of the largest entry for 1 of 5 inputs")


def test_a_hint_needs_the_mistake_on_all_inputs_that_are_wrong() -> None:
    scores = [case["q"] @ case["k"].T for case in CASES]
    unscaled = [encode(x.softmax(-1)) for x in scores]
    hint, reason = judged([*unscaled[:2], *RIGHT[2:]], [0] * INSTANCES)
    assert "didn't divide" in hint
    assert "for 2 of 5 inputs" in reason
    assert judged([unscaled[0], encode(scores[1]), *RIGHT[2:]], [0] * INSTANCES)[0] == ""


@pytest.mark.parametrize("name", [name for name, exercise in ALL.items() if exercise.observe])
@pytest.mark.parametrize("entry", ["0.0", "3", "float('nan')", "float('inf')", "1e300"])
def test_extreme_results_are_graded_too(name: str, entry: str) -> None:
    """Where a function of the result is compared."""
    right = ALL[name].reference(**ALL[name].inputs(SEED, 0))
    several = right if isinstance(right, tuple) else (right,)
    made = ", ".join(f"torch.full({list(x.shape)}, {entry})" for x in several)
    result = f"({made})" if len(several) > 1 else made
    assert graded(ALL[name], filled(name, f"    return {result}")).score == 0


@pytest.mark.parametrize("name", [name for name, exercise in ALL.items() if exercise.observe])
def test_float32_is_graded_where_a_function_of_the_result_is_compared(name: str) -> None:
    exercise = ALL[name]

    def in_float32(_job: Job) -> Answers:
        right = [exercise.reference(**exercise.inputs(SEED, i)) for i in range(INSTANCES)]
        single = tree_map_only(torch.Tensor, torch.Tensor.float, right)
        return Answers([encode(one) for one in single], [0] * INSTANCES)

    assert grade(exercise, [("its cell", "")], in_float32, SEED).reason == ""


def test_control_characters_are_not_passed_on() -> None:
    def tampered(_: Job) -> Answers:
        return Answers(reason="\x1b[31m red \ud800", output="\x07\nbell")

    found = grade(MAP, [("its cell", "def attention_map(): pass")], tampered, SEED)
    assert found.reason == "�[31m red �"
    assert found.output == "�\nbell"
    (test,) = json.loads(as_gradescope([found]))["tests"]
    assert test["status"] == "failed"


def test_an_n_by_n_matrix_is_noticed_even_if_the_result_is_right() -> None:
    name = "causal_kernel_attention"
    source = solution(name).replace("    rows = []", "    rows = []\n    torch.zeros(20, 20)", 1)
    found = graded(ALL[name], source)
    assert (found.score, found.reason) == (0, "makes a tensor with more entries than allowed")


def test_the_same_code_gets_the_same_grade() -> None:
    assert graded(MAP, solution(MAP.name)) == graded(MAP, solution(MAP.name))
    assert torch.get_default_dtype() is torch.float32
    assert run(Job([], "f", [])).reason
