"""Tables of users: what is detected, what is refused, and which rows are held out."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.examples import Example
from regard.tasks.tables import (
    TableConfig,
    count_duplicates,
    is_table,
    load_rows,
    pack_rows,
    read_table,
    read_table_examples,
    stratified_split,
)

ROWS = [("the food, was good", "5"), ('a "bad"; day', "1"), ("line\nend | □ ⁇ 😀", "5")]
NAMED = TableConfig(text="review", label="stars")


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def pairs(path: Path, config: TableConfig = NAMED) -> list[tuple[str, str | None]]:
    return [(one.text, one.answer) for one in read_table_examples(path, config).examples]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_csv_writes_is_read(tmp_path: Path, separator: str, end: str, encoding: str) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator=end)
        writer.writerows([("id", "review", "stars"), *((7, *row) for row in ROWS)])
    assert pairs(path) == ROWS
    assert pairs(path, TableConfig(text="2", label="3")) == ROWS
    by_default = TableConfig(text="review")  # the last column
    assert pairs(path, by_default) == ROWS


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_western_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "a.csv", "review,stars\ncafé,5\ndéjà,1\n".encode(encoding))
    assert pairs(path) == [("café", "5"), ("déjà", "1")]
    assert "Windows-1252" in read_table(path).format


def test_records_are_rows(tmp_path: Path) -> None:
    lines = [json.dumps({"id": 1, "review": text, "stars": int(label)}) for text, label in ROWS]
    assert pairs(write(tmp_path / "a.jsonl", "\n".join(lines))) == ROWS


def test_parquet_rows(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    texts, stars = zip(*ROWS, strict=True)
    table = arrow.table({"review": texts, "stars": [int(one) for one in stars]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert pairs(tmp_path / "a.parquet") == ROWS


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("text\tlabel\ngood food\tpositive\nbad food\tnegative\n", True),
        ("Sentence\tSentiment\ngood\tpositive\nbad\tnegative\n", True),
        ("words\tkind\nx y\ta\nu v\tb\nw w\ta\nz z\tb\n", True),
        ("good food\tpositive\nbad food\tnegative\nbad wine\tnegative\n", False),
        ("good food\t5\nbad food\t1\n", False),
        ("good\tgood\nbad\tbad\n", False),
    ],
)
def test_a_header_is_detected(tmp_path: Path, text: str, header: bool) -> None:
    path = write(tmp_path / "a.tsv", text)
    assert read_table(path).format.endswith("a header" if header else "no header")
    assert is_table(path, TableConfig()) is header
    assert len(read_table(path, header=False).rows) == len(text.splitlines())
    assert len(read_table(path, header=True).rows) == len(text.splitlines()) - 1


def test_quotation_marks_in_tsv_are_text_where_they_are_not_closed(tmp_path: Path) -> None:
    open_ = write(tmp_path / "open.tsv", 'review\tstars\n"good" they said\t5\n"\t1\n')
    assert pairs(open_) == [('"good" they said', "5"), ('"', "1")]
    closed = write(tmp_path / "closed.tsv", 'review\tstars\n"good\tnew"\t5\nbad\t1\n')
    assert pairs(closed) == [("good\tnew", "5"), ("bad", "1")]


def test_cells_of_a_megabyte_are_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", "review,stars\n" + "word " * 200_000 + ",5\nbad,1\n")
    assert [len(text) for text, _ in pairs(path)] == [999_999, 3]
    assert csv.field_size_limit() == limit


BAD = {
    "too many": ("a,b,5", "expected 2 columns, found 3"),
    "too few": ("alone", "expected 2 columns, found 1"),
    "no text": (" ,5", "the text is empty"),
    "no label": ("good,", "the label is empty"),
}


@pytest.mark.parametrize(("line", "says"), BAD.values(), ids=BAD)
def test_a_bad_row_is_an_error_or_left_out(tmp_path: Path, line: str, says: str) -> None:
    path = write(tmp_path / "a.csv", f"review,stars\ngood,5\n{line}\nbad,1\n")
    with pytest.raises(UserError) as refused:
        pairs(path)
    assert str(refused.value).startswith(f"{path}:3: {says}")
    assert "--skip-bad" in str(refused.value)
    read = read_table_examples(path, TableConfig(text="review", label="stars", skip_bad=True))
    assert [one.text for one in read.examples] == ["good", "bad"]
    assert len(read.skipped) == 1


def test_a_bad_record_is_one_bad_row(tmp_path: Path) -> None:
    lines = '{"review": "good", "stars": 5}\n{\n{"review": "bad", "stars": 1}\n{"stars": 1}'
    path = write(tmp_path / "a.jsonl", lines)
    with pytest.raises(UserError, match=r"a\.jsonl:2: .* \(2 such rows\)"):
        pairs(path)
    skipping = TableConfig(text="review", label="stars", skip_bad=True)
    assert pairs(path, skipping) == [("good", "5"), ("bad", "1")]


@pytest.mark.parametrize(
    ("text", "config", "says"),
    [
        ("", NAMED, "is empty"),
        ("\ufeff\r\n", NAMED, "is empty"),
        ("review,stars\n", NAMED, "has a header but no rows; add rows"),
        ("review,stars\ngood,5\n", TableConfig(text="reviews"), "did you mean review?"),
        ("review,stars\ngood,5\n", TableConfig(text="3"), "has no column '3'; its columns: review"),
        ("review,stars\n,5\n", TableConfig(skip_bad=True), "has no row with a text"),
    ],
)
def test_a_table_without_rows_or_columns_is_refused(
    tmp_path: Path, text: str, config: TableConfig, says: str
) -> None:
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(UserError) as refused:
        pairs(path, config)
    assert says in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_labels_may_be_missing_where_none_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,review\n1,good\n2,bad\n")
    read = read_table_examples(path, NAMED, label_required=False)
    assert [(one.text, one.answer) for one in read.examples] == [("good", None), ("bad", None)]
    with pytest.raises(UserError, match="has no column 'stars'"):
        pairs(path)


# Held-out rows

labels = st.lists(st.sampled_from("aabbbcd"), min_size=1, max_size=200)


@given(labels=labels, share=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 5))
def test_each_label_gives_its_share(labels: list[str], share: float, seed: int) -> None:
    rows = [Example(text=str(i), answer=label) for i, label in enumerate(labels)]
    training, test = stratified_split(rows, share, seed)
    assert sorted((*training, *test), key=lambda row: int(row.text)) == rows
    assert {row.answer for row in training} == set(labels)
    assert (training, test) == stratified_split(rows, share, seed)
    counts = Counter(row.answer for row in test)
    for label, n in Counter(labels).items():
        assert abs(counts[label] - share * n) <= 2


def test_rare_labels_share_what_none_fills_alone() -> None:
    rows = [Example(text=str(i), answer=str(i // 2)) for i in range(20_000)]
    training, test = stratified_split(rows, 0.1, seed=0)
    assert len(test) == 2000
    assert len({row.answer for row in training}) == 10_000


def test_duplicates_are_counted() -> None:
    rows = [Example(text=text, answer="a") for text in "abcabz"]
    assert count_duplicates(rows[:3], rows[3:]) == 2


def test_rows_are_saved_and_loaded(tmp_path: Path) -> None:
    rows = [
        Example(text=text, answer=label, where=f"a.csv:{i}") for i, (text, label) in enumerate(ROWS)
    ]
    assert load_rows(tmp_path) is None
    write(tmp_path / "test.jsonl", pack_rows(rows))
    assert load_rows(tmp_path) == rows
    write(tmp_path / "test.jsonl", "{")
    with pytest.raises(UserError, match="is damaged"):
        load_rows(tmp_path)
