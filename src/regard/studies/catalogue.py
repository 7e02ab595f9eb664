"""All studies, by theme, in the order of the book."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import UserError
from regard.studies.by_hand.averaging import averaging
from regard.studies.by_hand.products import products
from regard.studies.study import Study


@dataclass(frozen=True)
class Theme:
    """Studies that belong together."""

    name: str
    about: str
    studies: tuple[Study[Any], ...]


THEMES = (
    Theme(
        "attention by hand",
        "What one head computes, and what queries, keys and values are for.",
        (averaging, products),
    ),
)


def all_studies() -> Iterator[Study[Any]]:
    """Each study, in the order of the book."""
    for theme in THEMES:
        yield from theme.studies


def find_study(name: str) -> Study[Any]:
    """A study by its name, or by a row of the specification that it covers.

    Raises:
        UserError: there is none; names those that there are.
    """
    for study in all_studies():
        if name == study.name or name.upper() in study.rows:
            return study
    known = ", ".join(study.name for study in all_studies())
    raise UserError(f"{name}: no such study; there are: {known}")


def choose_themes(names: Sequence[str]) -> tuple[Theme, ...]:
    """Themes by name, or all.

    Raises:
        UserError: there is no such theme; names those that there are.
    """
    known = {theme.name: theme for theme in THEMES}
    for name in names:
        if name not in known:
            raise UserError(f"{name}: no such theme; there are: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else THEMES
