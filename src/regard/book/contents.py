"""Contents of the book: lessons, parts of courses with evidence, and each study in full once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.book.lessons import Lesson, all_lessons
from regard.courses import COURSES, Correction, Part, Shown, all_parts
from regard.derivations import DERIVATIONS
from regard.derivations.derivation import Derivation
from regard.derivations.line_exercises import (
    MissingLine,
    WrongLine,
    missing_line,
    wrong_line,
)
from regard.errors import UserError, suggestion
from regard.studies.finding import Finding, Row
from regard.studies.quotations import corrections_of, with_numbers
from regard.studies.registry import THEMES, all_studies
from regard.studies.study import STORED_SEEDS, Study

T = TypeVar("T")


@dataclass(frozen=True)
class Proof:
    """A derivation with the relative error of each line."""

    derivation: Derivation
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Results:
    """Everything that ran for the book."""

    findings: Mapping[str, Finding]
    figures: Mapping[str, Sequence[str]]
    """SVG elements of each finding's figure: panels, then the legend or scale they share."""
    proofs: Mapping[str, Proof]


@dataclass(frozen=True)
class Item:
    """A statement of an answer, with its evidence."""

    id: str
    """The id of its element on the page."""
    shown: Shown
    kind: str
    """Kind of evidence, the prefix of `shown.by`: study, figure, derivation, command or page."""
    name: str
    """Name of the study or derivation, the command, or the page."""
    measurement: Row | None = None


@dataclass(frozen=True)
class Block:
    """A study, a derivation or a section of the documentation in a part."""

    name: str
    in_full: bool
    """Whether this is its first occurrence in the book."""


@dataclass(frozen=True)
class Entry:
    """A part of a course on the page."""

    id: str
    part: Part
    items: tuple[Item, ...]
    studies: tuple[Block, ...]
    derivations: tuple[Block, ...]
    sections: tuple[Block, ...]
    """Sections of the documentation, by address."""
    missing_line: MissingLine | None
    """An exercise made from the part's derivation, if there is one."""
    wrong_line: WrongLine | None
    corrections: tuple[Correction, ...]
    """Errors in the course's document at this part."""


@dataclass(frozen=True)
class Chapter:
    """A course."""

    id: str
    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Book:
    """Lessons, chapters, and the studies that no part shows."""

    chapters: tuple[Chapter, ...]
    others: tuple[str, ...]
    """Names of the studies after the courses."""
    results: Results
    lessons: tuple[Lesson, ...] = ()

    def lesson(self, name: str) -> Lesson:
        """Return a lesson by name."""
        return next(lesson for lesson in self.lessons if lesson.name == name)

    def entries_of(self, lesson: Lesson) -> list[Entry]:
        """Return the parts of the book that belong to a lesson, in its order."""
        entries = {entry.part.place: entry for each in self.chapters for entry in each.entries}
        return [entries[place] for place in lesson.parts if place in entries]

    def lessons_of(self, entry: Entry) -> list[Lesson]:
        """Return the lessons that a part belongs to."""
        return [lesson for lesson in self.lessons if entry.part.place in lesson.parts]

    @property
    def corrected(self) -> tuple[Entry, ...]:
        """The parts with errors in a course's document."""
        entries = (entry for chapter in self.chapters for entry in chapter.entries)
        return tuple(entry for entry in entries if entry.corrections)

    @property
    def n_questions(self) -> int:
        """Number of questions of courses."""
        return sum(len(chapter.entries) for chapter in self.chapters)

    @property
    def subject(self) -> str:
        """Subject of the book, for its title: courses, a course, a question, or studies."""
        if self.n_questions == len(all_parts()):
            return "five courses, part by part"
        match self.chapters:
            case ():
                findings = [self.results.findings[name] for name in self.others]
                return findings[0].study.question if len(findings) == 1 else "studies"
            case (Chapter(title=title, entries=(entry,)),):
                return f"{title}, {entry.part.number}"
            case (Chapter(title=title),):
                return title
        return f"questions of {len(self.chapters)} courses"


Track = Callable[[list[Study[Any]]], Iterable[Study[Any]]]
"""Iterates over studies, and may show progress."""


def make_book(only: Sequence[str] = (), *, train: bool = False, track: Track = iter) -> Book:
    """Run the studies and derivations of parts, and arrange them.

    `only` names the courses, parts, themes and studies to include, in this order; by default, the
    lessons come first and everything is included.
    Studies that train models show stored results, unless `train` is set.

    Raises:
        UserError: there is no such course, part, theme or study.
    """
    parts, studies = choose(only) if only else (list(all_parts()), list(all_studies()))
    findings = {study.name: _finding(study, train=train) for study in track(studies)}
    proofs = {
        name: Proof(DERIVATIONS[name], DERIVATIONS[name].check(seed=0))
        for name in DERIVATIONS
        if not only or any(name in derivations_of(part) for part in parts)
    }
    figures = {name: finding.panels() for name, finding in findings.items()}
    lessons = () if only else all_lessons()
    return arrange(parts, Results(findings, figures, proofs), lessons)


