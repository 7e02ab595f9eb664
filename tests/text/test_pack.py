"""Packing: every document once, in its order, for any number of jobs and interruptions."""

import bz2
import concurrent.futures
import errno
import gzip
import lzma
import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from killed import Killed
from platforms import imitate, refuse_to_replace_folders
from refusals import refusal
from regard import files
from regard.errors import RegardError, UserError
from regard.files import hold_lock
from regard.tasks.probes import number_tokenizer
from regard.text import pack
from regard.text.config import CharactersConfig, TokenizerConfig, WordsConfig
from regard.text.files import find_files, inspect_file
from regard.text.pack import EncodedBatch, pack_corpus
from regard.text.packed import (
    DocumentTokens,
    Header,
    PackedCorpus,
    TextSpec,
    held_out_documents,
    is_packed,
    link_corpus,
    open_packed,
    remove_corpus,
)
from regard.text.tokenizer import Tokenizer, train_tokenizer

TEXTS = st.lists(
    st.text("abc déü\t", min_size=1, max_size=30).filter(lambda text: text.strip() != ""),
    min_size=2,
    max_size=60,
)
LINES = [f"Document {i} is a line of {i % 7} words." for i in range(200)]


def spec_of(
    *paths: Path,
    documents: str = "lines",
    validation: float = 0.1,
    known: Tokenizer | None = None,
    config: TokenizerConfig | None = None,
) -> TextSpec:
    return TextSpec(
        files=tuple(inspect_file(path) for path in find_files(paths)),
        documents=documents,
        text_field="text",
        tokenizer=config or CharactersConfig(unknown="bytes"),
        known=None if known is None else known.fingerprint,
        validation=validation,
        seed=0,
    )


def ignored(_stage: str, _characters: int) -> None:
    """Report nothing."""


def packed(
    out: Path, spec: TextSpec, jobs: int = 1, tokenizer: Tokenizer | None = None
) -> PackedCorpus:
    pack_corpus(spec, out, ignored, jobs=jobs, tokenizer=tokenizer)
    return open_packed(out)


def texts_of(corpus: PackedCorpus, documents: DocumentTokens) -> list[str]:
    ends = documents.starts + documents.lengths
    return [
        corpus.tokenizer.decode(documents.ids[start:end].tolist())
        for start, end in zip(documents.starts, ends, strict=True)
    ]


def file_contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    return path


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few documents, recorded one by one."""
    monkeypatch.setattr("regard.text.corpus.BATCH", 300)
    monkeypatch.setattr(pack, "RECORDED", 1)


@settings(max_examples=25)
@given(texts=TEXTS, validation=st.sampled_from([0.0, 0.2, 0.5]))
def test_every_document_is_packed_once_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], validation: float
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    path = folder / "records.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode({"text": text}) for text in texts))
    corpus = packed(folder / "packed", spec_of(path, documents="records", validation=validation))
    training = texts_of(corpus, corpus.training)
    held_out = texts_of(corpus, corpus.validation)
    decide = held_out_documents(validation, 0)
    assert training == [text for i, text in enumerate(texts) if not decide(i)]
    assert held_out == [text for i, text in enumerate(texts) if decide(i)]
    for documents in (corpus.training, corpus.validation):
        assert documents.lengths.sum() == len(documents.ids)


def test_long_documents_are_whole(tmp_path: Path) -> None:
    text = "".join(f"word{i} " for i in range(60_000))
    (tmp_path / "long.txt").write_text(text, "utf-8")
    spec = spec_of(tmp_path / "long.txt", documents="files", validation=0)
    corpus = packed(tmp_path / "packed", spec)
    assert texts_of(corpus, corpus.training) == [text]


def test_an_empty_folder_is_packed_into_on_windows_too(
    tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_replace_folders(monkeypatch)
    imitate("win32", files, monkeypatch)
    (tmp_path / "packed").mkdir()
    assert packed(tmp_path / "packed", spec_of(lines)).header.sizes.training.tokens > 0


@pytest.mark.usefixtures("small_batches")
def test_the_number_of_jobs_changes_nothing(tmp_path: Path, lines: Path) -> None:
    packed(tmp_path / "one", spec_of(lines))
    packed(tmp_path / "more", spec_of(lines), jobs=3)
    assert file_contents(tmp_path / "one") == file_contents(tmp_path / "more")


def interrupt_after(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Let the packing end in the middle of writing batch `batches`."""
    append = pack._SplitFiles.append
    calls = iter(range(10**6))

    def write(self: pack._SplitFiles, batch: EncodedBatch) -> None:
        append(self, batch)
        if next(calls) == 2 * batches:  # the training file is ahead of the other
            raise Killed

    monkeypatch.setattr(pack._SplitFiles, "append", write)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(("batches", "recorded"), [(0, 1), (1, 3), (5, 3), (9, 1)])
