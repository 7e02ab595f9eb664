"""Programs as cells of a notebook, graded in this process."""

import inspect
from collections.abc import Iterator

import solutions
import torch
from mutants import MUTANTS

from regard.exercises.exercise import Exercise
from regard.exercises.grade import Grade, grade
from regard.exercises.notebook import IMPORTS
from regard.exercises.registry import EXERCISES
from regard.exercises.worker import Answers, Job, run_job

ALL = {exercise.name: exercise for group in EXERCISES.values() for exercise in group}
SEED = 7


def solution(name: str) -> str:
    """Return the source of a right program."""
    return inspect.getsource(getattr(solutions, name))


def mutant(name: str, old: str, new: str) -> str:
    """Return the source of a program with a mistake."""
    source = solution(name)
    assert old in source, f"{name}: {old}"
    return source.replace(old, new)


def mutants() -> Iterator[tuple[str, str, str, str]]:
    """Yield name, change and hint of all mutants."""
    for name, changes in MUTANTS.items():
        for old, new, hint in changes:
            yield name, old, new, hint


def run(job: Job) -> Answers:
    """Run a job in this process."""
    try:
        return run_job(job)
    finally:
        torch.set_default_dtype(torch.float32)  # the notebooks' first cell changes it


def graded(exercise: Exercise, source: str) -> Grade:
    """Grade a cell without a process of its own."""
    return grade(exercise, [("imports", IMPORTS), ("its cell", source)], run, SEED)
