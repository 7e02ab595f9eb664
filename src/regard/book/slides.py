"""The book as slides: contents split so that each fits a projector."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from regard.book.contents import Block, Book, Chapter, Entry
from regard.courses import Option

LETTERS = 850
"""Largest number of letters of text on a slide."""
LINES = 14
"""Largest number of lines of text beside or above the formulas of a derivation."""
APART = 80
"""Space between two options, in letters."""
REASON_LINE, GIVEN_LINE = 38, 90
"""Letters per line beside a formula, and per line of full width."""
QUESTIONS = 8
"""Largest number of questions in a list."""


@dataclass(frozen=True, kw_only=True)
class Slide:
    """One screen; `kind` determines the fields that it shows."""

    kind: str
    id: str
    chapter: Chapter | None = None
    entry: Entry | None = None
    entries: Sequence[Entry] = ()
    """Questions of a table of contents."""
    answer: Sequence[str] = ()
    """Paragraphs of an answer; after a question, they are shown on demand."""
    options: Sequence[Option] = ()
    first: int = 0
    """Number of the first option or line."""
    count: int = 0
    """Number of lines."""
    block: Block | None = None
    """A study or derivation."""


def make_slides(book: Book) -> list[Slide]:
    """Return all slides of a book."""
    opening = [Slide(kind="title", id="title"), Slide(kind="overview", id="overview")]
    slides = opening if len(book.chapters) > 1 else opening[:1]
    for chapter in book.chapters:
        slides += _contents(chapter)
        for entry in chapter.entries:
            slides += _part(book, chapter, entry)
    studies = (
        Slide(kind="study", id=f"study-{n}", block=Block(n, in_full=True)) for n in book.others
    )
    return [*slides, *studies]


def balanced(sizes: Sequence[int], limit: int) -> list[range]:
    """Split consecutive items into the fewest groups within a size limit, of similar sizes.

    An item above the limit forms its own group.
    """
    fewest = len(_greedy(sizes, limit))
    enough = (limit * part // 20 for part in range(1, 20))
    return next(
        (found for most in enough if len(found := _greedy(sizes, most)) == fewest),
        _greedy(sizes, limit),
    )


def _greedy(sizes: Sequence[int], limit: int) -> list[range]:
    groups: list[range] = []
    size = limit + 1
    for place, one in enumerate(sizes):
        if size + one > limit:
            groups.append(range(place, place + 1))
            size = one
        else:
            groups[-1] = range(groups[-1].start, place + 1)
            size += one
    return groups


def _contents(chapter: Chapter) -> Iterator[Slide]:
    """Yield slides that list the questions of a course."""
    for group in balanced([1] * len(chapter.entries), QUESTIONS):
        yield Slide(
            kind="contents",
            id=chapter.id if group.start == 0 else f"{chapter.id}-{group.start}",
            chapter=chapter,
            entries=chapter.entries[group.start : group.stop],
        )


def _part(book: Book, chapter: Chapter, entry: Entry) -> Iterator[Slide]:
    """Yield slides of a question with its answer, options, studies and derivations."""
    at = partial(Slide, chapter=chapter, entry=entry)
    part = entry.part
    paragraphs = [text for text in part.answer.split("\n\n") if text]
    asked = len(part.problem) + sum(len(option.text) for option in part.options)
    first, *groups = balanced([asked, *map(len, paragraphs)], LETTERS)
    yield at(kind="question", id=entry.id, answer=paragraphs[: first.stop - 1])
    for group in groups:
        shown = paragraphs[group.start - 1 : group.stop - 1]
        yield at(kind="answer", id=f"{entry.id}--answer-{group.start}", answer=shown)
    sizes = [len(one.text) + len(one.why) + APART for one in part.options]
    for group in balanced(sizes, LETTERS):
        options = part.options[group.start : group.stop]
        id_ = f"{entry.id}--options-{group.start + 1}"
        yield at(kind="options", id=id_, options=options, first=group.start)
    for block in entry.studies:
        yield at(kind="study", id=f"{entry.id}--study-{block.name}", block=block)
    for block in entry.derivations:
        if not block.in_full:
            continue
        derivation = book.results.proofs[block.name].derivation
        sizes = [1 + ceil(len(step.text) / REASON_LINE) for step in derivation.steps]
        sizes[0] += ceil(len(derivation.given) / GIVEN_LINE)
        for group in balanced(sizes, LINES):
            id_ = f"{entry.id}--{block.name}-{group.start + 1}"
            yield at(kind="proof", id=id_, block=block, first=group.start, count=len(group))
