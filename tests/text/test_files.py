"""Text files of users: found, decoded, and cut where words and documents begin."""

import errno
import json
import re
import sys
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from regard.errors import UserError
from regard.tasks.tables import read_table
from regard.text.config import (
    BytePairsConfig,
    CharactersConfig,
    SpecialTokensConfig,
    TokenizerConfig,
    WordsConfig,
)
from regard.text.corpus import Piece, cut_pieces, detect_documents, read_pieces
from regard.text.files import find_files, inspect_all, inspect_file, open_bytes
from regard.text.packed import find_corpora
from regard.text.tokenizer import train_tokenizer

KINDS: dict[str, TokenizerConfig] = {
    "characters": CharactersConfig(unknown="bytes"),
    "words": WordsConfig(special_tokens=SpecialTokensConfig(unk="<unk>"), unknown="unk"),
    "byte-pairs": BytePairsConfig(size=400),
}
PROSE = st.text(st.sampled_from("ab éЖ漢😀□⁇.,'0 \n\t"), max_size=80)


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def documents(path: Path, kind: str, size: int = 2**16) -> list[str]:
    """Documents of a file, their pieces joined."""
    texts: list[str] = []
    for piece in read_pieces([inspect_file(path)], kind, size=size):
        if piece.begins:
            texts.append("")
        texts[-1] += piece.text
    return texts


# Pieces


@given(text=PROSE, size=st.integers(1, 20))
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_have_the_tokens_of_the_whole_text(kind: str, text: str, size: int) -> None:
    """Wherever words stand in reach of a cut; elsewhere a cut may part a token."""
    tokenizer = train_tokenizer(KINDS[kind], ["a b ab aab, éЖ 0.\n\n漢", "ab. b'a 00"])
    pieces = list(cut_pieces([Piece(text, True, "")], size))
    read = "".join(piece.text for piece in pieces)
    assert read == text or not text.strip()
    ids = [
        i
        for piece in pieces
        for i in tokenizer.encode_batch([piece.text], continuing=not piece.begins)[0]
    ]
    if all(piece.begins or piece.text[0] in " \n" for piece in pieces):
        assert ids == (tokenizer.encode(text) if read else [])
    elif kind == "characters":
        assert tokenizer.decode(ids) == read


@given(parts=st.lists(st.tuples(PROSE, st.booleans()), max_size=6), size=st.integers(1, 20))
def test_pieces_are_of_bounded_size(parts: list[tuple[str, bool]], size: int) -> None:
    pieces = cut_pieces([Piece(text, begins, "") for text, begins in parts], size)
    assert all(len(piece.text) < 2 * size for piece in pieces)


def test_a_line_of_a_megabyte_is_read_in_pieces(tmp_path: Path) -> None:
    path = write(tmp_path / "long.txt", "word " * 200_000 + "\nshort\n" + "x" * 1_000_000)
    pieces = list(read_pieces([inspect_file(path)], "lines"))
    assert max(len(piece.text) for piece in pieces) < 2**17
    assert sum(piece.begins for piece in pieces) == 3
    assert documents(path, "lines") == ["word " * 200_000, "short", "x" * 1_000_000]


# Documents

TEXT = "One.\nTwo.\n\n\nThree.\n \nFour.\n"


def test_documents_by_kind(tmp_path: Path) -> None:
    expected = {
        "files": [TEXT],
        "lines": ["One.", "Two.", "Three.", "Four."],
        "paragraphs": ["One.\nTwo.", "Three.", "Four."],
    }
    for end, mark in product(["\n", "\r\n", "\r"], [b"", b"\xef\xbb\xbf"]):
        path = write(tmp_path / "a.txt", mark + TEXT.replace("\n", end).encode())
        for size, kind in product([2, 100], expected):
            assert documents(path, kind, size) == expected[kind], (end, mark, size, kind)


