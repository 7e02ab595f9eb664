"""The docs' notebooks are those that the registry makes."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from regard.studies.registry import THEMES, all_studies

DOCS = Path(__file__).parents[2] / "docs"
PAGES: dict[str, Any] = runpy.run_path(str(DOCS / "study_pages.py"))


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_notebooks_are_up_to_date(theme: Any) -> None:
    place = DOCS / "notebooks" / PAGES["notebook_name"](theme)
    assert json.loads(place.read_text(encoding="utf-8")) == PAGES["notebook"](theme)


def test_stored_findings_have_default_parameters() -> None:
    for study in list(all_studies()):
        stored = study.stored_result()
        assert dict(stored.parameters) == study.defaults
        assert stored.caption


@pytest.mark.slow
def test_stored_results_are_drawn_whole() -> None:
    """Panel by panel, as notebooks show them too, they are drawn in the book."""
    for study in all_studies():
        assert study.stored_result().png().startswith(b"\x89PNG"), study.name
