"""Grades: a student's functions on fresh random inputs, with a hint for each known mistake."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regard.errors import UserError
from regard.exercises.exercise import INSTANCES, Exercise, Inputs, Result
from regard.exercises.notebook import Submission, read_notebook
from regard.exercises.registry import EXERCISES
from regard.exercises.values import decode, difference, encode
from regard.exercises.worker import UNREADABLE, Answers, Job

Run = Callable[[Job], Answers]


class Grade(msgspec.Struct, frozen=True):
    """The points of one exercise."""

    course: str
    part: str
    name: str
    title: str
    score: int
    max_score: int
    hint: str = ""
    """Hint for the typical mistake, if recognized."""
    reason: str = ""
    """Error in the result, or the reason for its absence."""
    output: str = ""
    """The beginning of what the student's code printed."""


def grade_folder(folder: Path, run: Run, *, seed: int | None = None) -> list[Grade]:
    """Grade all notebooks of a folder.

    `seed` replaces the student's seed, which the notebooks contain.

    Raises:
        UserError: there is no notebook, one can't be read, or has no seed.
    """
    grades = []
    for course, path in notebooks(folder).items():
        submission = read_notebook(path)
        own_seed = require_seed(submission, path) if seed is None else seed
        grades += grade_notebook(EXERCISES[course], submission, run, own_seed)
    return grades


def notebooks(folder: Path) -> dict[str, Path]:
    """Return the notebooks of a folder by course.

    Raises:
        UserError: there is no such folder, or no notebook in it.
    """
    if folder.is_file():
        raise UserError(f"{folder}: is a file; name its folder, {folder.parent}")
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; write one with `regard exercises new`")
    paths = {course: folder / f"{course}.ipynb" for course in EXERCISES}
    found = {course: path for course, path in paths.items() if path.exists()}
    if not found:
        names = ", ".join(path.name for path in paths.values())
        raise UserError(f"{folder}: has no notebook of exercises; one of {names} is required")
    return found


def require_seed(submission: Submission, path: Path) -> int:
    """Return the student's seed.

    Raises:
        UserError: the notebook doesn't contain it.
    """
    if submission.seed is None:
        raise UserError(f"{path}: metadata.regard.seed: is no seed; pass the student's --seed")
    return submission.seed


def grade_notebook(
    exercises: Sequence[Exercise], submission: Submission, run: Run, seed: int
) -> list[Grade]:
    """Grade the exercises of one course."""
    names = [exercise.name for exercise in exercises]
    return [
        grade(exercise, submission.program(exercise.name, names), run, seed)
        for exercise in exercises
    ]


def grade(exercise: Exercise, program: list[tuple[str, str]], run: Run, seed: int) -> Grade:
    """Grade one exercise: all points if every result is right, else none."""
    cases = [exercise.inputs(seed, index) for index in range(INSTANCES)]
    if program:
        inputs = [{name: encode(x) for name, x in case.items()} for case in cases]
        answers = run(Job(program, exercise.name, inputs, exercise.restrictions))
    else:
        answers = Answers(reason=f"no cell defines {exercise.name}")
    hint, reason = judge(exercise, cases, answers)
    return Grade(
        course=exercise.course,
        part=exercise.part,
        name=exercise.name,
        title=exercise.title,
        score=0 if reason else exercise.points,
        max_score=exercise.points,
        hint=hint,
        reason=_printable(reason),
        output=_printable(answers.output),
    )


def judge(exercise: Exercise, cases: Sequence[Inputs], answers: Answers) -> tuple[str, str]:
    """Return the hint and the error; both are empty if every result is right."""
    if answers.reason:
        return "", answers.reason
    try:
        values = [decode(value) for value in answers.returned]
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return "", UNREADABLE
    if not len(values) == len(answers.entries) == len(cases):
        return "", UNREADABLE
    wrong, reasons = list[tuple[Inputs, Result]](), []
    for case, value, entries in zip(cases, values, answers.entries, strict=True):
        result = exercise.observed(value, entries, case)
        if reason := _wrong(exercise, value, result, case):
            wrong.append((case, result))
            reasons.append(reason)
    if not wrong:
        return "", ""
    several = f" for {len(wrong)} of {len(cases)} inputs" if len(wrong) < len(cases) else ""
    return _hint(exercise, wrong), reasons[0] + several


def _printable(text: str) -> str:
    """Return printed text of a student's code without control characters."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def _wrong(exercise: Exercise, value: Any, result: Result, case: Inputs) -> str:
    """Return the error in a result, or ""."""
    if reason := exercise.wrong_form(value, case):
        return reason
    if reason := difference(result.value, exercise.expected(case).value, exercise.tolerance):
        return reason
    return "makes a tensor with more entries than allowed" if result.exceeds else ""


def _hint(exercise: Exercise, wrong: Sequence[tuple[Inputs, Result]]) -> str:
    """Return the hint of the mistake that gives all these results, or ""."""
    for mistake in exercise.mistakes:
        for program in mistake.programs:
            if all(exercise.same(result, exercise.run(program, case)) for case, result in wrong):
                return mistake.hint
    return ""


# Output


def totals(grades: Sequence[Grade]) -> tuple[int, int]:
    """Return the points, and their maximum."""
    return sum(grade.score for grade in grades), sum(grade.max_score for grade in grades)


def as_json(grades: Sequence[Grade]) -> Mapping[str, Any]:
    """Return the grades, as plain values."""
    score, max_score = totals(grades)
    exercises = [msgspec.to_builtins(grade) for grade in grades]
    return {"score": score, "max_score": max_score, "exercises": exercises}


def as_gradescope(grades: Sequence[Grade]) -> bytes:
    """Return the results.json that Gradescope reads."""
    tests = [
        {
            "name": f"{grade.course} {grade.part} {grade.title}",
            "score": grade.score,
            "max_score": grade.max_score,
            "status": "failed" if grade.reason else "passed",
            "output": "\n\n".join(x for x in (grade.hint, grade.reason, grade.output) if x),
        }
        for grade in grades
    ]
    results = {"score": totals(grades)[0], "tests": tests}
    return (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode()
