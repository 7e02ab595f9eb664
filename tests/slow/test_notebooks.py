"""The notebooks of the docs run from top to bottom."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.slow


def test_there_are_some() -> None:
    assert len(NOTEBOOKS) >= 8


@pytest.mark.parametrize("place", NOTEBOOKS, ids=lambda place: place.stem)
def test_it_runs_and_shows_findings(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            (shown,) = cell.outputs
            assert "The claim" in shown["data"]["text/html"]
