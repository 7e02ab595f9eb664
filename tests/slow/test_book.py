"""The whole book as shipped, as a reader opens it."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from browser import (
    COLOR_RULES,
    FORMULAS_AS_TEXT,
    PAGES_APART,
    PUT_BACK,
    SMALL_TEXT,
    TAKE_OUT,
    axe,
    violations,
    watched,
)
from regard.courses import all_parts
from regard.studies.registry import all_studies

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LARGEST = 5_000_000
"""Bytes."""


class Ids(HTMLParser):
    """The ids of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [str(value) for name, value in attrs if name == "id"]


def test_everything_shown_has_an_element(book: Path) -> None:
    ids = Ids((book / "index.html").read_text(encoding="utf-8")).found
    assert len(set(ids)) == len(ids)
    for part in all_parts():
        here = f"{part.course}-{part.number}"
        assert {here, *(f"{here}-{one.id}" for one in part.shown)} <= set(ids), here
        assert part.derivation is None or f"derivation-{part.derivation}" in ids
    assert {f"study-{study.name}" for study in all_studies()} <= set(ids)


def test_it_is_small(book: Path) -> None:
    assert (book / "index.html").stat().st_size <= LARGEST
    assert (book / "slides.html").stat().st_size <= LARGEST


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_no_question_is_wider_than_the_window_and_text_of_figures_is_readable(
    browser: "Browser", book: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    """Nothing is fetched, and the console stays empty."""
    with watched(browser, book / "index.html", width=width) as tab:
        tab.emulate_media(color_scheme=scheme)
        tab.evaluate(f"() => {{ window.smallText = {SMALL_TEXT}; }}")
        wide, small = tab.evaluate(
            """async () => {
              const wide = [], small = [];
              for (const details of document.querySelectorAll("details:not(.explorer-view)"))
                details.open = true;
              for (const page of document.querySelectorAll(".page")) {
                location.hash = page.id;
                await new Promise((done) => addEventListener("hashchange", done, { once: true }));
                if (document.documentElement.scrollWidth > innerWidth) wide.push(page.id);
                small.push(...smallText());
              }
              return [wide, small];
            }"""
        )
        assert wide == []
        assert small == []


def test_axe_finds_nothing_in_any_question(browser: "Browser", book: Path) -> None:
    """With everything unfolded; the heads inside a frame are tested elsewhere.

    One page stands in the document at a time, because axe reads all of it each time; the contents,
    which are the same everywhere, stand beside the first two. A scheme changes colors alone.
    """
    with watched(browser, book / "index.html") as tab:
        tab.evaluate(axe())
        tab.evaluate(
            """() => {
              for (const details of document.querySelectorAll("details:not(.explorer-view)"))
                details.open = true;
            }"""
        )
        pages = tab.evaluate(PAGES_APART)
        assert {f"{part.course}-{part.number}" for part in all_parts()} < set(pages)
        found: dict[str, list[str]] = {}
        for i, page in enumerate(pages):
            if i == 2:
                tab.evaluate("document.querySelector('#contents').replaceChildren()")
            tab.evaluate(PUT_BACK, page)
            tab.evaluate(
                """async (id) => {
                  location.hash = id;
                  await new Promise((done) => addEventListener("hashchange", done, { once: true }));
                }""",
                page,
            )
            found[page] = violations(tab, without=COLOR_RULES)
            tab.evaluate(FORMULAS_AS_TEXT)
            for scheme in SCHEMES:
                tab.emulate_media(color_scheme=scheme)
                found[page] += violations(tab, COLOR_RULES)
            tab.evaluate(TAKE_OUT, page)
        assert {page: several for page, several in found.items() if several} == {}


@pytest.fixture(scope="module")
def slides(browser: "Browser", book: Path) -> "Iterator[Page]":
    with watched(browser, book / "slides.html", width=1280) as tab:
        yield tab


def test_slides_fit_a_projector(slides: "Page") -> None:
    slides.set_viewport_size({"width": 1280, "height": 720})
    high = slides.evaluate(
        "[...document.querySelectorAll('.slide')]"
        ".filter((one) => one.scrollHeight > innerHeight).map((one) => one.id)"
    )
    assert high == []
    assert slides.evaluate("document.documentElement.scrollWidth") <= 1280


def test_no_slide_is_a_lone_sentence(slides: "Page") -> None:
    """Below its heading and the question repeated, each has several sentences, or a figure."""
    lone = slides.evaluate(
        """[...document.querySelectorAll(".slide:not(.title)")].filter((one) => {
          const parts = [...one.querySelectorAll(":is(p, li):not(.where, .soft, li p)")];
          const texts = parts.map((part) => part.textContent.trim());
          const sentences = texts.flatMap((text) => text.split(/[.?!:]\\s+/));
          return !one.querySelector("figure") && sentences.length < 2;
        }).map((one) => one.id)"""
    )
    assert lone == []


def test_it_has_no_text_without_its_formulas(book: Path) -> None:
    """Commands have dollar signs too."""
    page = (book / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"<(script|style|pre).*?</\1>|srcdoc=\"[^\"]*\"", "", page, flags=re.DOTALL)
    assert not re.findall(r"\\[a-z]+\{", text)
    assert not re.findall(r"\$[^<$]*\$", text)
