"""Notebooks are valid, and read back however a student has rearranged them."""

import json
from pathlib import Path
from typing import Any

import pytest
from graded import SEED, run, solution

from regard.errors import UserError
from regard.exercises.grade import grade_folder, grade_notebook
from regard.exercises.notebook import IMPORTS, notebook, read_notebook
from regard.exercises.registry import EXERCISES

pytestmark = pytest.mark.usefixtures("default_dtype")

COURSE = "eecs182-hw8"
NAMES = [exercise.name for exercise in EXERCISES[COURSE]]


@pytest.fixture
def book() -> dict[str, Any]:
    return notebook(EXERCISES[COURSE], SEED)


def save(book: object, folder: Path) -> Path:
    path = folder / f"{COURSE}.ipynb"
    path.write_text(json.dumps(book), encoding="utf-8")
    return path


def code(source: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": []}


def place(book: dict[str, Any], name: str) -> int:
    """Return where the cell of a function stands."""
    return next(i for i, c in enumerate(book["cells"]) if c["source"].startswith(f"def {name}("))


@pytest.mark.parametrize("course", EXERCISES)
def test_notebooks_are_valid_and_hold_the_students_numbers(course: str) -> None:
    import nbformat  # builds grammars for a second, in each process that collects tests

    made = notebook(EXERCISES[course], SEED)
    nbformat.validate(made, relax_add_props=False)
    calls = [cell["source"] for cell in made["cells"] if cell["id"].endswith("-numbers")]
    assert len(calls) == len(EXERCISES[course])
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    checked: list[Any] = []
    names["check"] = checked.append
    for exercise, call in zip(EXERCISES[course], calls, strict=True):
        names[exercise.name] = lambda **inputs: inputs
        exec(call, names)
        assert repr(names["result"]) == repr(dict(exercise.inputs(SEED, 0)))
        assert checked.pop() is names[exercise.name]


def test_cells_may_be_added_and_moved(book: dict[str, Any], tmp_path: Path) -> None:
    name = "attention_map"
    source = solution(name).replace("math.sqrt(", "helper(")
    at = place(book, name)
    book["cells"][at] = code("%timeit\n" + source)
    helper = ["!pip install nothing\n", "def helper(x):\n", "    return x**0.5"]
    groups = [book["cells"][i : i + 3] for i in range(2, len(book["cells"]), 3)]
    exercises = [cell for group in reversed(groups) for cell in group]
    optional = "try:\n    import nothing\nexcept ImportError:\n    !pip install nothing"
    top = [code(IMPORTS), code("%%bash\nls -l"), code(optional), code(helper)]
    book["cells"] = [*top, *exercises, code("1 / 0"), *exercises]
    submission = read_notebook(save(book, tmp_path))
    grades = grade_notebook(EXERCISES[COURSE], submission, run, SEED)
    assert {grade.name: grade.reason for grade in grades if grade.name == name} == {name: ""}


def test_the_last_cell_of_a_function_counts(book: dict[str, Any], tmp_path: Path) -> None:
    at = place(book, "shift_by")
    book["cells"][at + 1] = code(solution("shift_by"))
    grades = grade_folder(save(book, tmp_path).parent, run)
    assert [grade.name for grade in grades if grade.score] == ["shift_by"]


def test_a_function_that_is_missing_or_broken_scores_0(
    book: dict[str, Any], tmp_path: Path
) -> None:
    del book["cells"][place(book, "shift_by")]
    book["cells"][place(book, "attention_map")] = code("def attention_map(:\n    pass")
    grades = {grade.name: grade for grade in grade_folder(save(book, tmp_path).parent, run)}
    assert grades["shift_by"].reason == "no cell defines shift_by"
    assert "SyntaxError" in grades["attention_map"].reason
    assert grades["fourier_features"].reason == "not written yet"


def test_another_seed_may_be_given(book: dict[str, Any], tmp_path: Path) -> None:
    del book["metadata"]["regard"]
    folder = save(book, tmp_path).parent
    with pytest.raises(UserError, match="seed: is no seed; pass the student's --seed"):
        grade_folder(folder, run)
    assert len(grade_folder(folder, run, seed=3)) == len(NAMES)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\x00",
        "[]",
        "{}",
        '{"cells": 3}',
        '{"cells": [3]}',
        '{"cells": [{"cell_type": "code"}]}',
        '{"cells": [{"cell_type": "code", "source": 3}]}',
    ],
)
def test_a_file_that_is_no_notebook_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / f"{COURSE}.ipynb"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{COURSE}.ipynb: is not a notebook"):
        read_notebook(path)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "3", None, True])
def test_a_seed_that_is_none_is_missing(seed: object, book: dict[str, Any], tmp_path: Path) -> None:
    book["metadata"]["regard"]["seed"] = seed
    assert read_notebook(save(book, tmp_path)).seed is None


def test_operators_may_begin_a_line(book: dict[str, Any], tmp_path: Path) -> None:
    source = "def f(a, b):\n    return (a\n        != b\n    ), (\n        a\n        % b)"
    book["cells"].append(code(source))
    assert read_notebook(save(book, tmp_path)).cells[-1] == source


def test_half_a_character_can_be_sent(book: dict[str, Any], tmp_path: Path) -> None:
    book["cells"].append(code("# \ud83d"))
    assert read_notebook(save(book, tmp_path)).cells[-1].encode() == b"# ?"


@pytest.mark.parametrize(
    "cell",
    [
        *("torch.softmax?", "?torch.cat", "torch.*max??", "\n%%bash\nls -l"),
        "def f():\n    x?\n    return 1",
    ],
)
def test_help_and_late_magics_are_left_out(cell: str, book: dict[str, Any], tmp_path: Path) -> None:
    book["cells"].append(code(cell))
    compile(read_notebook(save(book, tmp_path)).cells[-1], "cell", "exec")


@pytest.mark.parametrize("cell", ["'what?'", "# why?", "x = [\n    a\n    % b]"])
def test_question_marks_elsewhere_stay(cell: str, book: dict[str, Any], tmp_path: Path) -> None:
    book["cells"].append(code(cell))
    assert read_notebook(save(book, tmp_path)).cells[-1] == cell
