"""regard exercises writes notebooks, grades them, and prints the answer key."""

import json
from pathlib import Path

import pytest
import torch

from regard.exercises import sandbox
from regard.exercises.registry import EXERCISES
from regard.exercises.worker import Answers, Job, run_job
from tiny import Command, succeeded

DISC8 = ("exercises", "new", "new", "--course", "eecs182-disc8", "--seed", 5)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grade without processes, which have tests of their own."""

    def run(_: object, job: Job) -> Answers:
        try:
            return run_job(job)
        finally:
            torch.set_default_dtype(torch.float32)  # the notebooks change it

    monkeypatch.setattr(sandbox.Sandbox, "run", run)


def test_new_writes_a_notebook_per_course(regard: Command, folder: Path) -> None:
    outcome = succeeded(regard("exercises", "new", "new", "--seed", 5))
    assert sorted(outcome.new) == ["new", *(f"new/{name}.ipynb" for name in sorted(EXERCISES))]
    assert "seed 5" in outcome.out
    assert "To grade them: regard exercises check new\n" in outcome.out
    again = {path.name: path.read_bytes() for path in (folder / "new").iterdir()}
    succeeded(regard("exercises", "new", "again", "--seed", 5))
    assert {path.name: path.read_bytes() for path in (folder / "again").iterdir()} == again


def test_students_without_a_seed_have_different_numbers(regard: Command, folder: Path) -> None:
    for name in ("a", "b"):
        succeeded(regard("exercises", "new", name, "--course", "eecs182-disc8"))
    first, second = (folder / name / "eecs182-disc8.ipynb" for name in ("a", "b"))
    assert first.read_text(encoding="utf-8") != second.read_text(encoding="utf-8")


def test_check_prints_points_json_and_gradescopes_results(regard: Command, folder: Path) -> None:
    succeeded(regard(*DISC8))
    path = folder / "new" / "eecs182-disc8.ipynb"
    book = json.loads(path.read_text(encoding="utf-8"))
    cell = next(c for c in book["cells"] if c["source"].startswith("def sine_positions"))
    cell["source"] = "def sine_positions(length, d):\n    print('[here]')\n    return [1]"
    path.write_text(json.dumps(book), encoding="utf-8")
    outcome = succeeded(regard("exercises", "check", "new"))
    assert outcome.new == []
    assert "0 of 5 points" in outcome.out
    assert "returned a list, not a tensor of shape" in outcome.out
    outcome = succeeded(regard("exercises", "check", "new", "--json", "--results", "results.json"))
    assert outcome.new == ["results.json"]
    grades = json.loads(outcome.out)
    assert (grades["score"], grades["max_score"]) == (0, 5)
    of_sines = next(x for x in grades["exercises"] if x["name"] == "sine_positions")
    assert (of_sines["course"], of_sines["part"]) == ("eecs182-disc8", "1.e")
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["score"] == 0
    test = next(x for x in results["tests"] if "Sine" in x["name"])
    assert (test["score"], test["max_score"], test["status"]) == (0, 1, "failed")
    assert "[here]" in test["output"]


def test_key_has_the_results_for_the_students_numbers(regard: Command) -> None:
    succeeded(regard(*DISC8))
    key = succeeded(regard("exercises", "key", "new"))
    assert key.out.startswith("# UC Berkeley EECS 182, Discussion 8")
    assert key.out.count("## ") == key.out.count("```python\n# The result.\n") == 5
    other = succeeded(regard("exercises", "key", "new", "--seed", 6))
    assert other.out != key.out