def test_an_interrupted_packing_continues(
    tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch, batches: int, recorded: int
) -> None:
    monkeypatch.setattr(pack, "RECORDED", recorded)
    whole = packed(tmp_path / "whole", spec_of(lines))
    with monkeypatch.context() as patched:
        interrupt_after(patched, batches)
        with pytest.raises(Killed):
            packed(tmp_path / "packed", spec_of(lines))
        assert not (tmp_path / "packed").exists()
        (tmp_path / ".packed.partial/.progress.json.1.partial").write_text("{")
        interrupt_after(patched, 1)
        with pytest.raises(Killed):  # again, from there
            packed(tmp_path / "packed", spec_of(lines))
    progress: list[int] = []
    pack_corpus(spec_of(lines), tmp_path / "packed", lambda _, size: progress.append(size))
    assert file_contents(tmp_path / "packed") == file_contents(tmp_path / "whole")
    assert sum(progress) == sum(map(len, LINES))  # what had been done counts as done
    assert len(whole.training.starts) + len(whole.validation.starts) == len(LINES)


@pytest.mark.usefixtures("small_batches")
def test_the_progress_of_another_text_is_not_continued(
    tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupt_after(patched, 3)
        with pytest.raises(Killed):
            packed(tmp_path / "packed", spec_of(lines))
    lines.write_text("Another text.\nOf two lines.\n", "utf-8")
    corpus = packed(tmp_path / "packed", spec_of(lines, validation=0))
    assert texts_of(corpus, corpus.training) == ["Another text.", "Of two lines."]


def test_a_link_that_was_killed_is_not_taken_for_a_packed_corpus(
    tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = packed(tmp_path / "whole", spec_of(lines))
    (whole.path / ".packed.json.1.partial").write_text("{", "utf-8")
    n_files = len(list(whole.path.iterdir())) - 1
    for linked in range(n_files):
        calls = iter(range(n_files))

        def killed(source: str, target: str, calls: Any = calls, most: int = linked) -> None:
            if next(calls) == most:
                raise Killed
            os.link(source, target)

        with monkeypatch.context() as patched:
            patched.setattr("regard.text.packed._link", killed)
            with pytest.raises(Killed):
                link_corpus(whole.path, tmp_path / "packed")
        corpus = packed(tmp_path / "packed", spec_of(lines))
        assert texts_of(corpus, corpus.training) == texts_of(whole, whole.training)
        shutil.rmtree(corpus.path)
    link_corpus(whole.path, tmp_path / "packed")
    assert not list((tmp_path / "packed").glob(".*"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions, and few links")
def test_read_only_and_linked_files_are_linked(tmp_path: Path, lines: Path) -> None:
    whole = packed(tmp_path / "whole", spec_of(lines))
    (whole.path / "training.bin").rename(tmp_path / "stored.bin")
    (whole.path / "training.bin").symlink_to("../stored.bin")
    whole.path.chmod(0o555)
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("disk/empty")
    for _ in range(2):  # the second one replaces the first
        link_corpus(whole.path, tmp_path / "linked")
    corpus = open_packed(tmp_path / "linked")
    assert texts_of(corpus, corpus.training) == texts_of(whole, whole.training)
    assert (tmp_path / "linked").is_symlink()
    assert (tmp_path / "disk/empty").stat().st_mode & stat.S_IWUSR


def test_a_removal_that_was_killed_leaves_no_corpus(
    tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = packed(tmp_path / "whole", spec_of(lines))

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(Killed):
        remove_corpus(whole.path)
    assert not is_packed(whole.path)


def test_the_same_command_again_changes_nothing(tmp_path: Path, lines: Path) -> None:
    packed(tmp_path / "packed", spec_of(lines))
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "packed").iterdir()}
    packed(tmp_path / "packed", spec_of(lines))
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "packed").iterdir()}
    with pytest.raises(UserError, match="holds something else"):
        packed(tmp_path / "packed", spec_of(lines, validation=0.5))


@pytest.mark.usefixtures("small_batches")
def test_a_full_disk_leaves_no_corpus_and_can_be_continued(
    tmp_path: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path / "whole", spec_of(lines))
    syncs = iter(range(100))
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if next(syncs) == 21:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(UserError, match="the disk is full; free space and repeat"):
            packed(tmp_path / "packed", spec_of(lines))
    assert not (tmp_path / "packed").exists()
    packed(tmp_path / "packed", spec_of(lines))
    assert file_contents(tmp_path / "packed") == file_contents(tmp_path / "whole")


def test_a_malformed_record_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "good"}\n{"text": 3}\n', "utf-8")
    with pytest.raises(UserError, match=r"bad.jsonl:2: the field 'text' is not a string"):
        packed(tmp_path / "packed", spec_of(tmp_path / "bad.jsonl", documents="records"))
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.usefixtures("small_batches")
def test_an_error_of_a_worker_names_the_place(tmp_path: Path, lines: Path) -> None:
    narrow = train_tokenizer(CharactersConfig(unknown="error"), LINES[:5])
    with pytest.raises(UserError, match=r"lines.txt:6: the vocabulary has no '5'"):
        packed(tmp_path / "packed", spec_of(lines, known=narrow), jobs=2, tokenizer=narrow)
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_compressed_files_are_read(tmp_path: Path, lines: Path) -> None:
    plain = packed(tmp_path / "plain", spec_of(lines))
    for suffix, compress in (("gz", gzip), ("bz2", bz2), ("xz", lzma)):
        folder = tmp_path / suffix
        folder.mkdir()
        file = folder / f"lines.txt.{suffix}"
        file.write_bytes(compress.compress(lines.read_bytes()))
        corpus = packed(tmp_path / f"packed-{suffix}", spec_of(folder))
        assert corpus.training.ids.tolist() == plain.training.ids.tolist(), suffix
        file.write_bytes(file.read_bytes()[:-20])
        with refusal(UserError, r"lines.txt\.\w+: (is damaged|can't be read)", suffix):
            inspect_file(file)