def test_records_have_their_text_in_a_field(tmp_path: Path) -> None:
    lines = [json.dumps({"text": text, "id": 1}) for text in ("a\nb", "□ ⁇ 😀")]
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    assert documents(path, "records") == documents(path, "lines") == ["a\nb", "□ ⁇ 😀"]


def test_a_bad_record_is_named(tmp_path: Path) -> None:
    for line in ["{", "[1]", '{"id": 1}', '{"text": 1}']:
        path = write(tmp_path / "a.jsonl", '{"text": "good"}\n' + line)
        with refusal(UserError, rf"^{re.escape(str(path))}:2: .+\Z", line):
            documents(path, "records")


def test_parquet_has_a_column_of_texts(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["one", None, "two"], "id": [1, 2, 3]}), path)
    assert documents(path, "records") == ["one", "two"]
    with pytest.raises(UserError, match=r"no column 'body'; its columns: text, id"):
        list(read_pieces([inspect_file(path)], "records", "body"))


def test_parquet_without_pyarrow_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    path = write(tmp_path / "a.parquet", b"PAR1")
    with pytest.raises(UserError, match=r"needs pyarrow: pip install 'regard\[parquet\]'"):
        documents(path, "records")


def test_documents_are_detected(tmp_path: Path) -> None:
    for name, text, kind in (
        ("a.txt", "A line.\nAnother one.\nA third.\n", "lines"),
        ("a.txt", "A paragraph.\n\nAnother one.\n\nA third.\n", "paragraphs"),
        ("a.txt", "A wrapped\nparagraph.\n\nAnother\none.\n", "files"),
        ("a.txt", "One line", "files"),
        ("a.jsonl", '{"text": "a"}\n', "records"),
    ):
        assert detect_documents([inspect_file(write(tmp_path / name, text))]) == kind, text


# Files and encodings


