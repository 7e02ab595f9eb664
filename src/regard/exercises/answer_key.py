"""The answer key of a student's notebooks, for the teacher."""

from collections.abc import Sequence

from regard.courses import COURSES
from regard.exercises.exercise import Exercise
from regard.exercises.values import literal


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
