"""Checks in a notebook, on the student's numbers, with more help after each wrong try.

Importing this module doesn't import torch, because the grader runs the notebook's imports, too.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from regard.errors import UserError, alternatives

if TYPE_CHECKING:
    from regard.courses import Part
    from regard.exercises.exercise import Exercise


class Checker:
    """Check the functions of a course; created by the first cell of a notebook."""

    def __init__(self, course: str, *, seed: int) -> None:
        self.course, self.seed = course, seed
        self._wrong_tries = Counter[str]()

    def __call__(self, function: Callable[..., Any]) -> None:
        """Print "right", or help that grows with the number of wrong tries.

        First the error, then the hint if the mistake is a typical one, then the part of the book
        that explains it. Exceptions of the function are raised, except that of a blank.

        Raises:
            UserError: the course has no exercise of this name.
        """
        from regard.exercises.grade import judge
        from regard.exercises.worker import NOT_WRITTEN, Answers, is_blank

        exercise = self._exercise(function)
        inputs = exercise.inputs(self.seed, 0)
        try:
            returned, entries = exercise.call(function, inputs)
        except NotImplementedError as error:
            if not is_blank(error):
                raise
            print(NOT_WRITTEN)
            return
        hint, reason = judge(exercise, [inputs], Answers([returned], [entries]))
        if not reason:
            print("right")
            return
        self._wrong_tries[exercise.name] += 1
        hints = [f"hint: {hint}"] if hint else []
        stages = [f"wrong: {reason}", *hints, _explained(part_of(exercise))]
        print("\n".join(stages[: self._wrong_tries[exercise.name]]))

    def _exercise(self, function: Callable[..., Any]) -> "Exercise":
        from regard.exercises.registry import exercises_of

        exercises = {exercise.name: exercise for exercise in exercises_of(self.course)}
        name = getattr(function, "__name__", repr(function))
        if name not in exercises:
            known = alternatives(name, exercises)
            raise UserError(f"check({name}): no such exercise of {self.course}; {known}")
        return exercises[name]


def part_of(exercise: "Exercise") -> "Part":
    """Return the part of the course that an exercise belongs to, the first of several."""
    from regard.courses import all_parts

    parts = {part.number: part for part in all_parts() if part.course == exercise.course}
    pieces = exercise.part.partition("–")[0].split(".")
    numbers = (".".join(pieces[:n]) for n in range(len(pieces), 0, -1))
    return next(parts[number] for number in numbers if number in parts)


def _explained(part: "Part") -> str:
    """Return the explanation's command and address in the book."""
    return (
        f'explained: regard book --only "{part.place}" --out book, then open'
        f" book/index.html#{part.anchor}"
    )
