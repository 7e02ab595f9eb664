"""The docs' page of a suite, made of cells that were never trained."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from regard.comparison.folder import Outcome
from regard.errors import UserError
from tiny_comparisons import DIVERGED, KIND, finished, made_up, tiny_grid, write_cells

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
suite_page = import_module("suite_page")


@pytest.fixture(autouse=True)
def _two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    grids = [tiny_grid(task=task) for task in ("mqar", "copy")]
    monkeypatch.setattr(suite_page, "load_suite", {"two": grids}.__getitem__)


def trained(folder: Path, last: Outcome | None = DIVERGED) -> Path:
    """A folder of two comparisons, the last cell of each with this outcome."""
    outcomes = {
        (kind, lr, seed): finished(score - abs(lr - 0.1), score)
        for kind, score in (("softmax", 0.995), ("elu", 0.5))
        for lr in (0.01, 0.1, 1.0)
        for seed in range(2)
    }
    for task in ("mqar", "copy"):
        (folder / task).mkdir(parents=True)
        comparison = made_up(outcomes | {("argmax", 0.1, 0): last}, out=folder / task)
        write_cells(comparison)
        if last is None:
            (comparison.cells[-1].path / "outcome.json").unlink()
    return folder


def test_the_page_has_the_numbers_of_the_tables(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    suite_page.main("two", trained(tmp_path / "trained"), docs)
    text = (docs / "two.md").read_text("utf-8")
    assert re.findall("^##? .*", text, re.MULTILINE) == ["# two", "## mqar", "## copy"]
    assert "26 cells, 0.0 hours" in text
    assert "Test accuracy of at least 0.99: softmax." in text
    assert "| softmax | 0.995 | 2 |" in text
    assert "- argmax, training.lr=0.1, seed 0: diverged" in text.replace(f"{KIND}=", "")
    numbers = json.loads((docs / "figures" / "suite-two.json").read_text("utf-8"))
    assert [row["test"] for row in numbers["copy"]] == [0.995, 0.5, None]
    for figure in re.findall(r"\]\((figures[^)]*)\)", text):
        assert (docs / figure).stat().st_size < 150_000


@pytest.mark.parametrize(
    ("missing", "says"),
    [(True, "doesn't hold all comparisons of two"), (False, "1 cells have not ended")],
)
def test_nothing_is_written_of_unfinished_suites(tmp_path: Path, missing: bool, says: str) -> None:
    folder = tmp_path if missing else trained(tmp_path / "trained", last=None)
    with pytest.raises(UserError, match=says):
        suite_page.main("two", folder, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()
