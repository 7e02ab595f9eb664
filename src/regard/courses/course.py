"""The parts of a course: problem, answer, and what shows it; and its errors. One TOML file each.

Texts are prose with TeX between `$…$`; a blank line ends a paragraph.
"""

import re
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from regard.config import Config, convert, parse_toml
from regard.errors import UserError, alternatives
from regard.files import packaged_text

T = TypeVar("T", bound="Part | Correction")
COURSES = {
    "jhu-hw5": "Johns Hopkins CS 601.471/671, Self-supervised Models, Homework 5 (spring 2023)",
    "practical-4": "Deep Natural Language Processing, Practical 4 (2023), "
    "after Stanford CS224N, assignment 5",
    "eecs182-transformers": "UC Berkeley EECS 182, Transformers and Pretraining (spring 2023)",
    "eecs182-hw8": "UC Berkeley EECS 182, Homework 8 (fall 2022)",
    "eecs182-disc8": "UC Berkeley EECS 182, Discussion 8 (spring 2023)",
}
"""Titles of the courses."""

Kind = Literal["explain", "derive", "compute", "program", "look", "choose"]
"""What a part asks for; `look`: a description of a trained model's attention."""

Text = Annotated[str, Meta(min_length=1)]


class Option(Config, frozen=True):
    """An option of a multiple-choice question.

    >>> option = Option(text="Softmax", right=False, why="It is computed from all keys.")
    >>> option.right
    False
    """

    text: Text
    right: bool
    why: Text
    """Reason why it is right or wrong."""


class Shown(Config, frozen=True):
    """A statement of the answer, and what shows it.

    >>> [shown, *_] = find_part("practical-4", "2.c.1").shown
    >>> shown.by
    'derivation:noisy-keys'
    """

    id: Annotated[str, Meta(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    """Unique within the part."""
    text: Text
    by: Annotated[str, Meta(pattern="^(study|figure|derivation|command|page):.")]
    """`study:NAME`, `study:NAME/MEASUREMENT`, `figure:NAME` (the figure of study NAME),
    `derivation:NAME`, `command:regard …` or `page:docs/….md#anchor`."""


class Part(Config, frozen=True):
    """A question of a course, with its answer.

    >>> part: Part = find_part("practical-4", "2.c.1")
    >>> part.question
    'Which query averages two values if the keys are noisy?'
    >>> part.kind, part.studies
    ('derive', ('noisy-keys-one-head',))
    """

    course: str
    """A key of `COURSES`."""
    number: str
    """Its number in the course, such as "2.c.1"."""
    kind: Kind
    problem: Text
    """The question, then the definitions that it needs."""
    answer: Text
    """Complete without the studies; numbers that they measure are quoted
    (`studies.quotations`)."""
    shown: Annotated[tuple[Shown, ...], Meta(min_length=1)]
    options: tuple[Option, ...] = ()
    """The options of a multiple-choice question."""
    derivation: str | None = None
    """Name of its derivation."""
    pages: tuple[str, ...] = ()
    """Further sections of the documentation, as in `page:`."""
    command: str | None = None
    """A command that performs the task, or shows the answer."""

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies that show the answer."""
        shown = (one.by.partition(":") for one in self.shown)
        names = (by.partition("/")[0] for kind, _, by in shown if kind in ("study", "figure"))
        return tuple(dict.fromkeys(names))

    @property
    def question(self) -> str:
        """The first sentence of the problem."""
        return re.split(r"(?<=[.?]) (?=[A-Z$])", self.problem, maxsplit=1)[0]

    @property
    def place(self) -> str:
        """Course and number, such as "practical-4 2.c.1"."""
        return f"{self.course} {self.number}"

    @property
    def anchor(self) -> str:
        """The id of its element in the book."""
        return f"{self.course}-{self.number}"


class Correction(Config, frozen=True):
    """An error in a course.

    >>> correction: Correction = all_corrections()[0]
    >>> find_part(correction.course, correction.part).studies.count(correction.study)
    1
    """

    course: str
    """A key of `COURSES`."""
    part: str
    """Number of the part that it corrects."""
    study: str
    """Name of the study of this part whose measurements show it."""
    says: Text
    right: Text
    """The correct statement, and the reason."""


@cache
def all_parts() -> tuple[Part, ...]:
    """Return the parts of all courses, in the courses' order.

    >>> [part.number for part in all_parts() if part.course == "practical-4"][:5]
    ['2.a', '2.b', '2.c.1', '2.c.2', '2.d.1']
    """
    return _of_all_courses(Part)


@cache
def all_corrections() -> tuple[Correction, ...]:
    """Return the errors of all courses, in the courses' order.

    >>> {one.course for one in all_corrections()} <= set(COURSES)
    True
    """
    return _of_all_courses(Correction)


def _of_all_courses(kind: type[T]) -> tuple[T, ...]:
    """Return the parts or corrections of all courses."""
    return tuple(
        one
        for course in COURSES
        for one in read_course(kind, packaged_text(f"courses/{course}.toml"), course)
    )


def read_course(kind: type[T], text: str, course: str) -> tuple[T, ...]:
    """Return the parts or corrections of a course from TOML, `[[parts]]` or `[[corrections]]`.

    Raises:
        UserError: names the file, the part or correction, and the field.
    """
    name, where = kind.__name__.lower(), f"{course}.toml"
    tables = parse_toml(text, where=where).get(f"{name}s", [])
    return tuple(
        convert(
            {"course": course, **joined_lines(table)},
            kind,
            where=f"{where}, {name} {table.get('number', index)}",
        )
        for index, table in enumerate(tables, 1)
    )


def find_part(course: str, number: str) -> Part:
    """Return a part by course and number.

    Raises:
        UserError: there is no such course or part; names the nearest.

    >>> find_part("practical-4", "2.c.1").question
    'Which query averages two values if the keys are noisy?'
    >>> find_part("practical-4", "2.c.9")
    Traceback (most recent call last):
        ...
    regard.errors.UserError: practical-4 2.c.9: no such part; there are: ...; did you mean 2.c.2?
    """
    require_course(course)
    parts = {part.number: part for part in all_parts() if part.course == course}
    if number not in parts:
        raise UserError(f"{course} {number}: no such part; {alternatives(number, parts)}")
    return parts[number]


def require_course(name: str) -> None:
    """Check the name of a course.

    Raises:
        UserError: there is none; names the nearest.

    >>> require_course("practical-4")
    >>> require_course("practical-5")
    Traceback (most recent call last):
        ...
    regard.errors.UserError: practical-5: no such course; ...; did you mean practical-4?
    """
    if name not in COURSES:
        raise UserError(f"{name}: no such course; {alternatives(name, COURSES)}")


def joined_lines(value: Any) -> Any:
    """Join the lines of each paragraph in all texts of a value."""
    if isinstance(value, str):
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in value.split("\n\n"))
    if isinstance(value, dict):
        return {name: joined_lines(inside) for name, inside in value.items()}
    return [joined_lines(inside) for inside in value] if isinstance(value, list) else value
