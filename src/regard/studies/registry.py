"""All studies, by theme, in the order of the book."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import regard.studies.kernels as kernels
import regard.studies.knowledge as knowledge
import regard.studies.low_rank as low_rank
import regard.studies.positions as positions
import regard.studies.quiz as quiz
import regard.studies.recurrent as recurrent
import regard.studies.scaling as scaling
import regard.studies.single_head as single_head
import regard.studies.structure as structure
import regard.studies.trained_models as trained_models
from regard.errors import UserError, alternatives
from regard.studies.study import Study


class Theme(NamedTuple):
    """A group of related studies."""

    name: str
    about: str
    studies: tuple[Study[Any], ...]


def _theme(package: ModuleType) -> Theme:
    """Return the theme of a package, whose docstring has the name and the contents."""
    name, about = " ".join((package.__doc__ or "").split()).split(": ", 1)
    studies = (one for one in vars(package).values() if isinstance(one, Study))
    return Theme(name.lower(), about[0].upper() + about[1:], tuple(studies))


THEMES = tuple(
    _theme(package)
    for package in (
        *(single_head, scaling, low_rank, recurrent, positions),
        *(structure, kernels, trained_models, knowledge, quiz),
    )
)


def all_studies() -> Iterator[Study[Any]]:
    """Iterate over all studies, in the order of the book."""
    for theme in THEMES:
        yield from theme.studies


def find_study(name: str) -> Study[Any]:
    """Return a study by name.

    Raises:
        UserError: there is none; lists the available names.
    """
    studies = {study.name: study for study in all_studies()}
    if name not in studies:
        raise UserError(f"{name}: no such study; {alternatives(name, studies)}")
    return studies[name]
