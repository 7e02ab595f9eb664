"""The moving picture of the README shows what is stored."""

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.explorer.page import pack

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def drawing() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "answer_figure.py"))


def test_the_picture_is_current(drawing: dict[str, Any]) -> None:
    stored = (DOCS / "figures" / "answer.svg").read_text(encoding="utf-8")
    assert stored == drawing["figure"](), "docs/figures/answer.svg: run `make figures`"


def test_weights_are_read_as_pages_store_them(drawing: dict[str, Any]) -> None:
    weights = np.tril(np.random.default_rng(0).dirichlet(np.ones(5), 5).astype(np.float32))
    assert np.abs(drawing["weights"](pack(weights), 5) - weights).max() <= 0.5 / 255


def test_each_token_reads_those_before_it(drawing: dict[str, Any]) -> None:
    svg = ET.fromstring(drawing["figure"]())
    space = "{http://www.w3.org/2000/svg}"
    for step in range(8):
        groups = [g for g in svg.iter(f"{space}g") if g.get("class") == f"step s{step}"]
        arcs = [path for group in groups for path in group.iter(f"{space}path")]
        assert len(arcs) == 2 * step  # two questions
