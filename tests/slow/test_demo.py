"""The demo keeps its promises, and its page stands up in a browser."""

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-m", "regard", "demo", "--out", str(out)]
    command += ["--json", str(out.parent / "figures.json")]
    subprocess.run(command, check=True)
    return out


def test_the_figures_hold(demo: Path) -> None:
    figures = json.loads((demo.parent / "figures.json").read_text())
    assert figures["held_out_accuracy"] >= 0.95
    assert figures["no_pretraining_accuracy"] <= figures["majority_accuracy"] + 0.05
    assert figures["auroc"] >= 0.85
    assert figures["peak_memory_mb"] <= 2048


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


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_drawn_without_errors(
    width: int, scheme: str, demo: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "page.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    size = f"--window-size={width},2400"
    opened = open_page(demo / "report.html", tmp_path / "p", f"--screenshot={picture}", size, *dark)
    assert "CONSOLE" not in opened.stderr
    assert struct.unpack(">I", picture.read_bytes()[16:20])[0] == width


def test_the_report_does_not_scroll_sideways_on_a_phone(demo: Path, tmp_path: Path) -> None:
    page = tmp_path / "measured.html"
    script = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    text = (demo / "report.html").read_text(encoding="utf-8").replace("</body>", script)
    page.write_text(text, encoding="utf-8")
    dom = open_page(page, tmp_path / "p", "--dump-dom", "--window-size=500,900").stdout
    title = re.search(r"<title>(\d+)</title>", dom)
    assert title is not None
    assert int(title[1]) <= 500
