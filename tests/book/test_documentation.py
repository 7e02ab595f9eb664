"""Sections of the documentation in the book."""

import tomllib
from pathlib import Path

import pytest

from regard.book.contents import sections_of
from regard.book.documentation import pictures, section_html, section_id, section_title
from regard.courses import all_parts

ROOT = Path(__file__).parents[2]
SECTIONS = sorted({address for part in all_parts() for address in sections_of(part)})


def test_a_section_ends_at_the_next_heading_and_links_nowhere() -> None:
    address = "docs/patterns.md#distribution"
    assert section_title(address) == "Distribution"
    html = section_html(address)
    assert "attention sink" in html
    assert "duplicate-token head" not in html, "of the next section"
    assert "<table>" in html
    assert "<a" not in section_html("docs/tasks.md#tasks")


def test_the_corner_of_a_table_is_no_header() -> None:
    html = section_html("docs/explorer-minilm.md#heads-of-a-trained-bert")
    assert "<th></th>" not in html
    assert "<th>trained</th>" in html


def test_a_picture_is_part_of_the_page() -> None:
    address = "docs/exercises/README.md#the-dog-ran"
    assert pictures(address) == ["docs/exercises/the-dog-ran.png"]
    assert 'src="data:image/png;base64,' in section_html(address)


def test_a_large_picture_is_described() -> None:
    address = "docs/exercises/README.md#before-training"
    assert pictures(address) == []
    assert "[Picture: The encoder" in section_html(address)
    assert "<img" not in section_html(address)


def test_a_notebook_is_shown_cell_by_cell() -> None:
    html = section_html("docs/notebooks/character-gpt.ipynb")
    assert "<pre><code>" in html


def test_an_unknown_section_stops_the_book() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        section_html("docs/patterns.md#nonsense")


def test_sections_have_ids_of_their_own() -> None:
    assert len({section_id(address) for address in SECTIONS}) == len(SECTIONS)


def test_the_wheel_holds_what_the_book_shows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    held = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    shown = {address.partition("#")[0] for address in SECTIONS}
    shown |= {picture for address in SECTIONS for picture in pictures(address)}
    assert held == {path: f"regard/book/{path}" for path in sorted(shown)}
