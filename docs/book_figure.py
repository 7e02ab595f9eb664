"""Draw docs/figures/study-book.png: a question of the book, wide and light, narrow and dark.

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

PICTURE = Path(__file__).parent / "figures" / "study-book.png"
QUESTION = "practical-4-2.b"
HEIGHT = 1400


def main() -> None:
    """Write the book of one course, and take two pictures of a question."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        made = make_book(["practical-4"])
        (page,) = write_book(Path(folder), made, slides=False)
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        address = f"{page.as_uri()}#{QUESTION}"
        pictures = [photograph(browser, address, 1180, "light")]
        pictures.append(photograph(browser, address, 390, "dark"))
        browser.close()
    both = Image.new("RGB", (sum(one.width for one in pictures) + 20, HEIGHT), "white")
    both.paste(pictures[0], (0, 0))
    both.paste(pictures[1], (pictures[0].width + 20, 0))
    both.quantize(128, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


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
