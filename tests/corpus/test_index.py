"""The index of files: documents, lines, its file, and what is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.corpus.index import (
    CorpusIndex,
    index_documents,
    index_files,
    open_index,
    require_replaceable,
    save_index,
)
from regard.corpus.search import occurrences, show
from regard.errors import UserError
from regard.text.corpus import Document, read_corpus


def found(index: CorpusIndex, text: str) -> list[str]:
    """Places of a text, and the lines there."""
    query = text.encode()
    matches = [show(index, int(place), len(query)) for place in occurrences(index, query)]
    return [f"{Path(m.path).name}:{m.line}:{m.before}[{m.match}]{m.after}" for m in matches]


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.index"
    save_index(path, index_documents([Document("Ada was in Rome.", "a:1"), Document("Otto", "b")]))
    return path


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_lines_of_any_encoding_have_their_numbers(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Zoé in Rome\r\nOtto in Köln\r\nMia in Rome".encode(encoding))
    index = index_files([path])
    assert found(index, "Rome") == ["a.txt:1:Zoé in [Rome]", "a.txt:3:Mia in [Rome]"]
    assert found(index, "ö") == ["a.txt:2:Otto in K[ö]ln"]
    assert found(index, "Rome\nOtto") == []


def test_a_whole_file_is_a_document_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo Rome\nthree\n", "utf-8")
    index = index_files([path], documents="files")
    assert found(index, "Rome\nthree") == ["a.txt:3:two [Rome\nthree]"]
    assert found(index, "\n\n") == ["a.txt:1:one[\n\n]"]
    assert len(index.documents) == 1


def test_paragraphs_count_the_lines_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n\n\nthree\nfour", "utf-8")
    index = index_files([path], documents="paragraphs")
    assert found(index, "four") == ["a.txt:6:[four]"]
    assert found(index, "two\n\n") == []


def test_a_record_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"body": text}) for text in ("x", "one\ntwo Rome", "Rome")]
    path.write_text("\n".join(lines), "utf-8")
    index = index_files([path], field="body")
    assert found(index, "Rome") == ["a.jsonl:2:one\ntwo [Rome]", "a.jsonl:3:[Rome]"]
    of_documents = index_documents(read_corpus([path], field="body"))
    assert np.array_equal(of_documents.lines, index.lines)
    other = path.rename(tmp_path / "a.json")
    of_records = index_documents(read_corpus([other], "records", field="body"), records=True)
    assert np.array_equal(of_records.lines, index.lines)


def test_an_index_of_several_files_names_each(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"Rome {name}\nOslo\n", "utf-8")
    index = index_files([tmp_path])
    assert found(index, "Oslo") == ["a.txt:2:[Oslo]", "b.txt:2:[Oslo]"]


def test_a_long_line_is_cut_around_the_match() -> None:
    index = index_documents([Document("é" * 500 + "Rome" + "ü" * 500, "a:1")])
    assert found(index, "Rome") == [f"a:1:{'é' * 100}[Rome]{'ü' * 100}"]


def test_a_saved_index_is_the_index(tmp_path: Path) -> None:
    made = index_documents([Document("!", "a:7"), Document("Ada\nRome", "b")])
    fingerprint = save_index(tmp_path / "x", made)
    opened = open_index(tmp_path / "x", fingerprint=fingerprint)
    assert found(opened, "Rome") == found(made, "Rome") == ["b:2:[Rome]"]
    for name in ("text", "suffixes", "documents", "lines"):
        assert np.array_equal(getattr(opened, name), getattr(made, name))
    assert [opened.document(number) for number in (0, 1)] == ["!", "Ada\nRome"]
    assert opened.inverted.documents(["rome"]) == [1]


def test_a_corpus_without_words_has_an_index(tmp_path: Path) -> None:
    save_index(tmp_path / "x", index_documents([Document("!?", "a:1")]))
    assert found(open_index(tmp_path / "x"), "?") == ["a:1:![?]"]


def test_the_fingerprint_is_that_of_the_texts() -> None:
    one, other = ([Document(text, place)] for text, place in (("Ada", "a:1"), ("Ada", "b:2")))
    assert index_documents(one).fingerprint == index_documents(other).fingerprint
    split = [Document("A", "a:1"), Document("da", "a:2")]
    assert index_documents(split).fingerprint != index_documents(one).fingerprint


def test_the_index_of_other_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"is an index of other texts \(fingerprint \w+, expected abc\)"
    ):
        open_index(saved(tmp_path), fingerprint="abc")


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError, match="; make one: regard index"):
            open_index(path)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_cut_index_is_refused(tmp_path: Path, size: int) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match="is not a corpus index, or is truncated; make one"):
        open_index(path)


def test_only_an_index_is_replaced(tmp_path: Path) -> None:
    require_replaceable(tmp_path / "new")
    require_replaceable(saved(tmp_path))
    text = tmp_path / "a.txt"
    text.write_text("Rome", "utf-8")
    with pytest.raises(UserError, match="exists but is not an index"):
        require_replaceable(text)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydivsufsort", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[index\]'"):
        index_documents([Document("Ada", "a:1")])


def test_an_index_is_small() -> None:
    """9 bytes per byte of text at most, the text included."""
    texts = [f"{name} was born in the year {i}." for i in range(3000) for name in ("Ada", "Otto")]
    index = index_documents([Document(text, f"a:{i}") for i, text in enumerate(texts, 1)])
    assert index.nbytes <= 9 * len(index.text)
