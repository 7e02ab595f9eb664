"""regard look and regard head-scores, on the smallest run."""

import json
from pathlib import Path

import pytest

from tiny import BIOGRAPHIES, MODEL, STEPS, Command, refused, succeeded

pytestmark = pytest.mark.usefixtures("run")

TEXT = BIOGRAPHIES[0][:20]
OTHER = BIOGRAPHIES[1][:20]


def test_a_page_is_written(regard: Command, folder: Path) -> None:
    outcome = succeeded(regard("look", "run", TEXT))
    assert outcome.new == ["look.html"]
    assert outcome.out == "Look: look.html\n", "a path is printed as it was typed"
    assert "<!doctype html>" in (folder / "look.html").read_text(encoding="utf-8")


def test_a_question_is_said_to_be_read_as_one(regard: Command, folder: Path) -> None:
    outcome = succeeded(regard("look", "run", "Where was Mia Bell born?"))
    first, last = outcome.out.splitlines()
    assert first == "run: the text is read as a question, as by regard ask"
    assert last.startswith("Look: ")
    assert "read as a question" in (folder / "look.html").read_text(encoding="utf-8")


def test_texts_and_models_stand_side_by_side(regard: Command, folder: Path) -> None:
    flags = ("--compare-untrained", "--compare", "run", "--compare-text", OTHER, "--out", "x.html")
    succeeded(regard("look", "run", TEXT, *flags))
    page = (folder / "x.html").read_text(encoding="utf-8")
    assert page.count('"maps":') == 4
    assert "run, untrained" in page


def test_a_picture_is_drawn(regard: Command, folder: Path) -> None:
    succeeded(regard("look", "run", TEXT, "--layers", "0", "--heads", "1", "--out", "x.png"))
    assert (folder / "x.png").read_bytes().startswith(b"\x89PNG")
    succeeded(regard("look", "run", TEXT, "--out", "x.svg"))
    assert (folder / "x.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("option", [("--detail", "0.1"), ("--compare-untrained",)])
def test_options_of_pages_are_refused_for_a_picture(
    regard: Command, option: tuple[str, ...]
) -> None:
    refused(regard("look", "run", TEXT, *option, "--out", "x.png"), f"{option[0]}: a picture")


def test_the_current_folder_has_its_name(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "run")
    succeeded(regard("look", ".", TEXT, "--compare-untrained", "--out", folder / "x.html"))
    assert "run, untrained" in (folder / "x.html").read_text(encoding="utf-8")


def test_patterns_are_listed_and_drawn(regard: Command, folder: Path) -> None:
    (folder / "texts.txt").write_text(f"{TEXT}\n{OTHER}\n", encoding="utf-8")
    outcome = succeeded(regard("head-scores", "run", "texts.txt", "--json", "found.json"))
    found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    assert {"layer", "head", "pattern", "previous", "sink", "entropy"} <= set(found[0])
    assert outcome.new == ["found.json", "head-scores.png"]
    assert (folder / "head-scores.png").read_bytes().startswith(b"\x89PNG")


def test_a_text_too_short_for_sinks_has_no_share_of_them(regard: Command) -> None:
    """Uniform attention to few tokens gave the first more than 0.3."""
    assert "4 tokens are too few to tell a sink" in regard("head-scores", "run", "Ada").out
    assert "% of the heads use the first token as a sink" in regard("head-scores", "run", TEXT).out


def test_a_random_text_is_read_twice(regard: Command, folder: Path) -> None:
    succeeded(regard("head-scores", "run", "--random", "5", "--json", "random.json"))
    found = json.loads((folder / "random.json").read_text(encoding="utf-8"))
    assert {"duplicate twice", "induction twice", "norm"} <= set(found[0])
    succeeded(
        regard("head-scores", "run", TEXT, "--random", "5", "--gradients", "--json", "x.json")
    )
    both = json.loads((folder / "x.json").read_text(encoding="utf-8"))
    assert [head["induction twice"] for head in both] == [h["induction twice"] for h in found]
    assert all(head["gradient"] > 0 for head in both)


def test_a_score_that_some_layers_lack_is_a_gap(regard: Command, folder: Path) -> None:
    hybrid = (*MODEL, "model.n_layers=2", "model.pattern=softmax+gated-softmax", *STEPS)
    succeeded(regard("pretrain", "text.txt", "--out", "mixed", *hybrid))
    out = succeeded(regard("head-scores", "mixed", "--random", "5", "--json", "x.json")).out
    found = json.loads((folder / "x.json").read_text("utf-8"))
    assert len({"norm" in one for one in found}) == 2
    for row, one in zip(out.splitlines()[1:], found, strict=False):
        last = [f"{one[name]:.2f}" for name in ("duplicate twice", "induction twice")]
        assert row.split()[-3:] == [f"{one['norm']:.2f}" if "norm" in one else "–", *last]