def choose(names: Sequence[str]) -> tuple[list[Part], list[Study[Any]]]:
    """Return the named parts, and their studies together with the named studies.

    A name is a course, a course and the beginning of a number ("jhu-hw5 3"), a theme, or a study.

    Raises:
        UserError: there is no such course, part, theme or study.
    """
    parts: dict[str, Part] = {}
    chosen: dict[str, Study[Any]] = {}
    studies = {study.name: study for study in all_studies()}
    themes = {theme.name: theme.studies for theme in THEMES}
    for name in names:
        if found := _parts(name):
            parts |= {part.place: part for part in found}
            chosen |= {study: studies[study] for part in found for study in part.studies}
        elif name in themes:
            chosen |= {study.name: study for study in themes[name]}
        elif name in studies:
            chosen[name] = studies[name]
        else:
            known = [*COURSES, *(part.place for part in all_parts()), *themes, *studies]
            raise UserError(
                f"--only {name}: is no course, part, theme or study; regard courses and regard "
                f"study list show all{suggestion(name, known)}"
            )
    return list(parts.values()), list(chosen.values())


def _parts(name: str) -> list[Part]:
    course, _, number = name.partition(" ")
    return [
        part
        for part in all_parts()
        if part.course == course and f"{part.number}.".startswith(f"{number}." if number else "")
    ]


def _finding(study: Study[Any], *, train: bool) -> Finding:
    if not study.trains:
        return study()
    return study.over_seeds(STORED_SEEDS) if train else study.stored_result()


def arrange(parts: Iterable[Part], results: Results, lessons: Sequence[Lesson] = ()) -> Book:
    """Arrange parts by course; each study or derivation is in full at its first occurrence."""
    studies, derivations, sections = set[str](), set[str](), set[str]()
    chapters: dict[str, list[Entry]] = {}
    for part in parts:
        part = with_numbers(part, results.findings)
        items = tuple(_item(part, shown, results) for shown in part.shown)
        whole = [item.name for item in items if item.kind in ("study", "figure")
                 and item.measurement is None]  # fmt: skip
        entry = Entry(
            id=part.anchor,
            part=part,
            items=items,
            studies=_blocks(whole, studies),
            derivations=_blocks(derivations_of(part), derivations),
            sections=_blocks(sections_of(part), sections),
            missing_line=_line_exercise(missing_line, part, results),
            wrong_line=_line_exercise(wrong_line, part, results),
            corrections=tuple(
                correction
                for name in part.studies
                for correction in corrections_of(results.findings[name])
                if (correction.course, correction.part) == (part.course, part.number)
            ),
        )
        chapters.setdefault(part.course, []).append(entry)
    return Book(
        chapters=tuple(
            Chapter(course, COURSES[course], tuple(entries)) for course, entries in chapters.items()
        ),
        others=tuple(name for name in results.findings if name not in studies),
        results=results,
        lessons=tuple(lessons),
    )


def _line_exercise(
    make: Callable[[Derivation, str], T | None], part: Part, results: Results
) -> T | None:
    """Return an exercise made from the lines of a part's derivation, always the same."""
    if part.derivation is None:
        return None
    return make(results.proofs[part.derivation].derivation, part.place)


def derivations_of(part: Part) -> tuple[str, ...]:
    """Return the names of the derivations of a part."""
    return tuple(dict.fromkeys([*filter(None, [part.derivation]), *_named(part, "derivation")]))


def sections_of(part: Part) -> tuple[str, ...]:
    """Return the addresses of the sections of the documentation of a part."""
    return tuple(dict.fromkeys([*_named(part, "page"), *part.pages]))


def _named(part: Part, kind: str) -> list[str]:
    """Return the names of a part's evidence of one kind."""
    shown = (one.by.partition(":") for one in part.shown)
    return [name for found, _, name in shown if found == kind]


def _item(part: Part, shown: Shown, results: Results) -> Item:
    kind, _, name = shown.by.partition(":")
    id_ = f"{part.anchor}-{shown.id}"
    if kind != "study":
        return Item(id_, shown, kind, name)
    study, _, number = name.partition("/")
    finding = results.findings[study]
    return Item(id_, shown, kind, study, finding.row(number) if number else None)


def _blocks(names: Iterable[str], before: set[str]) -> tuple[Block, ...]:
    """Return a block for each name, and add the names to those `before`."""
    blocks = tuple(Block(name, name not in before) for name in dict.fromkeys(names))
    before.update(names)
    return blocks