def test_encodings_are_detected(tmp_path: Path) -> None:
    text, path = "Café “naïve” – déjà vu\n", tmp_path / "a.txt"
    for encoding, found in (
        ("utf-8", "utf-8-sig"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("cp1252", "cp1252"),
    ):
        assert inspect_file(write(path, text.encode(encoding))).encoding == found
        assert documents(path, "files") == [text], encoding
    # Bytes that Windows lacks.
    assert inspect_file(write(path, b"caf\xe9 \x81")).encoding == "latin-1"


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    """A damaged byte doesn't make UTF-8 another encoding."""
    for data, says in (
        ("é\nok\n".encode() + b"\xff", r"a\.txt:3: byte 0xff isn't UTF-8"),
        ("é\nok\n".encode() + b"\xc3(", r"a\.txt:3: byte 0xc3 isn't UTF-8"),
        ("é\nok\n".encode() + b"\xe2\x82", r"a\.txt:3: byte 0xe2 isn't UTF-8"),
        (b"", r"a\.txt: is empty"),
        (b"\n \n", r"a\.txt: is empty"),
        (b"\xef\xbb\xbf", r"a\.txt: is empty"),
        (b"\xef\xbb\xbf\n", r"a\.txt: is empty"),
        (b"\x89PNG\0\0", r"a\.txt: holds zero bytes"),
        ("a\n".encode("utf-16") + b"A", r"a\.txt: isn't valid UTF-16"),
        ("a\n".encode("utf-32"), r"a\.txt: isn't valid UTF-16"),
    ):
        with refusal(UserError, says, repr(data)):
            inspect_file(write(tmp_path / "a.txt", data))


def test_all_bad_files_are_named_or_left_out(tmp_path: Path) -> None:
    good = write(tmp_path / "a.txt", "Ada")
    bad = [
        write(tmp_path / "b.txt", ""),
        write(tmp_path / "c.txt.gz", b"\x1f\x8b damaged"),
        write(tmp_path / "d.txt", b"\0"),
    ]
    with pytest.raises(UserError, match=r"b\.txt: is empty.*: .*c\.txt\.gz, .*d\.txt\); try x$"):
        inspect_all([*bad, good], hint="; try x")
    with pytest.warns(match=r"left out: .*b\.txt: is empty.*c\.txt\.gz, .*d\.txt\)$"):
        assert inspect_all([*bad, good], skip_bad=True) == (inspect_file(good),)
    with pytest.raises(UserError, match=r"d\.txt\)$"):  # nothing is left
        inspect_all(bad, skip_bad=True, hint="; try x")


def test_of_many_bad_files_the_first_are_named(tmp_path: Path) -> None:
    bad = [write(tmp_path / f"{i}.txt", "") for i in range(30)]
    with pytest.raises(UserError, match=r"20\.txt and 9 more\)$"):
        inspect_all(bad)


def test_a_damaged_parquet_is_named_at_once(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra parquet")
    with pytest.raises(UserError, match=r"a\.parquet: is no Parquet file"):
        inspect_file(write(tmp_path / "a.parquet", "PAR1 damaged"))


def test_folders_are_searched(tmp_path: Path) -> None:
    names = ["b.txt", "a.md", "in/c.jsonl", "in/d.png", ".hidden.txt", ".git/e.txt"]
    names += ["run/config.toml", "run/origin.json", "run/metrics.jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "x")
    found = [str(path.relative_to(tmp_path)) for path in find_files([tmp_path, tmp_path / "b.txt"])]
    assert found == ["a.md", "b.txt", "in/c.jsonl"]


def test_a_folder_without_texts_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has no text files; it is searched for \.jsonl, \.markdown"
    ):
        find_files([tmp_path])
    with pytest.raises(UserError, match="nowhere: no such file"):
        find_files([tmp_path / "nowhere"])


class StandIn:
    """The interface of zstandard, which may be missing, with a compression that has frames too."""

    ZstdError = zlib.error
    compress = staticmethod(zlib.compress)

    class ZstdDecompressor:
        decompressobj = staticmethod(zlib.decompressobj)


@pytest.mark.parametrize("real", [True, False])
def test_zstandard_files_are_read_frame_by_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: bool
) -> None:
    zstandard = pytest.importorskip("zstandard") if real else StandIn
    monkeypatch.setitem(sys.modules, "zstandard", zstandard)
    text = "".join(f"Line {i} of a text.\n" for i in range(100_000)).encode()
    frames = zstandard.compress(text[: 10**6]) + zstandard.compress(text[10**6 :])
    path = tmp_path / "text.txt.zst"
    path.write_bytes(frames)
    with open_bytes(path) as file:
        assert file.read() == text
    assert inspect_file(path).size == len(text)
    for damaged in (frames[:-9], frames[: len(frames) // 3], frames + b"more", b"no frame"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"text.txt.zst: is damaged \(.+\); restore it"):
            inspect_file(path)


def test_damaged_rows_of_parquet_are_named(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    path = tmp_path / "a.parquet"
    for compression, place, value in [("none", b"row 5 ", b"\xff"), ("gzip", b"\x1f\x8b", b"\0\0")]:
        table = arrow.table({"text": [f"row {i} of a table" for i in range(100)]})
        parquet.write_table(table, path, compression=compression, use_dictionary=False)
        data = path.read_bytes()
        start = data.index(place)
        path.write_bytes(data[:start] + value + data[start + len(value) :])
        for read in (lambda: documents(path, "records"), lambda: read_table(path)):
            with pytest.raises(UserError, match=r"a\.parquet: is damaged \(.*\); restore it"):
                read()


def test_a_file_in_a_folder_that_cannot_be_searched_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, **_: object) -> None:  # as for users who aren't root
        raise PermissionError(errno.EACCES, "Permission denied")

    path = tmp_path / "a.txt"
    monkeypatch.setattr(Path, "stat", refuse)
    reads: list[Callable[[], object]] = [
        lambda: inspect_file(path),
        lambda: find_corpora(path),
        lambda: find_files([path]),
    ]
    for read in reads:
        with pytest.raises(UserError, match=r"a.txt: can't be read: Permission denied$"):
            read()
