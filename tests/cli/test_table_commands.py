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
from tiny import Command, refused, succeeded
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
    table = write_table(tmp_path / "reviews.csv")
    trained = succeeded(regard("train", "classification", table, *COLUMNS, "--out", "run", *TINY))
    assert "comma-separated, quoted, UTF-8, a header; text: column review" in trained.out
    assert "test rows with a text in training: " in trained.out
    held_out = load_rows(Path("run")) or []
    assert len(held_out) == 4
    files = ("--report", "page.html", "--predictions", "said.jsonl")
    scored = succeeded(regard("evaluate", "run", *files))
    assert "accuracy" in scored.out
    assert "Confusion matrix" in Path("page.html").read_text("utf-8")
    said = [json.loads(line) for line in Path("said.jsonl").read_text("utf-8").splitlines()]
    assert [row["label"] for row in said] == [row.answer for row in held_out]
    assert all(0 < row["confidence"] <= 1 for row in said)
    succeeded(regard("evaluate", "run", table))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    settings = [*TINY, "data.table.text=review", "data.table.label=stars"]
    train("classification", write_table(folder / "a.csv"), out=folder / "run", settings=settings)
    return folder / "run"


def test_no_row_loses_the_answers_of_others(run: Path, tmp_path: Path) -> None:
    texts = [
        "zyxw unknown words",
        "□ and ⁇",
        "😀",
        "word " * 200_000,
        "\0",
        "a\u2028b",
        "<unknown>",
    ]
    for text in texts:
        rows = [{"review": one, "stars": "5"} for one in ("good food", text, "bad food")]
        lines = list(map(json.dumps, rows))
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
    refused(
        regard("evaluate", str(run), str(table), "--predictions", str(said)),
        "a.csv:3: expected 2 columns, found 1",
    )
    assert not said.exists()
    with pytest.warns(UserWarning, match=r"a\.csv: bad rows left out: 1; "):
        succeeded(
            regard("evaluate", str(run), str(table), "--skip-bad", "--predictions", str(said))
        )
    assert len(said.read_text("utf-8").splitlines()) == 3  # with its header


def test_skipping_is_for_tables(regard: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text " * 500, "utf-8")
    out = "lm"
    succeeded(regard("train", "text", "a.txt", "--out", out, *TINY))
    refused(regard("evaluate", out, "--skip-bad"), "--skip-bad: is for a file of rows")
    scored = succeeded(regard("evaluate", out))
    assert "perplexity" in scored.out


def test_rows_without_labels_are_answered(regard: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,review\n1,good food\n2,bad food\n", "utf-8")
    answered = succeeded(regard("evaluate", str(run), "a.csv"))
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
    scored = succeeded(regard("evaluate", str(run), "a.csv"))
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


def test_a_run_of_a_file_is_not_scored_on_the_task_s_own_examples(tmp_path: Path) -> None:
    table = write_table(tmp_path / "a.csv")
    settings = [*TINY, "data.table.text=review", "data.table.test=0"]
    trained = train("classification", table, out=tmp_path / "run", settings=settings)
    with pytest.raises(UserError, match="was trained on a file: name one to score it on"):
        evaluate(trained)


def test_a_column_is_not_both_text_and_label(regard: Command, tmp_path: Path) -> None:
    table = write_table(tmp_path / "reviews.csv")
    columns = ("--text", "stars", "--label", "stars")
    refused(
        regard("train", "classification", str(table), *columns, "--out", "new"),
        "--label stars: is the column of the texts; name another",
    )


def test_columns_by_number_with_odd_names(regard: Command, tmp_path: Path) -> None:
    """Names and numbers are texts, whatever they look like in TOML."""
    (tmp_path / "a.csv").write_text("1;true\n" + "good;5\nbad;1\n" * 20, "utf-8")
    columns = ("--text", "1", "--label", "true")
    command = ("train", "classification", "a.csv", *columns, "--dry-run", *TINY)
    made = succeeded(regard(*command, "--out", "new"))
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
    command = ("train", task, "a.jsonl", "--out", "run", *settings)
    refused(regard(*command), "a.jsonl:22: ", "--skip-bad")
    trained = succeeded(regard(*command, "--skip-bad"))
    assert "skipped rows: 2" in trained.out
    assert "test rows with a text in training: " in trained.out
    held_out = load_rows(tmp_path / "run") or []
    assert len(held_out) == 2
    said = tmp_path / "said.txt"
    predictions = () if task == "retrieval" else ("--predictions", str(said))
    scored = succeeded(regard("evaluate", "run", *predictions))
    assert "this run: " in scored.out
    if predictions:
        assert len(said.read_text("utf-8").splitlines()) == 2
    if task not in ("tagging", "retrieval"):  # others are read as classification is, above
        return
    refused(regard("evaluate", "run", "a.jsonl"), "a.jsonl:22: ")
    with pytest.warns(UserWarning, match=r"bad rows left out: 2; the first: .*a\.jsonl:22: "):
        succeeded(regard("evaluate", "run", "a.jsonl", "--skip-bad"))


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
    command = ("train", "translation", "a.csv", "--text", "en", "--label", "de")
    out = "run"
    options = ("--test", "b.csv", "--out", out, "--header")
    settings = (*task_settings("translation", "decoder"), "tokenizer.unknown=unk")
    made = succeeded(regard(*command, *options, *settings))
    assert "training rows: 20" in made.out
    assert "test rows: 2" in made.out
    assert "test rows with a text in training: 1" in made.out
    assert "labels" not in made.out
    succeeded(regard("evaluate", out))
