"""The demo keeps its promises, and its page stands up in a browser."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from browser import axe, violations, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-m", "regard", "demo", "--out", str(out)]
    command += ["--json", str(out.parent / "figures.json")]
    subprocess.run(command, check=True)
    return out


def test_the_figures_hold(demo: Path) -> None:
    figures = json.loads((demo.parent / "figures.json").read_text())
    assert figures["held_out_accuracy"] >= 0.95
    assert figures["no_pretraining_accuracy"] <= figures["majority_accuracy"] + 0.05
    assert figures["auroc"] >= 0.85
    assert figures["peak_memory_mb"] <= 800


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_the_report_fits_and_hinders_nobody(
    browser: "Browser", width: int, scheme: Literal["light", "dark"], demo: Path
) -> None:
    """The console stays empty, and nothing is fetched."""
    with watched(browser, demo / "report.html", width=width, scheme=scheme) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.evaluate(axe())
        assert violations(tab) == []
