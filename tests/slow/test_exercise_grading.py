"""The commands end to end: a folder of right programs, of blanks, of traps."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "exercises"))

from solutions import SOLUTIONS  # noqa: E402

pytestmark = pytest.mark.slow
TRAPS = {
    "attention_map": ("while True: pass", "s longer than "),
    "attention_masks": ("import os; os.abort()", "crashes with SIGABRT"),
    "softmax_similarity": ("return torch.full((3, 3), math.nan)", "NaN"),
}


def regard(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "regard", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def fill(path: Path, bodies: dict[str, str]) -> None:
    """Replace the blanks of functions."""
    book = json.loads(path.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        name = re.match(r"def (\w+)\(", cell["source"])
        if name and name[1] in bodies:
            blank = "    raise NotImplementedError"
            cell["source"] = cell["source"].replace(blank, bodies[name[1]])
    path.write_text(json.dumps(book), encoding="utf-8")


def check(folder: Path) -> Any:
    return json.loads(regard(folder, "exercises", "check", "mine", "--json"))


def test_solutions_score_all_points_in_3_minutes(tmp_path: Path) -> None:
    regard(tmp_path, "exercises", "new", "mine", "--seed", "11")
    for path in (tmp_path / "mine").iterdir():
        fill(path, {name: solution.body for name, solution in SOLUTIONS.items()})
    started = time.monotonic()
    graded = check(tmp_path)
    assert time.monotonic() - started < 180
    assert len(graded["exercises"]) >= 24
    assert {x["reason"] for x in graded["exercises"]} == {""}
    assert graded["score"] == graded["max_score"]


def test_traps_and_blanks_score_0_and_the_others_are_graded(tmp_path: Path) -> None:
    regard(tmp_path, "exercises", "new", "mine", "--course", "eecs182-hw8", "--seed", "11")
    bodies = {name: f"    {body}" for name, (body, _) in TRAPS.items()}
    bodies["fourier_features"] = SOLUTIONS["fourier_features"].body
    fill(tmp_path / "mine" / "eecs182-hw8.ipynb", bodies)
    grades = {x["name"]: x for x in check(tmp_path)["exercises"]}
    for name, (_, reason) in TRAPS.items():
        assert grades[name]["score"] == 0
        assert reason in grades[name]["reason"]
    assert [name for name, grade in grades.items() if grade["score"]] == ["fourier_features"]
    assert grades["fourier_features"]["score"] == 1
