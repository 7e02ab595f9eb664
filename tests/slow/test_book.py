"""The book of studies, as a reader opens it."""

import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from browser import driven, open_page, scroll_width, watched

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("book")
    subprocess.run([sys.executable, "-m", "regard", "study", "book", "--out", str(out)], check=True)
    return out / "index.html"


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_without_errors(width: int, scheme: str, book: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    size = f"--window-size={width},2400"
    opened = open_page(book, tmp_path / "p", f"--screenshot={picture}", size, *dark)
    assert "CONSOLE" not in opened.stderr
    assert struct.unpack(">I", picture.read_bytes()[16:20])[0] == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_heads_are_looked_at_in_it(scheme: Literal["light", "dark"], book: Path) -> None:
    with driven() as browser, watched(browser, book, scheme=scheme) as tab:
        tab.get_by_text("Look inside: each state asks all others").click()
        frame = tab.frame_locator("iframe[title='each state asks all others']")
        frame.get_by_role("button", name="Step by step").click()
        frame.get_by_text("q·k").first.wait_for()
        untrained = tab.locator("iframe[title^='before training']")
        tab.get_by_text("Look inside: before training").click()
        inside = untrained.content_frame
        inside.get_by_role("button", name="open layer 1, head 3", exact=True).first.click()
        assert inside.get_by_role("figure").count() == 3, "before, after, and the difference"


def test_it_does_not_scroll_sideways_on_a_phone(book: Path, tmp_path: Path) -> None:
    assert scroll_width(book, tmp_path, width=500) <= 500


def test_it_asks_the_network_for_nothing(book: Path, tmp_path: Path) -> None:
    """Chromium keeps a log of all that is fetched; what it wants for itself comes from Google."""
    log = tmp_path / "network.json"
    open_page(book, tmp_path / "p", "--dump-dom", f"--log-net-log={log}")
    text = log.read_text(encoding="utf-8", errors="replace")
    assert book.as_uri() in text, "the log is of this page"
    hosts = set(re.findall(r'"url":"https?://([^/"]+)', text))
    assert not {host for host in hosts if not re.search(r"google(apis)?\.com$", host)}
