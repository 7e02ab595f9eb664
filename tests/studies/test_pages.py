"""The book, and findings on disk."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from regard.errors import UserError
from regard.explorer.page import page
from regard.studies.pages import Chapter, book_html, write_book
from regard.studies.registry import THEMES
from regard.studies.single_head.averaging import averaging
from regard.studies.single_head.products import products


@pytest.fixture(scope="module")
def chapters() -> list[Chapter]:
    return [Chapter(THEMES[0], (averaging(), products()))]


class _Page(HTMLParser):
    """What a page refers to, and its ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.opened = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [str(values["id"])] if "id" in values else []
        self.references += [
            str(values[key]) for key in ("src", "href", "xlink:href") if key in values
        ]
        self.opened += tag == "details" and "open" in values


def test_the_book_is_whole_and_fetches_nothing(chapters: list[Chapter]) -> None:
    page = _Page(book_html(chapters, hide_answers=False))
    assert len(set(page.ids)) == len(page.ids)
    for reference in page.references:
        assert reference.startswith(("#", "data:")), reference
        assert not reference.startswith("#") or reference[1:] in page.ids


def test_answers_unfold(chapters: list[Chapter]) -> None:
    assert _Page(book_html(chapters, hide_answers=False)).opened == 2
    hidden = book_html(chapters, hide_answers=True)
    assert _Page(hidden).opened == 0
    contents = hidden[hidden.index("<nav") : hidden.index("</nav>")]
    assert "✓" not in contents, "the contents would give the answers away"


def test_heads_can_be_looked_at_in_the_book_and_beside_it(
    chapters: list[Chapter], tmp_path: Path
) -> None:
    book = book_html(chapters, hide_answers=False)
    assert book.count("<iframe srcdoc=") == 2
    assert "Look inside: the query 8(k₁ + k₂) among 10 keys" in book
    saved = averaging().save(tmp_path)
    assert [place.name for place in saved if place.suffix == ".html"] == ["averaging.html"]


def test_too_many_keys_are_not_shown_one_by_one(tmp_path: Path) -> None:
    many = averaging(n=65, t=9.0)
    assert many.explorer_view is None
    assert "<iframe" not in book_html([Chapter(THEMES[0], (many,))], hide_answers=False)
    assert [place.suffix for place in many.save(tmp_path)][-1] == ".png"


def test_a_finding_comes_back_from_disk(tmp_path: Path) -> None:
    finding = products()
    finding.save(tmp_path)
    loaded = products.stored_result(tmp_path)
    assert loaded.numbers == finding.numbers
    assert loaded.table == finding.table
    assert loaded.verdict == finding.verdict
    assert loaded.figure.png == finding.figure.png
    assert loaded.figure.alt == finding.figure.alt
    assert loaded.explorer_view
    assert finding.explorer_view
    assert page(loaded.explorer_view) == page(finding.explorer_view)
    with pytest.raises(UserError, match=r"averaging\.json: no such file"):
        averaging.stored_result(tmp_path)


def test_a_book_has_figures_and_numbers_beside_it(tmp_path: Path, chapters: list[Chapter]) -> None:
    page = write_book(tmp_path, chapters, hide_answers=True)
    assert page == tmp_path / "index.html"
    names = {path.name for path in (tmp_path / "findings").iterdir()}
    assert {f"averaging.{ending}" for ending in ("svg", "png", "json", "csv")} <= names
