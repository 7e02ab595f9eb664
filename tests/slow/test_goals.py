"""The scripts of docs/goals.md, as they are printed, with less training."""

import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from documented import blocks
from regard.cli import main
from tiny_explored import tiny_folder

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "goals.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
SMALL = ["task.length=16", "task.pairs=2", "model.d_model=16"]
LESS = {
    "demo": ["training.steps=30", "training.batch=16", "world.people=80", "world.absent=40"],
    "compare mqar": ["--jobs", "1", "training.steps=2", *SMALL],
    "train mqar": ["training.steps=10", *SMALL],
    "train": ["training.steps=10", "training.batch=8"],
}
"""Options and settings of commands that train, by the beginning of the command."""


Played = Callable[..., dict[str, str]]


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Played:
    """Run the commands of a section in a folder; return what each printed."""
    monkeypatch.chdir(tmp_path)

    def played(section: str, **replaced: str) -> dict[str, str]:
        (script,) = blocks(SECTIONS[section])
        printed: dict[str, str] = {}
        for line in script.splitlines():
            for name, value in replaced.items():
                line = line.replace(name, value)
            program, command, *rest = shlex.split(line, comments=True)
            assert program == "regard"
            arguments = [command, *rest]
            less = (more for name, more in LESS.items() if " ".join(arguments).startswith(name))
            code = main.run([*arguments, *next(less, [])])
            out, err = capsys.readouterr()
            assert code == 0, f"{line}: {err}"
            printed[shlex.join(arguments)] = out
        return printed

    return played


def test_a_model_is_asked_where_people_were_born(tmp_path: Path, play: Played) -> None:
    printed = play("Ask a model where people were born")
    assert "confidence" in printed["ask runs/demo/pretrained 'Where was Stefan Radnor born?'"]
    assert (tmp_path / "runs/demo/report.html").is_file()
    assert (tmp_path / "look.html").is_file()

    (edit,) = blocks(SECTIONS["Ablate a head"], "toml")
    (tmp_path / "edit.toml").write_text(edit, encoding="utf-8")
    play("Ablate a head")
    assert (tmp_path / "ablated.html").is_file()
    assert (tmp_path / "lens.html").is_file()


def test_layers_are_mixed(tmp_path: Path, play: Played) -> None:
    play("Mix layers of different kinds")
    assert "gated-deltanet+softmax" in (tmp_path / "hybrids/report.html").read_text("utf-8")
    assert (tmp_path / "look.html").is_file()


def test_a_mechanism_of_ones_own_is_checked_and_compared(tmp_path: Path, play: Played) -> None:
    page = (DOCS / "attention.md").read_text(encoding="utf-8")
    (file,) = (code for code in blocks(page, "python") if code.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(file, encoding="utf-8")
    printed = play("Try a mechanism of your own")
    assert printed["attention check mine.py:Sigmoid"].count("✓ mine.py:Sigmoid") == 3
    report = (tmp_path / "sweep/report.html").read_text(encoding="utf-8")
    assert "mine.py:Sigmoid" in report
    assert (tmp_path / "look.html").is_file()


def test_a_hugging_face_model_is_looked_at_and_imported(tmp_path: Path, play: Played) -> None:
    tiny_folder(tmp_path / "model", "gpt2", head=True)
    printed = play("Look inside a Hugging Face model", MODEL="model")
    assert (tmp_path / "dog.html").is_file()
    assert (tmp_path / "scores.png").is_file()
    assert printed["generate runs/imported 'The dog' --max-new-tokens 8"].startswith("The dog")


def test_a_class_is_prepared(tmp_path: Path, play: Played) -> None:
    printed = play("Prepare a class")
    assert "3.5.1" in printed["courses --course jhu-hw5"]
    slides = (tmp_path / "lesson/slides.html").read_text(encoding="utf-8")
    assert 'id="jhu-hw5-3.5.1"' in slides
    assert 'id="jhu-hw5-3.1"' not in slides
    assert "0 of 13 points" in printed["exercises check mine"]


def test_ones_own_table_and_text_give_a_model_for_transformers(
    tmp_path: Path, play: Played
) -> None:
    draw = random.Random(0)
    with (tmp_path / "reviews.csv").open("w", encoding="utf-8") as file:
        file.write("id,review,stars\n")
        for number in range(200):
            good = draw.random() < 0.5
            word = draw.choice(["warm", "fresh", "kind"] if good else ["cold", "stale", "rude"])
            thing = draw.choice(["food", "room", "soup"])
            file.write(f"{number},The {thing} was {word},{5 if good else 1}\n")
    animals = ("cat", "dog", "bird")
    sentences = (f"The {draw.choice(animals)} sat on the mat. " for _ in range(500))
    (tmp_path / "book.txt").write_text("".join(sentences), encoding="utf-8")
    section = "Train on your own table and text"
    printed = play(section)
    assert printed["generate runs/reviews 'The food was cold'"].strip() in ("1", "5")
    (code,) = blocks(SECTIONS[section], "python")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == printed["generate runs/book The --max-new-tokens 40"]
