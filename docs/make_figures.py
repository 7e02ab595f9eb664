"""Draw the figures of README and docs anew: run the demo, and photograph its results.

Needs Chromium. Writes docs/figures/.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIGURES = Path(__file__).parent / "figures"


def main() -> None:
    """Run the demo and write demo.json and demo.png."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        figures = FIGURES / "demo.json"
        command = [sys.executable, "-m", "regard", "demo", "--out", str(out)]
        subprocess.run([*command, "--json", str(figures)], check=True)
        photograph(out / "report.html", FIGURES / "demo.png", Path(folder) / "profile")
    print(json.dumps(json.loads(figures.read_text(encoding="utf-8")), indent=1))


def photograph(page: Path, picture: Path, profile: Path) -> None:
    """The upper part of a page as PNG."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("make_figures: needs Chromium or Chrome on the PATH")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    subprocess.run(
        [
            *(browser, *flags, f"--user-data-dir={profile}", "--hide-scrollbars"),
            *("--window-size=1100,1420", f"--screenshot={picture}", page.as_uri()),
        ],
        check=True,
        capture_output=True,
    )


if __name__ == "__main__":
    main()
