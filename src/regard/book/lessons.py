"""Twelve lessons, a path through the parts of the courses; their texts are in lessons.toml.

A text is prose with TeX between `$…$`; a blank line ends a paragraph.
"""

from functools import cache
from typing import Annotated, Literal

from msgspec import Meta

from regard.config import Config, convert, parse_toml
from regard.courses import Option
from regard.courses.course import Text, joined_lines
from regard.errors import UserError
from regard.exercises.exercise import Exercise
from regard.exercises.registry import EXERCISES
from regard.files import packaged_text

View = Literal["head", "scale", "mask", "positions", "heads", "next"]
"""A view of the live model, drawn by static/lessons.js."""
_AS_WRITTEN = ("code", "output")


class Lesson(Config, frozen=True):
    """A lesson: an idea, a program, a question, and a picture that answers it.

    >>> first, *_ = all_lessons()
    >>> first.title, first.needs, first.view
    ('One head', (), 'head')
    """

    name: Annotated[str, Meta(pattern="^[a-z]+(-[a-z]+)*$")]
    title: Text
    summary: Text
    """The lesson in a sentence, for the start page."""
    text: Text
    code: Text
    """A program of about ten lines."""
    output: Text
    """Output of the program."""
    question: Text
    """Question that asks for a prediction of the picture."""
    options: Annotated[tuple[Option, ...], Meta(min_length=2)]
    reason: Text
    """Explanation of the picture."""
    parts: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Places of the parts of courses that belong to the lesson, "practical-4 2.a"."""
    needs: tuple[str, ...] = ()
    """Names of earlier lessons."""
    view: View | None = None
    """View of the live model."""
    sentence: str = ""
    """Initial text of the view."""
    head: Annotated[str, Meta(pattern=r"^\d+\.\d+$")] = "1.1"
    """Initial layer and head of the view."""
    examples: tuple[str, ...] = ()
    """More texts, each with a button."""
    study: str | None = None
    """Name of the study whose figure and slider are the picture, if there is no view."""
    exercise: str | None = None
    """Course and part of an exercise, such as "practical-4 2.b"."""

    def __post_init__(self) -> None:
        if (self.view is None) == (self.study is None):
            raise ValueError(f"{self.name}: give either view or study")
        for text in (self.sentence, *self.examples):
            if len(text) > self.longest:
                raise ValueError(f"{text!r}: has {len(text)} characters; shorten to {self.longest}")

    @property
    def longest(self) -> int:
        """Largest number of characters of the view's text, so that a map fits a phone."""
        return 64 if self.view == "next" else 32

    @property
    def id(self) -> str:
        """The id of its element in the book."""
        return f"lesson-{self.name}"


@cache
def all_lessons() -> tuple[Lesson, ...]:
    """Return the lessons in the order of the path.

    >>> len(all_lessons())
    12
    """
    return read_lessons(packaged_text("book/lessons.toml"), where="lessons.toml")


def read_lessons(text: str, *, where: str) -> tuple[Lesson, ...]:
    """Return lessons from TOML: a `[[lessons]]` table per lesson.

    Raises:
        UserError: a field is invalid; the message names the file, the lesson and the field.
    """
    tables = parse_toml(text, where=where).get("lessons", [])
    return tuple(
        convert(
            {
                name: value.strip("\n") if name in _AS_WRITTEN else joined_lines(value)
                for name, value in table.items()
            },
            Lesson,
            where=f"{where}, lesson {number}",
        )
        for number, table in enumerate(tables, 1)
    )


def find_exercise(place: str) -> Exercise:
    """Return an exercise by course and part.

    Raises:
        UserError: there is none.

    >>> find_exercise("practical-4 2.b").title
    'A query for given weights'
    """
    for exercises in EXERCISES.values():
        for exercise in exercises:
            if f"{exercise.course} {exercise.part}" == place:
                return exercise
    raise UserError(f"{place}: no such exercise")
