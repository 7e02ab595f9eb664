"""Write notebooks of exercises for a student, read them for grading, and write the answer key.

A notebook is JSON of nbformat 4.5. The grader finds functions by their names, so students may add,
move and delete other cells.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.courses import COURSES
from regard.errors import UserError
from regard.exercises.exercise import Exercise
from regard.exercises.values import literal
from regard.files import read_text

IMPORTS = """\
import math

import torch
from jaxtyping import Bool, Float, Int
from regard.exercises.check import Checker
from torch import Tensor

torch.set_default_dtype(torch.float64)"""
_INTRODUCTION = """\
# {title}

{count} exercises, {points} points. Replace `raise NotImplementedError` by your program; keep the
names of functions and parameters. The cell below each function calls it with random numbers of your
own (seed {seed}), and `check` says whether the result is right: after a wrong try what is wrong,
then a hint if it knows the mistake, then where to read. `regard exercises check FOLDER` grades the
functions on other random inputs too.

The grader runs the cells above the first exercise, such as imports and your own helpers, and then
the cell of one exercise at a time. Other cells that you add aren't graded."""


# Written


def notebook(exercises: Sequence[Exercise], seed: int) -> dict[str, Any]:
    """Return the notebook of a course, with a student's numbers."""
    course = exercises[0].course
    introduction = _INTRODUCTION.format(
        title=COURSES[course],
        count=len(exercises),
        points=sum(exercise.points for exercise in exercises),
        seed=seed,
    )
    cells = [
        _cell("introduction", introduction),
        _cell("imports", f'{IMPORTS}\ncheck = Checker("{course}", seed={seed})', code=True),
    ]
    for exercise in exercises:
        name = exercise.name.replace("_", "-")
        cells += [
            _cell(f"{name}-problem", _problem(exercise)),
            _cell(name, exercise.stub, code=True),
            _cell(f"{name}-numbers", _call(exercise, seed), code=True),
        ]
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "regard": {"course": course, "seed": seed},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(name: str, source: str, *, code: bool = False) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": "code" if code else "markdown", "id": name, "metadata": {}}
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if code else {}
    return {**cell, **more, "source": source}


def _problem(exercise: Exercise) -> str:
    points = f"{exercise.points} point" + ("s" if exercise.points > 1 else "")
    return f"## {exercise.part} {exercise.title} ({points})\n\n{exercise.problem}"


def _call(exercise: Exercise, seed: int) -> str:
    """Return a call of the function with the student's numbers, and the check."""
    arguments = [
        f"    {name}={literal(value)}," for name, value in exercise.inputs(seed, 0).items()
    ]
    called = [f"result = {exercise.name}(", *arguments, ")"]
    return "\n".join(["# Your numbers.", *called, "print(result)", f"check({exercise.name})"])


# Read


class Submission(NamedTuple):
    """A student's notebook."""

    seed: int | None
    cells: list[str]
    """Source of the code cells, in order, without the commands of IPython."""

    def program(self, name: str, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return the labeled sources that define a function; empty if no cell defines it.

        `names` are the functions of all exercises; cells above the first one are run, too.
        """
        own = [cell for cell in self.cells if _defines(cell, [name])]
        if not own:
            return []
        first = next(i for i, cell in enumerate(self.cells) if _defines(cell, names))
        return [("the first cells", "\n".join(self.cells[:first])), ("its cell", own[-1])]


COMMAND = r"(?:(?:%+[A-Za-z]|!(?!=)|\?).*|[\w.*]+\?{1,2}[ \t]*)$"
"""A command of IPython; a line of Python may also begin with the operator % or !=."""


def read_notebook(path: Path) -> Submission:
    """Return the code of a notebook.

    Raises:
        UserError: the file is not a notebook.
    """
    try:
        content = json.loads(read_text(path))
        cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        sources = [_source(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path}: is not a notebook; save it in Jupyter as .ipynb") from None
    metadata = content.get("metadata")
    about = metadata.get("regard") if isinstance(metadata, Mapping) else None
    seed = about.get("seed") if isinstance(about, Mapping) else None
    return Submission(seed if type(seed) is int and 0 <= seed < 2**32 else None, sources)


def _source(source: str | list[str]) -> str:
    """Return the Python code of a cell, without lines such as %timeit and !pip."""
    text = source if isinstance(source, str) else "".join(source)
    text = text.encode("utf-8", "replace").decode()  # JSON may hold half of a character
    if re.match(r"\s*%%(?!time|timeit|capture|prun)", text):
        return ""  # of another language
    text = re.sub(rf"^{COMMAND}", "", text, flags=re.MULTILINE)
    return re.sub(rf"^([ \t]+){COMMAND}", r"\1pass", text, flags=re.MULTILINE)


def _defines(cell: str, names: Sequence[str]) -> bool:
    return re.search(rf"^def ({'|'.join(names)})\b", cell, re.MULTILINE) is not None


def answer_key(exercises: Sequence[Exercise], seed: int) -> str:
    """Return Markdown: the solution of each exercise, and the results for a student's numbers."""
    lines = [f"# {COURSES[exercises[0].course]}: answers, seed {seed}", ""]
    for exercise in exercises:
        inputs = exercise.inputs(seed, 0)
        result = exercise.reference(**inputs)
        results = result if isinstance(result, tuple) else (result,)
        lines += [
            f"## {exercise.part} {exercise.title}",
            "",
            exercise.explanation,
            "",
            *(f"- {mistake.hint}" for mistake in exercise.mistakes),
            "",
            "```python",
            "# One of many right results." if exercise.observe else "# The result.",
            *(literal(value, indent="") for value in results),
            "```",
            "",
        ]
    return "\n".join(lines)
