"""Files of one text or two with a label: read in both forms, refused by line."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.examples import Example
from regard.tasks.labels import read_labeled, read_text_pairs, require_second
from regard.tasks.rows import Rows, check_rows
from regard.tasks.tables import TableConfig, read_table_rows

texts = st.text(st.characters(codec="utf-8", categories=("L", "P")), min_size=1, max_size=8)
pairs = st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


def good(rows: Rows) -> list[Example]:
    return check_rows(rows, lambda _: None, Path("a.tsv"), skip_bad=False).examples


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@given(rows=pairs, labels=st.booleans())
def test_both_forms_hold_the_same_pairs(
    folder: Path, rows: list[tuple[str, str, str]], labels: bool
) -> None:
    columns = [row if labels else row[:2] for row in rows]
    names = ("text", "second", "label")
    tsv = write(folder / "a.tsv", *("\t".join(row) for row in columns))
    lines = [json.dumps(dict(zip(names, row, strict=False))) for row in columns]
    jsonl = write(folder / "a.jsonl", *lines)
    for path in (tsv, jsonl):
        assert good(read_text_pairs(path)) == [
            Example(
                text=text, second=second, answer=label if labels else None, where=f"{path}:{line}"
            )
            for line, (text, second, label) in enumerate(rows, start=1)
        ]
    if labels:
        assert read_labeled(tsv) == read_text_pairs(tsv)
    assert read_labeled(jsonl) == read_text_pairs(jsonl)


@given(rows=pairs)
def test_two_columns_are_a_text_and_its_label(
    folder: Path, rows: list[tuple[str, str, str]]
) -> None:
    path = write(folder / "b.tsv", *(f"{text}\t{label}" for text, label, _ in rows))
    read = good(read_labeled(path))
    assert [(q.text, q.second, q.answer) for q in read] == [(a, None, b) for a, b, _ in rows]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.tsv", "", ": is empty"),
        ("a.tsv", "a\tb\tx\na\tb", ":2: has no label, but other lines have"),
        ("a.tsv", "a", ":1: has 0 tabs; a line holds a text, a tab, a second text"),
        ("a.tsv", "a\tb\tx\ty", ":1: has 3 tabs"),
        ("a.tsv", "\tb\tx", ":1: the text is empty"),
        ("a.tsv", "a\t \tx", ":1: the second text is empty"),
        ("a.tsv", "a\tb\t", ":1: the label is empty"),
        ("a.jsonl", '{"text": "a", "label": "x"}', ":1: .*second"),
        ("a.jsonl", '{"text": "a", "second": "b", "answer": "x"}', ":1: .*answer"),
        ("a.jsonl", '{"text": "a", "second": " ", "label": "x"}', ":1: the second text is empty"),
        ("a.jsonl", "a\tb", ":1: .*expected"),
    ],
)
def test_lines_that_are_no_pairs_are_refused(folder: Path, name: str, text: str, says: str) -> None:
    path = write(folder / name, *text.splitlines())
    with pytest.raises(UserError, match=f"^{re.escape(str(path))}{says}") as refused:
        good(read_text_pairs(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("label", ["1", "0.5"])
def test_a_label_that_is_a_number_names_the_remedy(folder: Path, label: str) -> None:
    for read, second in [(read_labeled, ""), (read_labeled, "b"), (read_text_pairs, "b")]:
        pair = f'"second": "{second}", ' if second else ""
        path = write(folder / "a.jsonl", f'{{"text": "a", {pair}"label": {label}}}')
        with pytest.raises(UserError, match=f":1: the label {label} is no text; .*--label label"):
            good(read(path))
    rows = read_table_rows(path, TableConfig(label="label"))
    assert [row.answer for row in good(rows)] == [label]


def test_second_may_be_a_label(folder: Path) -> None:
    labels = ["first", "second"]
    path = write(folder / "a.jsonl", *(f'{{"text": "a", "label": "{one}"}}' for one in labels))
    assert [row.answer for row in good(read_labeled(path))] == labels


@pytest.mark.parametrize("lines", [("a\tx", "a\tb\tx"), ("a\tb\tx", "a\tx")])
def test_one_text_beside_pairs_is_refused(folder: Path, lines: tuple[str, str]) -> None:
    path = write(folder / "mixed.tsv", *lines)
    number = 1 + lines.index("a\tx")
    with pytest.raises(UserError, match=rf":{number}: has one text, but other lines have two"):
        good(read_labeled(path))


def test_a_question_about_one_text_is_no_pair() -> None:
    require_second(Example(text="a", second="b"))
    with pytest.raises(UserError, match=r"^my\.tsv:4: has no second text"):
        require_second(Example(text="a", answer="b", where="my.tsv:4"))
