"""The lessons in a browser: what their views compute, how they look, and that keys suffice."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from browser import COLOR_RULES, PAGES_APART, PUT_BACK, TAKE_OUT, axe, violations, watched
from regard.book.contents import Results, arrange
from regard.book.lessons import all_lessons
from regard.book.live import live_run
from regard.book.page import write_book
from regard.decoding.generate import generate
from regard.explorer.look import adapter_of
from regard.studies.registry import all_studies

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow

SMALL_TEXT = """
() => [...document.querySelectorAll(".page:not([hidden]) .live *")].filter((one) =>
  [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) &&
  one.checkVisibility() &&
  parseFloat(getComputedStyle(one).fontSize) * (one.getScreenCTM?.().a ?? 1) < 9
).map((one) => one.outerHTML)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lessons, and the studies that are their pictures."""
    shown = {lesson.study for lesson in all_lessons()}
    findings = {one.name: one.stored_result() for one in all_studies() if one.name in shown}
    figures = {name: finding.panels() for name, finding in findings.items()}
    out = tmp_path_factory.mktemp("lessons")
    write_book(out, arrange((), Results(findings, figures, {}), all_lessons()), slides=False)
    return out


def opened(tab: "Page", name: str) -> "Locator":
    """A lesson, with its picture unfolded."""
    tab.evaluate(f"location.hash = 'lesson-{name}'")
    lesson = tab.locator(f"#lesson-{name}")
    lesson.locator(".answer > summary").click()
    if lesson.locator(".live").count():
        lesson.locator(".stage > *").first.wait_for()
    return lesson


# The contents of a wide page are read in both schemes in slow/test_book.py.
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_lessons_are_legible(
    browser: "Browser", folder: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    """No violation that axe finds, nothing wider than the window, no text below 9 pixels."""
    with watched(browser, folder / "index.html", width=width, scheme=scheme) as tab:
        tab.evaluate(axe())
        assert violations(tab) == []
        pages = tab.evaluate(PAGES_APART)
        for lesson in all_lessons():
            tab.evaluate(PUT_BACK, f"lesson-{lesson.name}")
            opened(tab, lesson.name)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, lesson.name
            assert tab.evaluate(SMALL_TEXT) == [], lesson.name
            assert violations(tab) == [], lesson.name
            tab.evaluate(TAKE_OUT, f"lesson-{lesson.name}")
        for page in pages:
            tab.evaluate(PUT_BACK, page)
        assert violations(tab, without=COLOR_RULES) == [], "with all views drawn"


def test_weights_of_a_sentence_are_those_of_the_library(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        lesson = opened(tab, "one-head")
        lesson.get_by_label("Sentence").fill("Ada likes rowing")
        lesson.get_by_label("Head").select_option("3.4")
        (only,) = adapter_of(live_run()).attention_maps("Ada likes rowing")
        weights = only.layers[2].record.weights[0, 3, -1]
        shown = lesson.locator("tbody tr td:nth-child(4)").all_inner_texts()[1:7]
        expected = [f"{weight:.2f}" for weight in weights.sort(descending=True).values[:6]]
        assert shown == expected


def test_the_query_moves_by_keys(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        lesson = opened(tab, "one-head")
        query = lesson.get_by_role("slider", name="Query")
        query.focus()
        tab.keyboard.press("Home")
        assert query.get_attribute("aria-valuetext") == "1: Y"
        assert lesson.locator("tbody tr").count() == 3, "the query, one key, and the output"
        tab.keyboard.press("ArrowRight")
        assert query.get_attribute("aria-valuetext") == "2: a"
        assert lesson.is_visible(), "arrows on a slider turn no page"


def test_switches_change_the_map(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        for name, label in (("mask", "Show later tokens"), ("positions", "all tokens position 1")):
            lesson = opened(tab, name)
            before = lesson.locator(".map").inner_html()
            lesson.get_by_label(label).check()
            assert lesson.locator(".map").inner_html() != before
        words = lesson.get_by_label("Sentence")
        lesson.get_by_role("button", name="Shuffle the words").click()
        assert sorted(words.input_value()) == sorted("was born in Lomoford, was")


def test_a_divisor_sharpens_the_weights(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        lesson = opened(tab, "scale")
        trained, other = lesson.locator("tbody tr td:nth-child(2)").all_inner_texts()
        assert float(other) > float(trained)
        lesson.get_by_role("slider", name="divided by").focus()
        tab.keyboard.press("End")
        assert float(lesson.locator("tbody tr td:nth-child(2)").last.inner_text()) < 0.1


def test_a_greedy_continuation_is_that_of_the_library(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        lesson = opened(tab, "knowledge")
        lesson.get_by_role("slider", name="Top k").focus()
        tab.keyboard.press("Home")
        (known, _) = all_lessons()[10].examples
        (expected,) = generate(live_run(), [known], raw=True, max_new_tokens=60)
        lesson.get_by_role("button", name="Write 60").click()
        tab.wait_for_function(
            "(text) => document.querySelector('#lesson-knowledge .written').textContent === text",
            arg=expected,
        )


def test_a_sentence_may_be_empty_or_have_unknown_characters(
    browser: "Browser", folder: Path
) -> None:
    with watched(browser, folder / "index.html") as tab:
        for lesson in all_lessons():
            if lesson.view:
                live = opened(tab, lesson.name).locator(".live")
                text = live.locator("input[type=text]")
                text.fill("")
                assert live.get_by_text("Type a sentence.").is_visible()
                for button in live.get_by_role("button", name="Write 60").all():
                    button.click()
                for sentence in ("北", "7 <b>?"):
                    text.fill(sentence)
                    assert not live.get_by_text("Type a sentence.").is_visible()
