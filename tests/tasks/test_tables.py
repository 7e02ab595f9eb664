"""Tables of users: what is detected, and what is refused."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from regard.errors import UserError
from regard.tasks.casing import CasingConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.registry import read_rows
from regard.tasks.tables import TableConfig, is_table, read_table, read_table_rows

ROWS = [("the food, was good", "5"), ('a "bad"; day', "1"), ("line\nend | □ ⁇ 😀", "5")]
NAMED = TableConfig(text="review", label="stars")


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def pairs(path: Path, config: TableConfig = NAMED) -> list[tuple[str, str | None]]:
    rows = read_rows(ClassificationConfig(), path, config)
    return [(one.text, one.answer) for one in rows.examples]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_csv_writes_is_read(tmp_path: Path, separator: str, encoding: str) -> None:
    for end in ["\n", "\r\n"]:
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


def test_a_header_is_detected(tmp_path: Path) -> None:
    for text, header in [
        ("text\tlabel\ngood food\tpositive\nbad food\tnegative\n", True),
        ("Sentence\tSentiment\ngood\tpositive\nbad\tnegative\n", True),
        ("words\tkind\nx y\ta\nu v\tb\nw w\ta\nz z\tb\n", True),
        ("good food\tpositive\nbad food\tnegative\nbad wine\tnegative\n", False),
        ("good food\t5\nbad food\t1\n", False),
        ("good\tgood\nbad\tbad\n", False),
    ]:
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


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_quotation_mark_that_is_not_closed_loses_no_rows_silently(
    tmp_path: Path, name: str
) -> None:
    tab = "\t" if name.endswith("tsv") else ","
    good = [f'{i % 5}{tab}"good {i}"' for i in range(120)]
    later = [line.replace('"', "") for line in good]
    for opened in ([f'5{tab}"great'], [f'5{tab}"great', *later[:9], f'4{tab}"a "b" c']):
        path = write(tmp_path / name, "\n".join([f"stars{tab}review", *good, *opened, *later]))
        with pytest.raises(UserError, match=r":122: a cell begins with a quotation mark and isn't"):
            pairs(path)
    for spaces in ("", "  "):
        closed = f'review{tab}stars\n"two\nlines, ""good"""{spaces}{tab}5\n'
        assert pairs(write(tmp_path / name, closed)) == [('two\nlines, "good"', "5")]


def test_cells_of_a_megabyte_are_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", "review,stars\n" + "word " * 200_000 + ",5\nbad,1\n")
    assert [len(text) for text, _ in pairs(path)] == [999_999, 3]
    assert csv.field_size_limit() == limit


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    for line, says in [
        ("a,b,5", "expected 2 columns, found 3"),
        ("alone", "expected 2 columns, found 1"),
        (" ,5", "the text is empty"),
        ("good,", "the label is empty"),
    ]:
        path = write(tmp_path / "a.csv", f"review,stars\ngood,5\n{line}\nbad,1\n")
        with pytest.raises(UserError, match="--skip-bad") as refused:
            pairs(path)
        assert str(refused.value).startswith(f"{path}:3: {says}")


def test_a_bad_record_is_one_bad_row(tmp_path: Path) -> None:
    lines = '{"review": "good", "stars": 5}\n{\n{"review": "bad", "stars": 1}\n{"stars": 1}'
    path = write(tmp_path / "a.jsonl", lines)
    with pytest.raises(UserError, match=r"a\.jsonl:2: .* \(2 such rows\)"):
        pairs(path)
    skipping = TableConfig(text="review", label="stars", skip_bad=True)
    assert pairs(path, skipping) == [("good", "5"), ("bad", "1")]


@pytest.mark.parametrize("config", [NAMED, TableConfig(header=True, skip_bad=True)])
def test_records_without_a_field_are_refused(tmp_path: Path, config: TableConfig) -> None:
    for text, says in [("review\n", ":1: JSON is malformed"), ("{}\n{}\n", ": holds no fields")]:
        path = write(tmp_path / "a.jsonl", text)
        with pytest.raises(UserError) as refused:
            pairs(path, config)
        assert str(refused.value).startswith(f"{path}{says}")


def test_a_table_without_rows_or_columns_is_refused(tmp_path: Path) -> None:
    for text, config, says in [
        ("", NAMED, "is empty"),
        ("\ufeff\r\n", NAMED, "is empty"),
        (",,,\n,,,\n", TableConfig(), "holds no rows"),
        ('""\n', TableConfig(), "holds no rows"),
        ("review,stars\n", NAMED, "has a header but no rows; add rows"),
        ("review,stars\ngood,5\n", TableConfig(text="reviews"), "did you mean review?"),
        ("review,stars\ngood,5\n", TableConfig(text="3"), "has no column '3'; its columns: review"),
        ("a b c d\n", TableConfig(text="x"), "so name a column by number (1), or add a header"),
        ("1,2\n", TableConfig(text="x"), "it has no header, so name a column by number (1 to 2)"),
        ("review,stars\n,5\n", TableConfig(skip_bad=True), "has no good row"),
    ]:
        path = write(tmp_path / "a.csv", text)
        with pytest.raises(UserError) as refused:
            pairs(path, config)
        assert says in str(refused.value)
        assert str(refused.value).startswith(str(path))
        assert "\n" not in str(refused.value)


def test_a_second_text_is_a_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,second,label\ngood,food,yes\nbad,,no\n")
    (one,) = read_table_rows(path, TableConfig()).examples
    assert (one.text, one.second, one.answer) == ("good", "food", "yes")
    assert read_table_rows(path, TableConfig()).bad == [f"{path}:3: the second text is empty"]
    chosen = read_table_rows(path, TableConfig(text="1", second="3", label="2")).examples
    assert [(one.text, one.second, one.answer) for one in chosen] == [("good", "yes", "food")]


def test_a_single_column_named_text_has_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\ngood food\nbad\n", "utf-8")
    rows = read_table_rows(path, TableConfig(), label_required=False)
    assert [one.text for one in rows.examples] == ["good food", "bad"]


@pytest.mark.parametrize(
    ("name", "data", "config"),
    [
        ("a.csv.gz", 'text,label\n"good, food",5\nbad,1\n', TableConfig()),
        (
            "a.jsonl.gz",
            '{"text": "good, food", "label": 5}\n{"text": "bad", "label": 1}\n',
            TableConfig(label="label"),
        ),
    ],
)
def test_compressed_tables_are_tables(
    name: str, data: str, config: TableConfig, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(data.encode()))
    assert is_table(tmp_path / name, config)
    rows = read_table_rows(tmp_path / name, config)
    assert [(one.text, one.answer) for one in rows.examples] == [("good, food", "5"), ("bad", "1")]


def test_a_compressed_text_has_both_cases(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"Hello World\n"))
    rows = read_rows(CasingConfig(), tmp_path / "a.txt.gz", TableConfig())
    assert [one.answer for one in rows.examples] == ["HELLO WORLD", "hello world"]


def test_a_second_text_is_neither_the_text_nor_the_label(tmp_path: Path) -> None:
    """A statement may be longer than its text, or short and repeated like a label."""
    for statement in ("It is a long statement about number {}", "It runs"):
        cells = [(f"Text {i}", statement.format(i), "yes" if i % 3 else "no") for i in range(8)]
        for order in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
            names = ("premise", "second", "gold")
            lines = [",".join(row[i] for i in order) for row in (names, *cells)]
            path = write(tmp_path / "a.csv", "\n".join(lines))
            read = read_table_rows(path, TableConfig()).examples
            assert [(one.text, one.second, one.answer) for one in read] == cells
