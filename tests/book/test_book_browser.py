"""The book and its slides in a browser, on a screen and on a phone, by keyboard."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from tiny_book import tiny_book

from browser import SMALL_TEXT, axe, violations, watched
from regard.book.page import write_book
from regard.book.sliders import SLIDERS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("book")
    write_book(out, tiny_book(), slides=True)
    return out


def pages(tab: "Page") -> list[str]:
    """Ids of the pages, of which one is shown at a time."""
    found: list[str] = tab.evaluate("[...document.querySelectorAll('.page')].map((p) => p.id)")
    return found


def shown(tab: "Page") -> list[str]:
    found: list[str] = tab.evaluate(
        "[...document.querySelectorAll('.page:not([hidden])')].map((p) => p.id)"
    )
    return found


def open_part(tab: "Page", name: str) -> None:
    tab.evaluate(f"location.hash = '{name}'")
    tab.wait_for_function("name => document.getElementById(name).checkVisibility()", arg=name)


def overflow(tab: "Page", width: int) -> list[str]:
    """Pages that are wider than the window, with the widest element."""
    wide = []
    for name in pages(tab):
        open_part(tab, name)
        if tab.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(name)
    return wide


def test_no_page_is_wider_than_a_wide_window(browser: "Browser", folder: Path) -> None:
    """The whole book is opened in narrower windows (slow/test_book.py)."""
    with watched(browser, folder / "index.html", width=1920, scheme="dark") as tab:
        for details in tab.locator("details").all():
            details.evaluate("(one) => { one.open = true; }")
        assert overflow(tab, 1920) == []
        for name in ("study-averaging", "study-fourier-features"):
            open_part(tab, name)
            assert tab.evaluate(SMALL_TEXT) == []


# Wide pages of the whole book are read in slow/test_book.py, in both schemes.
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("index.html", 390, "dark"), ("slides.html", 390, "dark"), ("slides.html", 1200, "light")],
)
def test_axe_finds_nothing(
    browser: "Browser", folder: Path, name: str, width: int, scheme: Scheme
) -> None:
    """In any part, with everything unfolded."""
    with watched(browser, folder / name, scheme=scheme, width=width) as tab:
        tab.evaluate(axe())
        tab.evaluate(
            "document.querySelectorAll('details:not(.explorer-view)').forEach((d) => d.open = true)"
        )
        for part in pages(tab) or [""]:
            if part:
                open_part(tab, part)
            assert violations(tab) == [], part


def test_keys_go_from_part_to_part(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        assert shown(tab) == ["start"]
        for key, part in [
            ("ArrowRight", "jhu-hw5-1.1"), ("j", "jhu-hw5-1.2"), ("k", "jhu-hw5-1.1"),
            ("ArrowLeft", "start"), ("ArrowLeft", "start"),
        ]:  # fmt: skip
            tab.keyboard.press(key)
            tab.wait_for_timeout(50)
            assert shown(tab) == [part]
        tab.get_by_role("link", name="1.1 →").click()
        assert shown(tab) == ["jhu-hw5-1.1"]
        current = tab.locator("nav [aria-current=page]")
        assert current.get_attribute("href") == "#jhu-hw5-1.1"
        tab.keyboard.press("/")
        tab.keyboard.type("jk")
        assert tab.get_by_label("Search").input_value() == "jk"
        assert shown(tab) == ["jhu-hw5-1.1"], "letters in the field turn no page"


def test_the_search_finds_words_of_problem_and_answer(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        found = tab.locator("nav details li:visible")
        field = tab.get_by_label("Search")
        field.fill("natural always")
        assert tab.get_by_text("1 of 5 pages").is_visible()
        assert found.count() == 1
        field.press("Enter")
        assert shown(tab) == ["jhu-hw5-1.1"]
        field.fill("nonsense")
        assert found.count() == 0
        field.fill("")
        tab.keyboard.press("Escape")


def test_a_phone_shows_contents_on_request(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html", width=390) as tab:
        link = tab.locator("nav a[href='#jhu-hw5-1.2']")
        assert not link.is_visible()
        menu = tab.get_by_role("button", name="Contents")
        menu.click()
        assert menu.get_attribute("aria-expanded") == "true"
        tab.locator("nav summary").first.click()
        link.click()
        assert not link.is_visible()
        assert shown(tab) == ["jhu-hw5-1.2"]


def test_a_link_into_a_folded_answer_unfolds_it(browser: "Browser", tmp_path: Path) -> None:
    (page,) = write_book(tmp_path, tiny_book(), slides=False)
    with watched(browser, page) as tab:
        assert not tab.locator("[id='jhu-hw5-1.1-weight']").is_visible()
        tab.evaluate("location.hash = 'study-averaging'")
        tab.locator("#study-averaging").wait_for()
        assert shown(tab) == ["jhu-hw5-1.1"]
        assert not tab.locator("[id='jhu-hw5-1.2-figure']").is_visible()


def test_sliders_compute_by_keyboard(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        open_part(tab, "study-averaging")
        keys, length = tab.locator("#study-averaging input[type=range]").all()
        tab.locator("#study-averaging summary", has_text="Slider").click()
        cells = tab.locator("#study-averaging .slider td:nth-child(2)")
        assert cells.all_inner_texts() == ["0.4993", "0.00134"]
        keys.focus()
        tab.keyboard.press("End")
        assert keys.get_attribute("aria-valuetext") == "1000"
        length.focus()
        tab.keyboard.press("Home")
        assert cells.last.inner_text() == "0.998", "998/1000"
        assert shown(tab) == ["jhu-hw5-1.1"], "arrows on a slider turn no page"
        tab.keyboard.press("ArrowRight")
        assert length.get_attribute("aria-valuetext") == "0.2"
        assert tab.locator("#study-averaging .slider polyline").count() == 2


def test_sliders_compute_at_typed_values(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        open_part(tab, "study-averaging")
        tab.locator("#study-averaging summary", has_text="Slider").click()
        keys, length = tab.locator("#study-averaging input[type=number]").all()
        found = "[...document.querySelectorAll('#study-averaging data')].map((cell) => +cell.value)"
        keys.fill("123")
        length.fill("3.14159")
        expected = SLIDERS["averaging"].at(n=123, t=3.14159)
        assert tab.evaluate(found) == pytest.approx(expected, rel=1e-9)
        length.fill("1e9")
        length.press("Tab")
        assert length.input_value() == "20", "the end of the range"
        keys.fill("")
        keys.press("Tab")
        assert keys.input_value() == "123"
        assert keys.evaluate("(field) => field.labels[0].textContent.trim()") == "n, keys"


def test_the_font_of_the_page_is_used(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        open_part(tab, "jhu-hw5-1.2")
        fonts = "document.fonts.ready.then(() => [...document.fonts].map((f) => f.status))"
        assert tab.evaluate(fonts) == ["loaded"]


def test_heads_are_looked_at_in_it(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        open_part(tab, "study-products")
        tab.get_by_text("Look inside: attention of each state to all states").click()
        frame = tab.frame_locator("iframe[title='attention of each state to all states']")
        frame.get_by_role("button", name="Step by step").click()
        frame.get_by_text("q·k").first.wait_for()


def test_print_has_every_part(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        tab.emulate_media(media="print")
        for part in pages(tab):
            assert tab.evaluate(f"document.getElementById('{part}').checkVisibility()"), part
        assert not tab.locator("nav").is_visible()
        answers = tab.locator(".answer")
        for event, opened in (("beforeprint", answers.count()), ("afterprint", 0)):
            tab.evaluate("(name) => dispatchEvent(new Event(name))", event)
            assert tab.locator(".answer[open]").count() == opened


def test_an_option_is_clicked_and_gives_its_reason(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        open_part(tab, "jhu-hw5-1.1")
        # Options of line exercises follow those of the question.
        right, wrong = tab.locator(".option").all()[:2]
        right.locator("summary").click()
        assert right.get_by_text("One less is smaller.").is_visible()
        assert not wrong.locator("p").is_visible()
        assert not tab.locator("[id='jhu-hw5-1.1-weight']").is_visible(), "the answer stays folded"


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_slides_fit_the_screen_and_turn_by_keys(
    browser: "Browser", folder: Path, width: int, height: int
) -> None:
    with watched(browser, folder / "slides.html", width=width) as tab:
        tab.set_viewport_size({"width": width, "height": height})
        heights = "[...document.querySelectorAll('.slide')].map((s) => s.scrollHeight)"
        assert max(tab.evaluate(heights)) <= height
        names = tab.evaluate("[...document.querySelectorAll('.slide')].map((s) => s.id)")
        for key, at in [("ArrowRight", 1), (" ", 2), ("ArrowLeft", 1), ("End", -1), ("Home", 0)]:
            tab.keyboard.press(key)
            tab.wait_for_timeout(50)
            top = tab.evaluate("location.hash")
            assert top == f"#{names[at]}"
            place = tab.locator(f"[id='{names[at]}']").evaluate(
                "(s) => s.getBoundingClientRect().top"
            )
            assert abs(place) < 2
        small = "[...document.querySelectorAll('.slide :is(p, li, h2):not(.where)')]"
        sizes = tab.evaluate(f"{small}.map((one) => parseFloat(getComputedStyle(one).fontSize))")
        assert min(sizes) >= 24 * height / 720 - 0.1


def test_a_question_shows_its_answer_before_the_next_slide(
    browser: "Browser", folder: Path
) -> None:
    with watched(browser, folder / "slides.html", width=1280) as tab:
        question = tab.locator("#jhu-hw5-1\\.1")
        answer = question.locator(".answer")
        question.evaluate("(one) => one.scrollIntoView()")
        assert not answer.is_visible()
        tab.keyboard.press("ArrowRight")
        assert answer.is_visible()
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("location.hash") == "#jhu-hw5-1.1--options-1"
        tab.emulate_media(media="print")
        assert all(one.is_visible() for one in tab.locator(".answer").all())


def test_the_search_ignores_the_data_of_views(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        tab.get_by_label("Search").fill('"queries":')
        assert tab.get_by_text(re.compile("^0 of ")).is_visible()


def test_the_skip_link_stays_on_the_page(browser: "Browser", folder: Path) -> None:
    with watched(browser, folder / "index.html") as tab:
        name = pages(tab)[1]
        open_part(tab, name)
        tab.locator(".skip").press("Enter")
        tab.wait_for_function("location.hash === '#main'")
        assert shown(tab) == [name]
