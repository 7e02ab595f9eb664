"""Documents and their places, whatever the line ends."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.files import read_text
from regard.text.config import WordsConfig
from regard.text.corpus import (
    Document,
    Piece,
    cut_pieces,
    read_corpus,
    read_lines,
    read_pieces,
)
from regard.text.files import inspect_file
from regard.text.pack import encode_batch
from regard.text.tokenizer import train_tokenizer
from regard.training.sources.choose import find_packed

lines_of_text = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\ufeff"), max_size=12),
    max_size=6,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place to write to, for many examples of one property."""
    return tmp_path_factory.mktemp("corpus") / "text.txt"


@given(
    lines=lines_of_text,
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
    last=st.booleans(),
)
def test_line_ends_and_marks_change_nothing(
    file: Path, lines: list[str], end: str, mark: bool, last: bool
) -> None:
    text = end.join(lines) + (end if last else "")
    file.write_bytes((b"\xef\xbb\xbf" if mark else b"") + text.encode())
    assert read_text(file) == "\n".join(lines) + ("\n" if last else "")
    assume(text.strip())
    assert read_lines(file) == [
        Document(line, f"{file}:{number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


@given(before=lines_of_text, bad=st.sampled_from([b"\xff", b"\xc3(", b"\xe2\x82", b"\xed\xa0\x80"]))
def test_what_is_not_utf8_is_named_by_its_line(file: Path, before: list[str], bad: bytes) -> None:
    file.write_bytes("".join(line + "\n" for line in before).encode() + b"ok " + bad + b"\nok\n")
    with pytest.raises(UserError) as refused:
        read_text(file)
    assert str(refused.value).startswith(f"{file}:{len(before) + 1}: byte 0x{bad[0]:x} isn't UTF-8")


def test_other_separators_do_not_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a\u2028b\x0bc\x85d\ne", encoding="utf-8")
    assert [line.text for line in read_lines(path)] == ["a\u2028b\x0bc\x85d", "e"]


def test_a_record_without_text_is_no_corpus(tmp_path: Path) -> None:
    path = tmp_path / "blank.jsonl"
    path.write_text('{"text": " "}', encoding="utf-8")
    with pytest.raises(UserError, match=r"blank\.jsonl: is empty"):
        read_corpus([path])


def test_lines_with_many_leading_blanks_are_in_their_paragraph(tmp_path: Path) -> None:
    path, blanks = tmp_path / "a.txt", " " * 2**17
    for text, paragraphs in [
        (f"One.\n\n{blanks}Two.", ["One.", f"{blanks}Two."]),
        (f"One.\n{blanks}Two.", [f"One.\n{blanks}Two."]),
        (f"One.\n{blanks}\nTwo.", ["One.", "Two."]),
        (f"{blanks}\n{blanks}One.\n{blanks}", [f"{blanks}One."]),
    ]:
        path.write_text(text)
        assert [document.text for document in read_corpus(path, "paragraphs")] == paragraphs


def test_a_folder_holds_texts_of_any_encoding_and_records(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Café\nOslo\n".encode("cp1252"))
    (tmp_path / "b.jsonl").write_text('{"body": "one\\ntwo"}', encoding="utf-8")
    (tmp_path / "c.md").write_text("Ελλάς", encoding="utf-16")
    (tmp_path / "d.csv").write_text("a,b", encoding="utf-8")
    assert read_corpus([tmp_path], field="body", blank_lines=True) == [
        Document("Café", f"{tmp_path}/a.txt:1"),
        Document("Oslo", f"{tmp_path}/a.txt:2"),
        Document("", f"{tmp_path}/a.txt:3"),
        Document("one\ntwo", f"{tmp_path}/b.jsonl:1"),
        Document("Ελλάς", f"{tmp_path}/c.md:1"),
    ]


def test_documents_are_lines_or_files_in_the_order_given(tmp_path: Path) -> None:
    first, second = tmp_path / "b.txt", tmp_path / "a.txt"
    first.write_bytes(b"one\r\n\r\ntwo\r\n")
    second.write_bytes(b"three")
    assert read_corpus([first, second]) == [
        Document("one", f"{first}:1"),
        Document("two", f"{first}:3"),
        Document("three", f"{second}:1"),
    ]
    assert read_corpus([first, second], "files") == [
        Document("one\n\ntwo\n", str(first)),
        Document("three", str(second)),
    ]


def test_names_of_files_are_not_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Ada was born.", "utf-8")
    with pytest.raises(UserError, match=r"give Path\('a\.txt'\)"):
        read_corpus(["a.txt", "b.txt"])
    for texts in (["", "Ada was born."], ["Ada " * 2000]):
        assert [document.text for document in read_corpus(texts)] == texts


def test_paths_and_texts_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    mixed: Any = [tmp_path / "a.txt", "b.txt"]
    for read in (read_corpus, find_packed):
        with pytest.raises(UserError, match="document 2 is a text, but others are paths"):
            read(mixed)
    several: Any = (x for x in ("a", "b"))
    assert [one.text for one in read_corpus(several)] == ["a", "b"]
    array: Any = np.array(["a", "b"], dtype=object)
    assert len(read_corpus(array)) == 2


def test_a_text_is_no_name_of_a_file() -> None:
    with pytest.raises(UserError, match=r"'Ada .*no such file; to train on a text itself, give"):
        find_packed("Ada was born.\n" * 1000)


def test_bytes_of_parquet_are_decoded(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    path = tmp_path / "a.parquet"
    table = {"text": ["café".encode(), b"two"], "id": [1, 2], "bad": [b"\xff", b"x"]}
    parquet.write_table(arrow.table(table), path)
    file = inspect_file(path)
    assert [piece.text for piece in read_pieces([file], "records")] == ["café", "two"]
    for name in ("id", "bad"):
        with pytest.raises(UserError, match=rf"a\.parquet:1: the column '{name}' holds no text"):
            list(read_pieces([file], "records", name))


def test_words_of_a_long_text_without_spaces_are_known() -> None:
    draw = random.Random(0)
    words = ("".join(chr(0x4E00 + draw.randrange(20000)) for _ in range(9)) for _ in range(16_000))
    pieces = list(cut_pieces([Piece("，".join(words), True, "a.txt")]))
    assert len(pieces) == 2
    assert pieces[1].text[0] == "，"
    tokenizer = train_tokenizer(WordsConfig(), [piece.text for piece in pieces])
    encode_batch(tokenizer, pieces)


@pytest.mark.parametrize("text", ["ก่" * 2**17, "a" * 2**18, "a," * 2**17])
def test_words_that_are_cut_are_known(text: str) -> None:
    pieces = list(cut_pieces([Piece(text, True, "a.txt")]))
    assert len(pieces) > 1
    encoded = encode_batch(train_tokenizer(WordsConfig(), pieces), pieces)
    assert encoded.lengths.all()
