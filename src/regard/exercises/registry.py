"""Registry of all exercises, in the order of the courses."""

from types import ModuleType

from regard.errors import UserError, alternatives
from regard.exercises import (
    eecs182_disc8,
    eecs182_hw8,
    eecs182_transformers,
    jhu_hw5_attention,
    jhu_hw5_recurrent,
    practical_4,
)
from regard.exercises.exercise import Exercise

_MODULES: tuple[ModuleType, ...] = (
    jhu_hw5_recurrent,
    jhu_hw5_attention,
    practical_4,
    eecs182_transformers,
    eecs182_hw8,
    eecs182_disc8,
)


def _part(exercise: Exercise) -> list[str]:
    """Return a key that sorts 2.2.1 before 2.10 and c.i before c.ii."""
    return [part.zfill(4) for part in exercise.part.split("–")[0].split(".")]


EXERCISES: dict[str, list[Exercise]] = {}
"""The exercises of each course, by its id."""
for _module in _MODULES:
    for _value in vars(_module).values():
        if isinstance(_value, Exercise):
            EXERCISES.setdefault(_value.course, []).append(_value)
for _exercises in EXERCISES.values():
    _exercises.sort(key=_part)


def exercises_of(course: str) -> list[Exercise]:
    """Return the exercises of a course.

    Raises:
        UserError: there is no such course.
    """
    if course not in EXERCISES:
        raise UserError(f"--course {course}: no such course; {alternatives(course, EXERCISES)}")
    return EXERCISES[course]
