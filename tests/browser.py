"""Pages in a headless Chromium."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    pytest.skip("no Chromium on this machine")


def open_page(page: Path, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", f"--user-data-dir={profile}", "--hide-scrollbars"),
            *("--enable-logging=stderr", "--v=0", *flags, page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def scroll_width(page: Path, folder: Path, *, width: int) -> int:
    """How wide a page is in a window of that width, in pixels."""
    script = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    measured = folder / "measured.html"
    text = page.read_text(encoding="utf-8").replace("</body>", script)
    measured.write_text(text, encoding="utf-8")
    size = f"--window-size={width},900"
    dom = open_page(measured, folder / "profile", "--dump-dom", size).stdout
    title = re.search(r"<title>(\d+)</title>", dom)
    assert title is not None
    return int(title[1])
