"""What happens between commands: files that change and folders that move."""

import shutil
from pathlib import Path

import pytest

from regard import api
from regard.cli import main
from regard.comparison.folder import Sweep, save_sweep
from regard.comparison.scheduler import add_to_comparison
from regard.errors import UserError
from regard.runs.run import Run, ancestors
from regard.tasks.examples import read_questions
from tiny import MODEL, STEPS, write_data

SMALL = [*STEPS, "model.n_layers=1", "model.n_heads=2", "model.d_model=16"]


def write_table(path: Path, word: str = "day") -> Path:
    rows = (f"{mood} {word} {i},{mood}" for i in range(20) for mood in ("good", "bad"))
    path.write_text("text,label\n" + "\n".join(rows), "utf-8")
    return path


def questioned(folder: Path) -> tuple[Run, Path, Path]:
    """A run, the questions that it was trained on, and a copy of them."""
    write_data(folder)
    pairs, asked = folder / "pairs.tsv", folder / "asked.tsv"
    shutil.copy(pairs, asked)
    return (
        api.train("questions", pairs, out=folder / "run", settings=[*MODEL, *STEPS]),
        pairs,
        asked,
    )


def test_replaced_questions_are_not_those_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, pairs, asked = questioned(tmp_path)
    assert api.evaluate(run, asked).in_training == 8
    names = "Leo Finch", "Mia Finch", "Leo Bell", "Mia Bell"
    pairs.write_text("".join(f"Where was {name} born?\tRome\n" for name in names), "utf-8")
    for file in (asked, pairs):
        with pytest.warns(UserWarning, match=r"other than the first ones of .*pairs\.tsv; "):
            assert api.evaluate(run, file).in_training is None
    assert main.run(["calibrate", str(run.path), str(pairs), "--max-error", "50%"]) == 0
    assert "pairs.tsv holds other questions than in training" in capsys.readouterr().out


def test_questions_stay_those_of_the_training_when_others_are_appended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Calibration on the training questions gave a guarantee."""
    run, pairs, asked = questioned(tmp_path)
    with pairs.open("a", encoding="utf-8") as file:
        file.write("Where was Leo Finch born?\tRome\n")
    other = tmp_path / "other.tsv"
    other.write_text("Where was Ida Holm born?\tOslo\n", "utf-8")
    child = api.train("questions", other, out=tmp_path / "b", start=run, settings=STEPS)
    for one in (run, child):
        assert api.evaluate(one, asked).in_training == 8
        assert main.run(["calibrate", str(one.path), str(asked), "--max-error", "50%"]) == 2
        assert "pairs.tsv:1 trained" in capsys.readouterr().err


def test_the_rest_of_a_file_is_not_in_training(tmp_path: Path) -> None:
    write_data(tmp_path)
    questions = read_questions(tmp_path / "pairs.tsv")
    settings = [*MODEL, *STEPS, "tokenizer.unknown=bytes"]
    run = api.train("questions", questions[:6], out=tmp_path / "run", settings=settings)
    assert api.evaluate(run, questions[6:]).in_training == 0
    assert api.evaluate(run, questions[:6]).in_training == 6
    table = write_table(tmp_path / "moods.csv")
    run = api.train("classification", table, out=tmp_path / "rows", settings=SMALL)
    assert api.evaluate(run, table).in_training == 36
    write_table(table, "night")
    with pytest.warns(UserWarning, match="was trained on other rows than those of its files now; "):
        assert api.evaluate(run, table).in_training is None
    table.unlink()
    with pytest.warns(UserWarning, match=r"moods\.csv: is missing, and .*rows was trained on it; "):
        assert api.evaluate(run).in_training is None


def test_a_packed_text_of_the_training_is_known_by_its_content(tmp_path: Path) -> None:
    write_data(tmp_path)
    text, other = tmp_path / "text.txt", tmp_path / "inputs.txt"
    other.write_text("Ida Holm was born in Oslo.\n", "utf-8")
    packed, out = tmp_path / "packed", tmp_path / "run"
    assert main.run(["pack", str(text), "--out", str(packed), "--tokenizer", "characters"]) == 0
    settings = [one for one in MODEL if not one.startswith("tokenizer")]
    assert main.run(["pretrain", str(packed), "--out", str(out), *settings, *STEPS]) == 0
    assert api.evaluate(Run.load(out), text).in_training is True
    assert api.evaluate(Run.load(out), other).in_training is None
    shutil.rmtree(packed)
    assert api.evaluate(Run.load(out), text).in_training is None


def test_ancestors_are_found_after_a_move_though_others_took_their_place(tmp_path: Path) -> None:
    write_data(tmp_path)
    before, after = tmp_path / "runs", tmp_path / "old"
    settings = [*MODEL, *STEPS]
    start = api.train("questions", tmp_path / "pairs.tsv", out=before / "a", settings=settings)
    api.train("questions", tmp_path / "pairs.tsv", out=before / "b", start=start, settings=STEPS)
    before.rename(after)
    (tmp_path / "pairs.tsv").write_text("Where was Mia Bell born?\tOslo\n", "utf-8")
    api.train("questions", tmp_path / "pairs.tsv", out=before / "a", settings=settings)
    child = Run.load(after / "b")
    assert [one["run"] for one in ancestors(child.path, child.origin)] == [str(after / "a")]


def test_a_run_of_other_data_does_not_join(tmp_path: Path) -> None:
    out, table = tmp_path / "sweep", write_table(tmp_path / "moods.csv")
    out.mkdir()
    save_sweep(out, Sweep(over={"training.lr": ("0.001",)}, tune={}))
    run = api.train("classification", table, out=tmp_path / "run", settings=SMALL)
    with pytest.raises(UserError, match="was trained on a file, but cells"):
        add_to_comparison(out, [run.path])
    child = api.train("classification", out=tmp_path / "child", start=run, settings=STEPS)
    with pytest.raises(UserError, match=r"was trained from .*run, but cells"):
        add_to_comparison(out, [child.path])
    assert not (out / "cells").exists()


def test_a_run_whose_text_is_gone_can_be_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path)
    run, out = tmp_path / "run", tmp_path / "converted"
    api.train("text", tmp_path / "text.txt", out=run, settings=[*MODEL, *STEPS])
    (run / "tokens/packed.json").unlink()  # as a removal that was killed leaves them
    assert main.run(["convert", str(run), "model.attention.kind=elu", "--out", str(out)]) == 0
    assert "before: no perplexity: " in capsys.readouterr().out
    Run.load(out)
