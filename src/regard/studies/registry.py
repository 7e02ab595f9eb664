"""All studies, by theme, in the order of the book."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.errors import UserError, alternatives
from regard.studies.kernels import STUDIES as KERNELS
from regard.studies.knowledge import STUDIES as KNOWLEDGE
from regard.studies.low_rank import STUDIES as LOW_RANK
from regard.studies.positions import STUDIES as POSITIONS
from regard.studies.quiz import STUDIES as QUIZ
from regard.studies.recurrent import STUDIES as RECURRENT
from regard.studies.scaling import STUDIES as SCALING
from regard.studies.single_head import STUDIES as SINGLE_HEAD
from regard.studies.structure import STUDIES as STRUCTURE
from regard.studies.study import Study
from regard.studies.trained_models import STUDIES as TRAINED_MODELS


@dataclass(frozen=True)
class Theme:
    """A group of related studies."""

    name: str
    about: str
    studies: tuple[Study[Any], ...]


THEMES = (
    Theme(
        "attention by hand",
        "The computation of one head, and the role of queries, keys and values.",
        SINGLE_HEAD,
    ),
    Theme("scaling and cost", "Why products are divided by √d, and what a layer costs.", SCALING),
    Theme("low rank", "Attention of low rank, and other approximations.", LOW_RANK),
    Theme(
        "recurrent networks",
        "Gradients through time, and recurrent networks with attention.",
        RECURRENT,
    ),
    Theme(
        "positions",
        "Why attention needs them, and the effect of each encoding on the scores.",
        POSITIONS,
    ),
    Theme("structure", "Receptive fields, and learning from text without labels.", STRUCTURE),
    Theme("kernels", "Attention in linear time, and its error.", KERNELS),
    Theme(
        "trained models",
        "Architectures for tasks, structures that heads find, and the effect of training.",
        TRAINED_MODELS,
    ),
    Theme("knowledge", "Recalled and invented answers.", KNOWLEDGE),
    Theme("quiz", "Concepts, each checked by code.", QUIZ),
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
    for study in all_studies():
        if name == study.name:
            return study
    known = alternatives(name, (study.name for study in all_studies()))
    raise UserError(f"{name}: no such study; {known}")
