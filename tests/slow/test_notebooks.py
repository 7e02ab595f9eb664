"""The notebooks of the docs run from top to bottom."""

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs/notebooks"
GPT = FOLDER / "character-gpt.ipynb"
NOTEBOOKS = sorted(set(FOLDER.glob("*.ipynb")) - {GPT})

pytestmark = pytest.mark.slow


def test_there_are_some() -> None:
    assert len(NOTEBOOKS) >= 8


def executed(place: Path) -> Any:
    import nbformat  # builds grammars for a second, in each process that collects tests
    from nbclient import NotebookClient

    text = place.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


@pytest.mark.parametrize("place", NOTEBOOKS, ids=lambda place: place.stem)
def test_it_runs_and_shows_findings(place: Path) -> None:
    for cell in executed(place).cells:
        if cell.cell_type == "code":
            (shown,) = cell.outputs
            assert "The claim" in shown["data"]["text/html"]


def test_a_character_gpt_learns_and_writes() -> None:
    *_, training, samples = (cell for cell in executed(GPT).cells if cell.cell_type == "code")
    losses = [float(loss) for loss in printed(training).splitlines()[-1].split()[1:]]
    assert losses[-1] < losses[0] - 1
    assert len(printed(samples).splitlines()) >= 3


def printed(cell: Any) -> str:
    """What a cell printed, which may come in several outputs."""
    return "".join(out.text for out in cell.outputs if out.get("name") == "stdout")
