"""Draw a question and a lesson of the book, wide and light, narrow and dark, in docs/figures.

Needs Chromium, and Playwright from the development dependencies.
"""

import io
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from regard.book.contents import make_book
from regard.book.page import write_book

FIGURES = Path(__file__).parent / "figures"
PAGES = {"study-book.png": "practical-4-2.b", "lesson.png": "lesson-one-head--live"}
"""What each picture shows of the book, by its id."""
HEIGHT = 1400


def main() -> None:
    """Write the book, and take two pictures of each place."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        (page,) = write_book(Path(folder), make_book(), slides=False)
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for name, place in PAGES.items():
            address = f"{page.as_uri()}#{place}"
            wide = photograph(browser, address, 1180, "light")
            narrow = photograph(browser, address, 390, "dark")
            beside(wide, narrow).save(FIGURES / name, optimize=True)
        browser.close()


def beside(left: Image.Image, right: Image.Image) -> Image.Image:
    """Both pictures, in few colors."""
    both = Image.new("RGB", (left.width + right.width + 20, HEIGHT), "white")
    both.paste(left, (0, 0))
    both.paste(right, (left.width + 20, 0))
    return both.quantize(128, dither=Image.Dither.NONE)


def photograph(
    browser: Browser, address: str, width: int, scheme: Literal["light", "dark"]
) -> Image.Image:
    """The upper part of a page."""
    tab = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    tab.goto(address)
    tab.evaluate("document.querySelectorAll('.answer').forEach((one) => { one.open = true; })")
    tab.wait_for_timeout(500)
    picture = Image.open(io.BytesIO(tab.screenshot()))
    tab.close()
    return picture.convert("RGB")


if __name__ == "__main__":
    main()
