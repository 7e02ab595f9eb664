"""The page in a browser: looked at, clicked through, written with."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser import chromium
from tiny_served import HOSTILE, TEXT, save_run, served

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("served")
    runs = [save_run(folder / name, name) for name in ("decoder", "encoder-decoder", "encoder")]
    broken = save_run(folder / "broken")
    (broken / "model.safetensors").write_bytes(b"no weights")
    with served(*runs, broken) as port:
        yield port


@pytest.fixture
def page(port: int) -> Iterator["Page"]:
    """The page, which asks only its server and has nothing to complain of."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing")
    with playwright.sync_playwright() as started:
        program = shutil.which(chromium())
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme="dark")
        said, asked = list[str](), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(60_000)
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_label("Run", exact=True).locator("option").nth(3).wait_for(state="attached")
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()
        refusals = [line for line in said if "422" in line]  # Chromium notes them by itself
        assert said == refusals
        assert all(url.startswith((f"http://127.0.0.1:{port}/", "data:")) for url in asked)


def look(page: "Page", text: str = TEXT) -> None:
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Look", exact=True).click()


def test_a_text_is_looked_at_head_by_head(page: "Page") -> None:
    look(page)
    page.get_by_role("button", name="open layer 1, head 0").click()
    page.get_by_label("weights of layer 1, head 0").wait_for()
    page.get_by_role("button", name="Step by step").click()
    page.get_by_role("columnheader", name="weight", exact=True).wait_for()
    page.get_by_label("head", exact=True).select_option("1")
    page.get_by_role("columnheader", name="weight", exact=True).wait_for()
    page.get_by_role("button", name="Heads").click()
    page.get_by_role("button", name="from “t”, position 0").click()
    assert "looks most at" in page.locator(".said").inner_text()


def test_a_text_may_hold_anything(page: "Page") -> None:
    look(page, HOSTILE[:30])
    page.get_by_role("heading", name=HOSTILE[:30]).wait_for()
    assert page.locator("img").count() == 0


def test_what_is_written_is_watched(page: "Page") -> None:
    look(page)
    page.get_by_role("button", name="Heads").click()
    page.get_by_label("tokens").fill("6")
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_text("As many tokens as were asked for.").wait_for()
    written = page.get_by_label("What the model writes").text_content() or ""
    assert len(written) == len(TEXT) + 6
    page.get_by_role("button", name=f"position {len(TEXT) + 5}").first.wait_for()
    assert page.locator("svg text[data-lit]").text_content() == written[-1]
    assert not page.get_by_role("button", name="Stop", exact=True).is_visible()


def test_a_run_that_fails_says_why_and_others_go_on(page: "Page") -> None:
    run = page.get_by_label("Run", exact=True)
    page.get_by_label("Text", exact=True).fill(TEXT)
    run.select_option("broken")
    page.get_by_role("alert").get_by_text("broken/model.safetensors: is damaged").wait_for()
    run.select_option("encoder-decoder")
    page.get_by_label("attention").first.wait_for()
    assert page.get_by_role("alert").inner_text() == ""
    run.select_option("encoder")
    assert not page.get_by_role("button", name="Write", exact=True).is_visible()
