"""Programs as cells of a notebook, graded in this process."""

import torch
from solutions import SOLUTIONS

from regard.exercises.exercise import Exercise
from regard.exercises.grade import Grade, grade
from regard.exercises.notebook import IMPORTS
from regard.exercises.registry import EXERCISES
from regard.exercises.worker import Answers, Job, run_job

ALL = {exercise.name: exercise for group in EXERCISES.values() for exercise in group}
SEED = 7


def filled(name: str, body: str) -> str:
    """Return the cell of an exercise with a body in the place of its blank."""
    head, blank, _ = ALL[name].stub.rpartition("    raise NotImplementedError")
    assert blank
    return f"{head}{body}\n"


def solution(name: str) -> str:
    """Return the cell with a right program."""
    return filled(name, SOLUTIONS[name].body)


def mutant(name: str, old: str, new: str) -> str:
    """Return the cell with a mistake in its program."""
    body = SOLUTIONS[name].body
    assert old in body, f"{name}: {old}"
    return filled(name, body.replace(old, new))


def run(job: Job) -> Answers:
    """Run a job in this process."""
    try:
        return run_job(job)
    finally:
        torch.set_default_dtype(torch.float32)  # the notebooks' first cell changes it


def graded(exercise: Exercise, source: str) -> Grade:
    """Grade a cell without a process of its own."""
    return grade(exercise, [("imports", IMPORTS), ("its cell", source)], run, SEED)
