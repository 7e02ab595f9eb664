"""`check(f)` in a notebook: right or wrong on the student's numbers, with help in stages."""

import json
from pathlib import Path
from typing import Any

import pytest
from graded import ALL, SEED, mutant, run, solution
from jaxtyping import Float
from torch import Tensor

from regard.courses import all_parts
from regard.errors import UserError
from regard.exercises.check import Checker, part_of
from regard.exercises.grade import grade_folder
from regard.exercises.notebook import notebook
from regard.exercises.registry import EXERCISES
from regard.exercises.restrictions import ExcludedError

pytestmark = pytest.mark.usefixtures("default_dtype")

COURSE = "jhu-hw5"
REVERSED = mutant("softmax_gradient", "o.softmax(0) - y", "y - o.softmax(0)")


def ran(book: dict[str, Any]) -> dict[str, Any]:
    """Run the code cells of a notebook; return the names that they define."""
    names: dict[str, Any] = {}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec(cell["source"], names)
    return names


def defined(source: str, name: str = "softmax_gradient") -> Any:
    """Return the function that a cell defines."""
    names: dict[str, Any] = {"Float": Float, "Tensor": Tensor}
    exec(source, names)
    return names[name]


@pytest.mark.parametrize("course", EXERCISES)
def test_a_solved_notebook_runs_says_right_and_gets_all_points(
    course: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = notebook(EXERCISES[course], SEED)
    stubs = {exercise.stub: solution(exercise.name) for exercise in EXERCISES[course]}
    for cell in book["cells"]:
        cell["source"] = stubs.get(cell["source"], cell["source"])
    ran(book)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("right") == len(EXERCISES[course])
    assert not any(line.startswith(("wrong", "hint")) for line in lines)
    (tmp_path / f"{course}.ipynb").write_text(json.dumps(book), encoding="utf-8")
    grades = grade_folder(tmp_path, run)
    assert [grade.reason for grade in grades] == [""] * len(EXERCISES[course])


def test_each_wrong_try_gets_more_help(capsys: pytest.CaptureFixture[str]) -> None:
    check = Checker(COURSE, seed=SEED)
    shown = []
    for _ in range(4):
        check(defined(REVERSED))
        shown.append(capsys.readouterr().out.splitlines())
    assert [len(lines) for lines in shown] == [1, 2, 3, 3]
    reason, hint, explained = shown[-1]
    assert reason.startswith("wrong: the largest error is ")
    assert hint == "hint: You reversed the sign: subtract y from ŷ."
    assert explained == (
        'explained: regard book --only "jhu-hw5 2.2.1" --out book,'
        " then open book/index.html#jhu-hw5-2.2.1"
    )
    assert all(lines == shown[-1][: len(lines)] for lines in shown)
    check(defined(solution("softmax_gradient")))
    assert capsys.readouterr().out == "right\n"


def test_an_unknown_mistake_leads_to_the_part(capsys: pytest.CaptureFixture[str]) -> None:
    check = Checker(COURSE, seed=SEED)
    for _ in range(2):
        check(defined("def softmax_gradient(o, y):\n    return 7 * o"))
    assert capsys.readouterr().out.splitlines()[2].startswith("explained: ")


def test_a_blank_is_no_try_and_other_exceptions_pass(capsys: pytest.CaptureFixture[str]) -> None:
    check = Checker(COURSE, seed=SEED)
    check(defined(ALL["softmax_gradient"].stub))
    assert capsys.readouterr().out == "not written yet\n"
    for body, error in (
        ("return o / len(0)", TypeError),
        ("raise NotImplementedError('soft labels')", NotImplementedError),
        ("return o.requires_grad_()", ExcludedError),
    ):
        with pytest.raises(error):
            check(defined(f"def softmax_gradient(o, y):\n    {body}"))
    check(defined(REVERSED))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_function_of_another_name_is_refused() -> None:
    check = Checker(COURSE, seed=SEED)
    with pytest.raises(UserError, match=r"check\(len\): no such exercise of jhu-hw5; there are"):
        check(len)
    with pytest.raises(UserError, match="did you mean softmax_gradient"):
        check(defined("def softmax_gradients(o, y): ...", "softmax_gradients"))


def test_every_exercise_belongs_to_a_part_that_the_book_shows() -> None:
    found = {name: part_of(exercise) for name, exercise in ALL.items()}
    assert all(part in all_parts() for part in found.values())
    assert all(ALL[name].part.startswith(part.number) for name, part in found.items())
    assert found["greedy_translation"].place == "jhu-hw5 4"
    assert found["product_moments"].place == "jhu-hw5 3.5.1"
