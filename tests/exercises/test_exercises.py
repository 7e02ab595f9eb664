"""Right programs get all points, blanks none, and mistakes the hint that names them."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from graded import ALL, SEED, filled, graded, mutant, solution
from solutions import SOLUTIONS

from regard.courses import COURSES, all_parts
from regard.exercises.exercise import Exercise, Mistake, exercise, normal
from regard.exercises.registry import EXERCISES
from regard.exercises.values import difference


def test_there_are_enough_exercises_of_each_course() -> None:
    assert set(EXERCISES) == set(COURSES)
    assert len(ALL) == sum(map(len, EXERCISES.values())) >= 24
    assert set(SOLUTIONS) == set(ALL)
    for group in EXERCISES.values():
        parts = [exercise.part for exercise in group]
        assert len(set(parts)) == len(parts), "rows of one course are told apart by their parts"


def test_most_parts_of_the_courses_can_be_practiced() -> None:
    """By an exercise, by options, or by the lines of a derivation."""
    numbers = {course: [p.number for p in all_parts() if p.course == course] for course in COURSES}
    practiced = {part.place for part in all_parts() if part.options or part.derivation}
    for one in ALL.values():
        listed = numbers[one.course]
        ends = one.part.split("–") if one.part[:2] != "4." else ["4"]
        span = listed[listed.index(ends[0]) : listed.index(ends[-1]) + 1]
        practiced |= {f"{one.course} {number}" for number in span}
    assert len(practiced) >= 60
    assert {part.place for part in all_parts() if part.kind == "derive"} <= practiced


def test_a_blank_gets_no_points() -> None:
    for name in ALL:
        grade = graded(ALL[name], ALL[name].stub)
        assert (grade.score, grade.hint, grade.reason) == (0, "", "not written yet")


@pytest.mark.parametrize(
    ("name", "old", "new", "hint"),
    [
        pytest.param(name, *mistake, id=f"{name}: {mistake[-1]}")
        for name, solution in SOLUTIONS.items()
        for mistake in solution.mistakes
    ],
)
def test_a_typical_mistake_gets_its_hint(name: str, old: str, new: str, hint: str) -> None:
    grade = graded(ALL[name], mutant(name, old, new))
    assert grade.score == 0
    assert hint
    assert hint in grade.hint, grade.reason


def test_every_hint_has_a_mutant() -> None:
    for name in ALL:
        named = [
            [hint in mistake.hint for _, _, hint in SOLUTIONS[name].mistakes]
            for mistake in ALL[name].mistakes
        ]
        assert len(named) >= 2
        assert all(map(any, named))
        assert all(sum(column) == 1 for column in zip(*named, strict=True))


def test_a_hint_says_in_one_or_two_sentences_what_the_student_did_and_should_do() -> None:
    for name in ALL:
        for mistake in ALL[name].mistakes:
            assert re.fullmatch(r"You .+?(\. .+)?: .+\.", mistake.hint), mistake.hint
            assert len(re.findall(r"\. |\.$", mistake.hint)) <= 2, mistake.hint


def test_an_unknown_mistake_gets_a_reason() -> None:
    for name in ALL:
        exercise = ALL[name]
        right = exercise.expected(exercise.inputs(SEED, 0)).value
        other = (
            f"torch.full({list(right.shape)}, 0.123)" if isinstance(right, torch.Tensor) else None
        )
        grade = graded(exercise, filled(name, f"    return {other}"))
        assert (grade.score, grade.hint) == (0, "")
        assert "error" in grade.reason or "returned" in grade.reason


def test_the_same_seed_gives_the_same_numbers() -> None:
    for name in ALL:
        exercise = ALL[name]
        first, again = exercise.inputs(SEED, 0), exercise.inputs(SEED, 0)
        assert repr(first) == repr(again)
        others = [exercise.inputs(SEED, 1), exercise.inputs(SEED + 1, 0), exercise.inputs(SEED, 2)]
        assert any(repr(first) != repr(other) for other in others)


def test_problems_say_what_to_write_and_the_key_how() -> None:
    for name in ALL:
        exercise = ALL[name]
        assert exercise.problem
        assert exercise.explanation
        assert exercise.points in (1, 2)
        assert exercise.problem.count("$") % 2 == exercise.explanation.count("$") % 2 == 0
        assert exercise.stub.startswith(f"def {name}(")
        assert exercise.stub.endswith('"""\n    raise NotImplementedError')


@pytest.mark.parametrize("name", ["attention_map", "fourier_features"])
def test_float32_is_precise_enough(name: str) -> None:
    source = solution(name).replace("return ", "return (").rstrip() + ").float()"
    assert graded(ALL[name], source).score == 1


def test_a_program_may_change_its_inputs() -> None:
    source = solution("attention_map").replace("    return", "    q *= 1\n    return")
    assert graded(ALL["attention_map"], source).score == 1
    source = solution("attention_map").replace("    return", "    q *= 2\n    return")
    assert graded(ALL["attention_map"], source).score == 0


def _double(x: torch.Tensor) -> torch.Tensor:
    """Return 2x."""
    return 2 * x


def _make(*mistakes: Mistake) -> Exercise:
    made = exercise(
        "course",
        "1",
        title="Double",
        problem="Return $2x$.",
        explanation="$2x$",
        draw=lambda rng: {"x": normal(rng, 1).clamp(min=0)},
        mistakes=mistakes,
    )
    return made(_double)


def test_inputs_that_hide_a_mistake_are_drawn_again() -> None:
    square = _make(Mistake("You squared x: double it.", lambda x: x**2))
    for index in range(20):
        x = float(square.inputs(SEED, index)["x"])
        assert difference(x**2, 2 * x, 1e-2)


def test_the_exercise_of_the_docs_works() -> None:
    page = Path(__file__).parents[2] / "docs" / "course-exercises.md"
    (source,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    softmax: Exercise = names["softmax"]
    assert graded(softmax, "def softmax(s):\n    return s.softmax(0)").score == 1
    hint = graded(softmax, "def softmax(s):\n    return s.exp()").hint
    assert hint == "You left out the denominator: divide by the sum of the exponentials."


def test_a_mistake_that_is_none_is_found() -> None:
    with pytest.raises(RuntimeError, match="_double: no inputs"):
        _make(Mistake("You added x: double it.", lambda x: x + x)).inputs(SEED, 0)
