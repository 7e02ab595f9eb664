"""How much of the data to evaluate on was in training."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from regard import api
from regard.cli import main
from regard.runs.run import Run
from regard.runs.training_text import count_trained, is_training_text
from regard.tasks.examples import read_questions
from regard.tasks.rows import load_rows
from tiny import BIOGRAPHIES, MODEL, PEOPLE, STEPS, Command, succeeded


def record_inputs(run: Path, *files: Path) -> None:
    origin = json.loads((run / "origin.json").read_text("utf-8"))
    origin["inputs"] = [str(file.resolve()) for file in files]
    (run / "origin.json").write_text(json.dumps(origin), "utf-8")


def test_questions_of_the_training_are_counted(regard: Command, folder: Path, run: Path) -> None:
    asked = (folder / "pairs.tsv").read_text("utf-8") + "Where was Max Stone born?\tOslo\n"
    (folder / "more.tsv").write_text(asked, "utf-8")
    counted = f"{len(PEOPLE)} of {len(PEOPLE) + 1} questions were in training"
    assert "in training" not in succeeded(regard("evaluate", "run", "more.tsv")).out
    record_inputs(run, folder / "text.txt", folder / "pairs.tsv")
    found = succeeded(regard("evaluate", "run", "more.tsv", "--json", "figures.json"))
    assert counted in found.out.splitlines()
    assert counted in (run / "report.html").read_text("utf-8")
    assert json.loads((folder / "figures.json").read_text("utf-8"))["in_training"] == len(PEOPLE)
    (folder / "pairs.tsv").write_text("a\tb\tc\n", "utf-8")
    assert count_trained(Run.load(run), read_questions(folder / "more.tsv")) is None
    (folder / "pairs.tsv").unlink()
    with pytest.warns(UserWarning, match=r"pairs\.tsv: is missing, and .*run was trained on it; "):
        assert count_trained(Run.load(run), read_questions(folder / "more.tsv")) is None


def test_a_text_of_the_training_is_named(regard: Command, folder: Path, run: Path) -> None:
    record_inputs(run, folder / "text.txt")
    found = succeeded(regard("evaluate", "run", "text.txt"))
    assert found.out.splitlines()[-1].endswith("; this text is the training text")
    shutil.copy(folder / "text.txt", folder / "copy.txt")
    assert "training" not in succeeded(regard("evaluate", "run", "copy.txt")).out


def replace_fingerprint(run: Path) -> None:
    """Change the fingerprint of the data in a run's origin, as if another run were there."""
    origin = json.loads((run / "origin.json").read_text("utf-8"))
    changed = json.dumps(origin | {"fingerprint": "another"})
    (run / "origin.json").write_text(changed, "utf-8")


def test_packed_text_is_known_by_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, copy, other = (tmp_path / name for name in ("text.txt", "copy.txt", "other.txt"))
    text.write_text("\n".join(BIOGRAPHIES * 20), "utf-8")
    shutil.copy(text, copy)
    other.write_text(BIOGRAPHIES[0], "utf-8")
    run = api.train("text", [text], out=tmp_path / "run", settings=[*MODEL, *STEPS], device="cpu")
    copies, training = tmp_path / "copies", "; this text is the training text"
    copies.mkdir()
    for name in ("a.txt", "b.txt"):
        shutil.copy(text, copies / name)
    (copies / "c.txt.gz").write_bytes(gzip.compress(text.read_bytes()))
    ends = {(): ", held out of training", (copy,): training, (copies,): training}
    for files, end in ends.items():
        assert main.run(["evaluate", str(run.path), *map(str, files)]) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith(end)
    assert main.run(["evaluate", str(run.path), str(other)]) == 0
    assert "training" not in capsys.readouterr().out
    child = api.train("text", [other], out=tmp_path / "child", start=run, settings=STEPS)
    assert [is_training_text(child, one) for one in (copy, other)] == [True, True]
    replace_fingerprint(run.path)
    found = [is_training_text(child, one) for one in (text, copy, other)]
    assert found == [True, False, True], "another run in the ancestor's folder has other files"


def test_rows_held_out_of_a_table_are_not_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "moods.csv"
    rows = (f"{word} {i},{word}" for i in range(20) for word in ("good", "bad"))
    table.write_text("text,label\n" + "\n".join(rows), "utf-8")
    settings = [*STEPS, "model.n_layers=1", "model.n_heads=2", "model.d_model=16"]
    run = api.train("classification", table, out=tmp_path / "run", settings=settings, device="cpu")
    for files, line in {
        (): "0 of 4 rows were in training",
        (table,): "36 of 40 rows were in training",
    }.items():
        assert main.run(["evaluate", str(run.path), *map(str, files)]) == 0
        assert line in capsys.readouterr().out.splitlines()


def test_training_and_test_rows_may_be_in_files_of_one_name(tmp_path: Path) -> None:
    tables = [tmp_path / name / "moods.csv" for name in ("training", "test")]
    for table in tables:
        table.parent.mkdir()
        rows = "".join(f"{word} {table.parent.name},{word}\n" for word in ("good", "bad"))
        table.write_text(f"text,label\n{rows}", "utf-8")
    settings = [*STEPS, "model.n_layers=1", "model.n_heads=2", "model.d_model=16"]
    run = api.train(
        "classification", tables[0], test=tables[1], out=tmp_path / "run", settings=settings
    )
    assert [api.evaluate(run, table).in_training for table in tables] == [2, 0]


def test_rows_that_trained_an_ancestor_are_in_training(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    for table in (a, b):
        rows = (f"{word} {table.stem} {i},{word}" for i in range(20) for word in ("good", "bad"))
        table.write_text("text,label\n" + "\n".join(rows), "utf-8")
    model = ["model.n_layers=1", "model.n_heads=2", "model.d_model=16"]
    start = api.train("classification", a, out=tmp_path / "a", settings=[*STEPS, *model, "seed=1"])
    other = api.train("classification", b, out=tmp_path / "b", start=start, settings=STEPS)
    assert api.evaluate(other, a).in_training == 36
    same = api.train("classification", a, out=tmp_path / "same", start=start, settings=STEPS)
    assert api.evaluate(same).in_training == 0, "the seed of the start holds out the same rows"
    settings = [*STEPS, "seed=0"]
    again = api.train("classification", a, out=tmp_path / "c", start=start, settings=settings)
    held = [{row.text for row in load_rows(run.path) or ()} for run in (start, again)]
    assert api.evaluate(again).in_training == len(held[1] - held[0]) > 0
    replace_fingerprint(start.path)
    with pytest.warns(UserWarning, match="or was replaced by another run; examples that were in"):
        assert api.evaluate(other, a).in_training is None
