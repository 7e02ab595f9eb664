"""Training on a table and scoring its held-out rows, as a user does."""

import json
from pathlib import Path

import pytest

from plans import plan_named
from regard.api import evaluate, load, train
from regard.errors import UserError
from regard.evaluation.tasks import TaskScore
from regard.tasks.registry import TEXT_TASKS
from regard.tasks.rows import load_rows
from regard.training.plan import Plan
from tiny import Command, refused
from tiny_tasks import task_settings

SIZES = ["context_length=16", "n_layers=1", "n_heads=2", "d_model=8"]
TINY = [*(f"model.{size}" for size in SIZES), "training.steps=2", "training.batch=8"]
COLUMNS = ("--text", "review", "--label", "stars")


def write_table(path: Path, n: int = 40) -> Path:
    rows = [
        f"{i},the {'good' if i % 2 else 'bad'} food {i % 15},{1 + 4 * (i % 2)}" for i in range(n)
    ]
    path.write_text("\n".join(["id,review,stars", *rows]), "utf-8")
    return path


def plan(path: Path, *settings: str, test: Path | None = None) -> Plan:
    columns = ["data.table.text=review", "data.table.label=stars"]
    return plan_named(
        "classification", path, out=path.parent / "new", settings=[*TINY, *columns, *settings],
        test=test,
    )  # fmt: skip


def test_a_table_is_trained_and_its_held_out_rows_are_scored(
    regard: Command, tmp_path: Path
) -> None:
    table, out = write_table(tmp_path / "reviews.csv"), str(tmp_path / "run")
    trained = regard("train", "classification", str(table), *COLUMNS, "--out", out, *TINY)
    assert trained.code == 0, trained.err
    assert "comma-separated, quoted, UTF-8, a header; text: column review" in trained.out
    assert "test rows with a text in training: " in trained.out
    assert len(load_rows(Path(out)) or []) == 4
    files = [str(tmp_path / name) for name in ("page.html", "said.jsonl")]
    scored = regard("evaluate", out, "--report", files[0], "--predictions", files[1])
    assert scored.code == 0, scored.err
    assert "accuracy" in scored.out
    assert "Confusion matrix" in Path(files[0]).read_text("utf-8")
    said = [json.loads(line) for line in Path(files[1]).read_text("utf-8").splitlines()]
    assert [row["label"] for row in said] == [row.answer for row in load_rows(Path(out)) or []]
    assert all(0 < row["confidence"] <= 1 for row in said)
    whole = regard("evaluate", out, str(table))
    assert whole.code == 0, whole.err


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    settings = [*TINY, "data.table.text=review", "data.table.label=stars"]
    train("classification", write_table(folder / "a.csv"), out=folder / "run", settings=settings)
    return folder / "run"


