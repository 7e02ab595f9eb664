"""Figures for a light and a dark page."""

import re
import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from regard import drawing


def draw() -> list[str]:
    return [
        drawing.line_chart({"a": ([0, 1], [1, 2]), "b": ([0], [1])}, x="x", y="y", title="Lines"),
        drawing.interval_chart({"a": (0.5, 0.4, 0.6)}, x="x", title="Bars"),
        drawing.histogram({"a": [1.0, 2.0], "b": [0.0]}, x="x", title='A "count" <of> it'),
    ]


@pytest.fixture(scope="module")
def drawings() -> list[str]:
    return draw()


def test_each_is_well_formed_and_says_what_it_shows(drawings: list[str]) -> None:
    for svg, title in zip(drawings, ("Lines", "Bars", 'A "count" <of> it'), strict=True):
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert root.get("aria-label") == title


def test_ink_takes_the_color_of_the_page(drawings: list[str]) -> None:
    for svg in drawings:
        assert "currentColor" in svg
        assert drawing.INK not in svg
        assert "#ffffff" not in svg


def test_ids_stand_once_on_a_page_and_every_reference_finds_its_id(drawings: list[str]) -> None:
    ids = [re.findall(r'\bid="([^"]+)"', svg) for svg in drawings]
    every = [name for own in ids for name in own]
    assert len(every) == len(set(every)) > 0
    for svg, own in zip(drawings, map(set, ids), strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= own
        assert set(re.findall(r'href="#([^"]+)"', svg)) <= own


def test_names_are_shown_as_text() -> None:
    drawn = drawing.histogram({"</script>": [1.0, 2.0]}, x="x", title="Counts")
    assert "</script>" not in drawn
    assert "&lt;/script&gt;" in drawn


def test_the_same_numbers_give_the_same_drawing(drawings: list[str]) -> None:
    assert draw() == drawings


def test_no_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    extents: list[tuple[float, float]] = []

    def measured(figure: Figure, title: str) -> str:
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        extents.append((box.x0, box.x1))
        return title

    monkeypatch.setattr("regard.drawing.to_svg", measured)
    models = ("text and questions together, held-out text", "text first, questions afterwards")
    axis = "accuracy on people in the text only"
    drawing.line_chart(dict.fromkeys(models, ((0, 1), (0, 1))), x=axis, y="loss", title="")
    drawing.line_chart(
        {"a": ((0, 1), (0, 1))}, x=axis, y="loss", title="", points={models[0]: (0, 0)}
    )
    drawing.interval_chart({models[1]: (0.5, 0.4, 0.6)}, x=axis, title="")
    drawing.histogram({name: [0.0, 1.0] for name in models}, x=axis, title="")
    assert len(extents) == 4
    for left, right in extents:
        assert left >= -0.01
        assert right <= drawing.CHART_WIDTH + 0.01
