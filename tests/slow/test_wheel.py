"""The wheel carries all that it needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def test_an_installed_wheel_runs_without_the_sources(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True
    )
    (wheel,) = tmp_path.glob("regard-*.whl")
    assert wheel.stat().st_size <= 6e6
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    tiny = ["training.steps=3", "questions.steps=3", "finetuning.steps=3", "model.d_model=16"]
    tiny += ["world.people=80", "world.absent=20"]

    def regard(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "regard", *arguments],
            env={"PYTHONPATH": str(site), "PATH": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "Report:" in regard("demo", "--out", "out", *tiny)
    assert "Book:" in regard("book", "--out", "book", "--only", "practical-4 3.b")
    assert "Documentation: 2. Pretraining" in (tmp_path / "book/index.html").read_text("utf-8")
    assert (site / "regard" / "py.typed").exists()