def test_a_second_packing_to_a_folder_is_refused(tmp_path: Path, lines: Path) -> None:
    (tmp_path / ".packed.lock").touch()  # of a killed one: it holds nothing
    says = r"packed: another process is writing it; wait"
    with hold_lock(tmp_path / ".packed.lock", "busy"), pytest.raises(UserError, match=says):
        regard.pack(lines, out=tmp_path / "packed", tokenizer="characters", jobs=1)
    assert not (tmp_path / "packed").exists()
    regard.pack(lines, out=tmp_path / "packed", tokenizer="characters", jobs=1)
    assert {path.name for path in tmp_path.iterdir()} == {"lines.txt", "packed"}


# From Python


def test_a_corpus_is_packed_from_python(tmp_path: Path, lines: Path) -> None:
    corpus = regard.pack(
        str(lines), out=str(tmp_path / "packed"), tokenizer="characters", validation=0, jobs=1
    )
    assert texts_of(corpus, corpus.training) == LINES
    records = tmp_path / "records.jsonl"
    records.write_bytes(b"".join(msgspec.json.encode({"body": line}) + b"\n" for line in LINES))
    for known in (corpus.tokenizer, corpus.path, str(corpus.path)):
        out = tmp_path / "other"
        other = regard.pack(
            [records], out=out, tokenizer=known, text="body", documents="records", seed=1, jobs=1
        )
        assert other.tokenizer.fingerprint == corpus.tokenizer.fingerprint
        held_out = set(texts_of(other, other.validation))
        assert texts_of(other, other.training) == [line for line in LINES if line not in held_out]
        assert len(held_out) == 4


def test_impossible_options_are_refused(tmp_path: Path, lines: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"jobs": 0}, "jobs=0: expected 1 or more"),
        ({"jobs": -1}, "jobs=-1: expected 1 or more"),
        ({"validation": 1.0}, "validation=1.0: expected a share"),
        ({"validation": float("nan")}, "validation=nan: expected a share"),
        ({"seed": -1}, "seed=-1: expected 0 or more"),
        ({"documents": "pages"}, "documents=pages: there are: auto, files, "),
        ({"tokenizer": "none"}, "--tokenizer none: there is no none/tokenizer.json"),
        ({"tokenizer": "byte-pairs:20"}, "tokenizer.size"),
    ]
    for options, says in cases:
        with pytest.raises(UserError, match=says):
            regard.pack(lines, out=tmp_path / "new" / "packed", **options)
        assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


# Damage


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def raise_id(path: Path) -> None:
    ids = np.fromfile(path, "<u2")
    ids[len(ids) // 2] = 60_000
    ids.tofile(path)


def shuffle(path: Path) -> None:
    np.fromfile(path, "<i8")[::-1].tofile(path)


def other_tokenizer(path: Path) -> None:
    train_tokenizer(CharactersConfig(unknown="bytes"), ["xyz"]).save(path.parent)


def other_format(path: Path) -> None:
    header = msgspec.json.decode(path.read_bytes(), type=Header)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(header, format=9)))


