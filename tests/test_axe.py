"""Tests of pages by axe can fail."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import COLOR_RULES, FORMULAS_AS_TEXT, axe, violations, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

PAGE = """<!doctype html><html lang="en"><title>Bad</title><main><h1>Bad</h1>
<p style="color: #aaa; background: #fff">grey on white</p><img src="data:,">
<p style="color: #000; background: #fff">black on white</p></main></html>"""


def test_planted_violations_are_found(browser: "Browser", tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE, encoding="utf-8")
    with watched(browser, page) as tab:
        tab.evaluate(axe())
        found = violations(tab)
        assert any("color-contrast" in line and "#aaa" in line for line in found)
        assert any("image-alt" in line for line in found)
        assert not any("#000" in line for line in found)
        tab.evaluate(FORMULAS_AS_TEXT)
        (grey,) = violations(tab, COLOR_RULES)
        assert "#aaa" in grey
