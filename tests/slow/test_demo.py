"""The demo keeps its promises, and its page stands up in a browser."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from browser import axe, driven, open_page, scroll_width, violations, watched

pytestmark = pytest.mark.slow


LESS_FINETUNING = """
import sys
from regard.cli.main import main
from regard.experiments import recall
text_only = recall.text_only
recall.text_only = lambda recipe, steps: text_only(recipe, steps // 20)
main(sys.argv[1:])
"""
"""`regard`, with less training of the model of a demo whose figures aren't asserted."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-c", LESS_FINETUNING, "demo", "--out", str(out)]
    command += ["--json", str(out.parent / "figures.json"), "finetuning.epochs=1"]
    subprocess.run(command, check=True)
    return out


def test_the_figures_hold(demo: Path) -> None:
    figures = json.loads((demo.parent / "figures.json").read_text())
    assert figures["held_out_accuracy"] >= 0.95
    assert figures["no_pretraining_accuracy"] <= figures["majority_accuracy"] + 0.05
    assert figures["auroc"] >= 0.85
    assert figures["peak_memory_mb"] <= 800


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_drawn_without_errors(
    width: int, scheme: str, demo: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "page.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    size = f"--window-size={width},2400"
    opened = open_page(demo / "report.html", tmp_path / "p", f"--screenshot={picture}", size, *dark)
    assert "CONSOLE" not in opened.stderr
    assert struct.unpack(">I", picture.read_bytes()[16:20])[0] == width


def test_the_report_does_not_scroll_sideways_on_a_phone(demo: Path, tmp_path: Path) -> None:
    assert scroll_width(demo / "report.html", tmp_path, width=500) <= 500


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_the_report_hinders_nobody(
    width: int, scheme: Literal["light", "dark"], demo: Path
) -> None:
    with (
        driven() as browser,
        watched(browser, demo / "report.html", width=width, scheme=scheme) as tab,
    ):
        tab.evaluate(axe())
        assert violations(tab) == []