DAMAGES: Sequence[tuple[str, Callable[[Path], None], str]] = (
    (
        "training.bin",
        shorten,
        r"training.bin: has [\d,]+ bytes, not [\d,]+; delete the packed corpus",
    ),
    ("validation.starts", shorten, r"validation.starts: has [\d,]+ bytes, not"),
    ("training.bin", raise_id, r"training.bin: holds the id 60000, but the tokenizer has \d+"),
    ("training.starts", shuffle, r"training.starts: is damaged"),
    ("training.bin", Path.unlink, r"training.bin: is missing"),
    ("packed.json", shorten, r"packed.json: is damaged"),
    ("packed.json", other_format, r"packed.json: has format 9, not 2"),
    ("packed.json", Path.unlink, r"is no packed corpus; make one by regard pack"),
    ("tokenizer.json", other_tokenizer, r"the tokenizer isn't the one"),
)


def test_damage_is_refused(tmp_path: Path, lines: Path) -> None:
    packed(tmp_path / "whole", spec_of(lines))
    for number, (name, damage, says) in enumerate(DAMAGES):
        folder = Path(shutil.copytree(tmp_path / "whole", tmp_path / str(number)))
        damage(folder / name)
        with refusal(UserError, says):
            open_packed(folder)


def test_ids_beyond_two_bytes_take_four(tmp_path: Path) -> None:
    tokenizer, texts = number_tokenizer(70_000), ["0 65535 65536 69999", "1 2"]
    (tmp_path / "n.txt").write_text("\n".join(texts), "utf-8")
    spec = spec_of(tmp_path / "n.txt", validation=0, known=tokenizer)
    corpus = packed(tmp_path / "packed", spec, tokenizer=tokenizer)
    assert corpus.training.ids.dtype == np.dtype("<u4")
    assert texts_of(corpus, corpus.training) == texts


def test_windows_has_at_most_61_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imitate("win32", pack, monkeypatch)
    imitate("win32", concurrent.futures.process, monkeypatch)
    with pack._encoding(number_tokenizer(9), tmp_path, iter([]), 64) as encoded:
        assert list(encoded) == []


def test_a_lost_worker_names_the_guard_of_scripts(tmp_path: Path) -> None:
    with (
        pytest.raises(RegardError, match="__main__"),
        pack._discarding(tmp_path / "partial", tmp_path / "out"),
    ):
        raise BrokenProcessPool


def written_lines(path: Path, n: int = 3) -> Path:
    path.write_text("".join(f"a line {i}\n" for i in range(n)), "utf-8")
    return path


def test_packing_is_repeated_with_an_integer_share(tmp_path: Path) -> None:
    a, out = written_lines(tmp_path / "a.txt"), tmp_path / "packed"
    first, again = (
        regard.pack(a, out=out, tokenizer="words", validation=0, jobs=1).header for _ in range(2)
    )
    assert first == again
    spec = TextSpec(
        documents="lines", text_field="text", tokenizer=WordsConfig(), validation=0, seed=0
    )
    assert type(spec.validation) is float


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_a_tokenizer_that_raises_for_unknown_text_sees_all_of_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.text.packed.SAMPLE_BYTES", 100)
    text = "".join(f"word{i} {chr(0x4E00 + i)}\n" for i in range(300))
    (tmp_path / "a.txt").write_text(text, "utf-8")
    made = regard.pack(tmp_path / "a.txt", out=tmp_path / "packed", tokenizer=kind, jobs=1)
    assert made.documents == 300


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_link_to_an_empty_folder_is_packed_into(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "packed").symlink_to(tmp_path / "disk")
    a = written_lines(tmp_path / "a.txt")
    regard.pack(a, out=tmp_path / "packed", tokenizer="words", jobs=1)
    assert (tmp_path / "disk" / "packed.json").is_file()


def test_no_files_are_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file to read; name one"):
        regard.pack([], out=tmp_path / "packed")


@pytest.mark.skipif(sys.platform != "linux", reason="other file names are Unicode")
def test_a_file_name_that_is_no_unicode_is_said_before_packing(tmp_path: Path) -> None:
    path = written_lines(tmp_path / os.fsdecode(b"caf\xe9.txt"))
    with pytest.raises(UserError, match=r"its name isn't valid UTF-8; rename it"):
        regard.pack(path, out=tmp_path / "packed", jobs=1)


def test_a_field_is_for_records(tmp_path: Path) -> None:
    a = written_lines(tmp_path / "a.txt")
    with pytest.raises(UserError, match=r"a\.txt: has no records with a field 'body'"):
        regard.pack(a, out=tmp_path / "packed", text="body", jobs=1)


def test_a_damaged_corpus_is_to_be_deleted(tmp_path: Path) -> None:
    a, out = written_lines(tmp_path / "a.txt"), tmp_path / "packed"
    regard.pack(a, out=out, jobs=1)
    (out / "training.bin").write_bytes(b"")
    with pytest.raises(UserError, match="delete the packed corpus, and pack it again"):
        regard.pack(a, out=out, jobs=1)