def test_no_row_loses_the_answers_of_others(run: Path, tmp_path: Path) -> None:
    for text in [
        "zyxw unknown words",
        "□ and ⁇",
        "😀",
        "word " * 200_000,
        "\0",
        "a\u2028b",
        "<unknown>",
    ]:
        lines = [
            json.dumps({"review": one, "stars": "5"}) for one in ("good food", text, "bad food")
        ]
        (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
        score = evaluate(load(run), tmp_path / "a.jsonl")
        assert isinstance(score, TaskScore)
        assert len(score.predictions) == 3
        (tmp_path / "b.jsonl").write_text("\n".join([lines[0], lines[2]]), "utf-8")
        alone = evaluate(load(run), tmp_path / "b.jsonl")
        assert [score.answered[0], score.answered[2]] == alone.answered


def test_a_bad_row_stops_before_the_first_answer_or_is_skipped(
    regard: Command, run: Path, tmp_path: Path
) -> None:
    table = tmp_path / "a.csv"
    table.write_text("review,stars\ngood food,5\nragged\nbad food,1\n", "utf-8")
    said = tmp_path / "said.csv"
    refused = regard("evaluate", str(run), str(table), "--predictions", str(said))
    assert refused.code == 2
    assert "a.csv:3: expected 2 columns, found 1" in refused.err
    assert not said.exists()
    with pytest.warns(UserWarning, match=r"a\.csv: bad rows left out: 1; "):
        skipped = regard("evaluate", str(run), str(table), "--skip-bad", "--predictions", str(said))
    assert skipped.code == 0, skipped.err
    assert len(said.read_text("utf-8").splitlines()) == 3  # with its header


def test_skipping_is_for_tables(regard: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text " * 500, "utf-8")
    out = str(tmp_path / "lm")
    trained = regard("train", "text", str(tmp_path / "a.txt"), "--out", out, *TINY)
    assert trained.code == 0, trained.err
    refused = regard("evaluate", out, "--skip-bad")
    assert refused.code == 2
    assert "--skip-bad: is for a file of rows" in refused.err
    scored = regard("evaluate", out)
    assert scored.code == 0, scored.err
    assert "perplexity" in scored.out


def test_rows_without_labels_are_answered(regard: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,review\n1,good food\n2,bad food\n", "utf-8")
    answered = regard("evaluate", str(run), str(tmp_path / "a.csv"))
    assert answered.code == 0, answered.err
    assert "2 answers" in answered.out


def test_labels_that_training_lacks_are_reported(tmp_path: Path) -> None:
    test = tmp_path / "test.csv"
    test.write_text("review,stars\ngood food,5\nodd food,3\n", "utf-8")
    made = plan(write_table(tmp_path / "a.csv"), test=test)
    assert made.data.facts["test_rows_with_a_label_absent_from_training"] == 1
    assert made.data.facts["training_rows"] == 40


def test_labels_absent_from_training_are_reported_with_the_score(
    regard: Command, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("review,stars\ngood food,5\nodd food,3\n", "utf-8")
    scored = regard("evaluate", str(run), str(tmp_path / "a.csv"))
    assert scored.code == 0, scored.err
    assert "rows with a label absent from training, scored as wrong: 1\n" in scored.out


def test_duplicates_across_the_split_are_reported(tmp_path: Path) -> None:
    made = plan(write_table(tmp_path / "a.csv", n=300))
    assert made.data.facts["test_rows"] == 30
    assert made.data.facts["test_rows_with_a_text_in_training"] == 30


def test_one_label_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("review,stars\ngood,5\nbad,5\n", "utf-8")
    with pytest.raises(UserError, match="all rows have the label '5', so nothing can be learned"):
        plan(tmp_path / "a.csv")


def test_a_label_for_each_row_is_a_warning(tmp_path: Path) -> None:
    rows = "\n".join(f"text {i},label{i}" for i in range(12))
    (tmp_path / "a.csv").write_text(f"review,stars\n{rows}\n", "utf-8")
    with pytest.warns(UserWarning, match="each row has a label of its own.*--label"):
        plan(tmp_path / "a.csv")


def test_ten_thousand_labels_are_planned(tmp_path: Path) -> None:
    rows = "\n".join(f"text {i},label{i // 2}" for i in range(20_000))
    (tmp_path / "a.csv").write_text(f"review,stars\n{rows}\n", "utf-8")
    made = plan(tmp_path / "a.csv", "tokenizer.kind=characters")
    assert made.data.facts["labels"] == 10_000
    assert made.describe()["uniform_loss"] == pytest.approx(9.2103, abs=1e-3)


def test_a_run_of_a_file_is_not_scored_on_the_task_s_own_examples(tmp_path: Path) -> None:
    table = write_table(tmp_path / "a.csv")
    settings = [*TINY, "data.table.text=review", "data.table.test=0"]
    trained = train("classification", table, out=tmp_path / "run", settings=settings)
    with pytest.raises(UserError, match="was trained on a file: name one to score it on"):
        evaluate(trained)


def test_a_test_table_is_for_tables(regard: Command, tmp_path: Path) -> None:
    refused = regard("train", "casing", "--test", "a.csv", "--out", str(tmp_path / "new"))
    assert refused.code == 2
    assert "train casing: --test is for a task trained on a file" in refused.err


def test_options_of_other_tasks_are_refused(regard: Command, tmp_path: Path) -> None:
    for task, option, tasks in [
        ("classification", ("--documents", "lines"), "(text)"),
        ("copy", ("--text", "review"), "(text, casing, "),
        ("text", ("--label", "stars"), "(casing, "),
        ("questions", ("--no-header",), "(casing, "),
        ("copy", ("--skip-bad",), "(text, casing, "),
    ]:
        refused = regard("train", task, *option, "--out", str(tmp_path / "new"))
        assert refused.code == 2
        name = option[0].replace("--no-", "--")
        assert f"train {task}: {name} is for other tasks {tasks}" in refused.err


def test_options_of_a_table_need_a_file(regard: Command, tmp_path: Path) -> None:
    refused = regard("train", "classification", "--text", "a", "--out", str(tmp_path / "new"))
    assert refused.code == 2
    assert "train classification: --text is for a file; name one, or leave it out" in refused.err


def test_a_column_is_not_both_text_and_label(regard: Command, tmp_path: Path) -> None:
    table = write_table(tmp_path / "reviews.csv")
    columns = ("--text", "stars", "--label", "stars")
    refused = regard(
        "train", "classification", str(table), *columns, "--out", str(tmp_path / "new")
    )
    assert refused.code == 2
    assert "--label stars: is the column of the texts; name another" in refused.err


def test_columns_by_number_with_odd_names(regard: Command, tmp_path: Path) -> None:
    """Names and numbers are texts, whatever they look like in TOML."""
    (tmp_path / "a.csv").write_text("1;true\n" + "good;5\nbad;1\n" * 20, "utf-8")
    columns = ("--text", "1", "--label", "true")
    command = ("train", "classification", str(tmp_path / "a.csv"), *columns, "--dry-run", *TINY)
    made = regard(*command, "--out", str(tmp_path / "new"))
    assert made.code == 0, made.err
    assert "text: column 1; label: column true" in made.out


@pytest.mark.parametrize("task", TEXT_TASKS)
def test_rows_of_each_task_are_held_out_and_scored(
    regard: Command, tmp_path: Path, task: str
) -> None:
    """Bad rows are left out, and the rows of the run are those that `evaluate` scores."""
    n = 21
    pairs = task == "entailment"
    rows = [{"text": f"word {i % 19}", "label": ["yes", "no"][i % 2]} for i in range(n)]
    rows = [row | {"label": f"{row['label']} tag"} for row in rows] if task == "tagging" else rows
    rows = [row | {"second": "word"} for row in rows] if pairs else rows
    lines = [*map(json.dumps, rows), "{", '{"text": "alone"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    settings = task_settings(task, FAMILY.get(task, "decoder"))
    command = ("train", task, str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "run"), *settings)
    refused(regard(*command), "a.jsonl:22: ", "--skip-bad")
    trained = regard(*command, "--skip-bad")
    assert trained.code == 0, trained.err
    assert "skipped rows: 2" in trained.out
    assert "test rows with a text in training: " in trained.out
    held_out = load_rows(tmp_path / "run") or []
    assert len(held_out) == 2
    said = tmp_path / "said.txt"
    predictions = () if task == "retrieval" else ("--predictions", str(said))
    scored = regard("evaluate", str(tmp_path / "run"), *predictions)
    assert scored.code == 0, scored.err
    assert "this run: " in scored.out
    if predictions:
        assert len(said.read_text("utf-8").splitlines()) == 2
    refused(regard("evaluate", str(tmp_path / "run"), str(tmp_path / "a.jsonl")), "a.jsonl:22: ")
    with pytest.warns(UserWarning, match=r"bad rows left out: 2; the first: .*a\.jsonl:22: "):
        whole = regard("evaluate", str(tmp_path / "run"), str(tmp_path / "a.jsonl"), "--skip-bad")
    assert whole.code == 0, whole.err


FAMILY = {
    "classification": "encoder, classification",
    "entailment": "encoder, classification",
    "tagging": "encoder, tags",
    "retrieval": "encoder, embedding",
}


@pytest.mark.parametrize("task", TEXT_TASKS)
def test_by_default_a_tokenizer_of_rows_encodes_all(tmp_path: Path, task: str) -> None:
    second = "\tso" if task == "entailment" else ""
    labels = ["1 2 3", "4 5 6"]
    lines = [f"the good food{second}\t{labels[i % 2]}\n" for i in range(9)]
    (tmp_path / "a.tsv").write_text("".join(lines), "utf-8")
    made = plan_named(task, tmp_path / "a.tsv", out=tmp_path / "new")
    assert made.run.tokenizer.encode("zyxw 😀")


def test_another_file_is_the_test_of_any_task(regard: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("en,de\n" + "a dog,ein Hund\n" * 20, "utf-8")
    (tmp_path / "b.csv").write_text("en,de\na dog,ein Hund\na cat,eine Katze\n", "utf-8")
    command = ("train", "translation", str(tmp_path / "a.csv"), "--text", "en", "--label", "de")
    out = str(tmp_path / "run")
    options = ("--test", str(tmp_path / "b.csv"), "--out", out, "--header")
    settings = (*task_settings("translation", "decoder"), "tokenizer.unknown=unk")
    made = regard(*command, *options, *settings)
    assert made.code == 0, made.err
    assert "training rows: 20" in made.out
    assert "test rows: 2" in made.out
    assert "test rows with a text in training: 1" in made.out
    assert "labels" not in made.out
    scored = regard("evaluate", out)
    assert scored.code == 0, scored.err


def test_no_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no examples to train on"):
        plan_named("casing", [], out=tmp_path / "new")
