"""Writing of packed corpora: documents are encoded in batches and written in their order.

Unfinished files are in a hidden folder beside the packed one, with progress.json. A killed command
continues from there: files are truncated to the sizes that were recorded last, and the pieces of
text that they hold are skipped.
"""

import errno
import os
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Bool, Integer

from regard.errors import RegardError, UserError, alternatives
from regard.files import decode_json, held_alone, publish, remove_unfinished, sums_of, write_file
from regard.operating_system import process_cpu_count
from regard.text.corpus import Piece, batch_pieces
from regard.text.files import PACKED
from regard.text.packed import (
    SPLITS,
    TOKEN_FILES,
    Advance,
    Header,
    Size,
    Sizes,
    TextSpec,
    held_out_documents,
    is_packed,
    packed_from,
    read_spec,
    remove_corpus,
)
from regard.text.tokenizer import Tokenizer, locate_unknown, train_tokenizer

PROGRESS = "progress.json"
MOST_ON_WINDOWS = 61
"""Largest number of processes that a `ProcessPoolExecutor` waits for on Windows."""
DOCUMENTS = ("auto", "files", "paragraphs", "lines", "records")
"""Kinds of documents."""
RECORDED = 16
"""Number of batches of text between records of the progress."""


class PackProgress(msgspec.Struct, kw_only=True):
    """Progress of packing a corpus."""

    fingerprint: str
    """Fingerprint of the text and its settings."""
    batches: int = 0
    characters: int = 0
    documents: int = 0
    sizes: Sizes = msgspec.field(default_factory=Sizes)


class EncodedBatch(NamedTuple):
    """The ids of pieces of text."""

    ids: Integer[np.ndarray, " tokens"]
    lengths: Integer[np.ndarray, " pieces"]
    begins: Bool[np.ndarray, " pieces"]
    """Whether a document begins with the piece."""
    characters: int

    def held_out(self, last: int, choose: Callable[[int], bool]) -> Bool[np.ndarray, " pieces"]:
        """Return whether each piece is held out; `last` is the index of the document before."""
        indices = last + np.cumsum(self.begins)
        return np.array([choose(int(index)) for index in indices], dtype=bool)

    def only(self, chosen: Bool[np.ndarray, " pieces"]) -> "EncodedBatch":
        """Return some of the pieces."""
        return EncodedBatch(
            ids=self.ids[np.repeat(chosen, self.lengths)],
            lengths=self.lengths[chosen],
            begins=self.begins[chosen],
            characters=self.characters,
        )

    @property
    def starts(self) -> Integer[np.ndarray, " documents"]:
        """The index of the first id of each document that begins in this batch."""
        ends = np.cumsum(self.lengths)
        return np.asarray((ends - self.lengths)[self.begins])


def pack_files(
    paths: Sequence[Path],
    out: Path,
    track: Callable[[int], AbstractContextManager[Advance]],
    spec: TextSpec,
    *,
    tokenizer: Tokenizer | None = None,
    jobs: int | None = None,
) -> Header:
    """Pack files and folders by a spec, whose `files` are found here.

    `track` takes the size of the text in bytes, and reports the progress; by default, `tokenizer`
    is trained on the text, and `jobs` is one per core.

    Raises:
        UserError: as `pack_corpus`; a file can't be read, an option is invalid, or another process
            packs to `out`.
    """
    _require_possible(spec, jobs)
    if not is_packed(out):
        _require_free(out)
    with held_alone(out):
        read = read_spec(spec, paths, [out])
        if spec.text_field != "text":  # the default, which need not be there
            read.require_records()
        with track(read.bytes) as report:
            return pack_corpus(
                read, out, report, jobs=jobs or process_cpu_count(), tokenizer=tokenizer
            )


def _require_possible(spec: TextSpec, jobs: int | None) -> None:
    if spec.documents not in DOCUMENTS:
        raise UserError(f"documents={spec.documents}: {alternatives(spec.documents, DOCUMENTS)}")
    if not 0 <= spec.validation < 1:
        raise UserError(f"validation={spec.validation}: expected a share from 0 to below 1")
    if spec.seed < 0:
        raise UserError(f"seed={spec.seed}: expected 0 or more")
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs={jobs}: expected 1 or more")


def _require_free(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(
            f"{out}: exists and holds something else; choose another --out, or delete it"
        )


def pack_corpus(
    spec: TextSpec,
    out: Path,
    advance: Advance,
    *,
    jobs: int = 1,
    tokenizer: Tokenizer | None = None,
) -> Header:
    """Write a packed corpus, continue an interrupted one, or return the header of a complete one.

    `jobs` processes encode; by default, `tokenizer` is trained on the text.

    Raises:
        UserError: `out` holds something else, a document is malformed or can't be encoded, or the
            disk is full.
    """
    if found := packed_from(spec, out):
        return found
    _require_free(out)
    place = out.resolve()  # a link's target is replaced, not the link
    folder = place.with_name(f".{place.name}.partial")
    with _discarding(folder, out):
        header = packed_from(spec, folder) or _pack(spec, folder, advance, jobs, tokenizer)
        (folder / PROGRESS).unlink(missing_ok=True)
        publish(folder, place)
    return header


def _pack(
    spec: TextSpec, folder: Path, advance: Advance, jobs: int, tokenizer: Tokenizer | None
) -> Header:
    """Write or continue a folder; the header comes last."""
    progress = _begin(spec, folder)
    tokenizer = _save_tokenizer(spec, folder, advance, tokenizer)
    header = _write(spec, folder, progress, tokenizer, advance, jobs)
    if header.sizes.training.tokens < 2:
        raise UserError(f"{spec.files[0].path}: is too short to learn from")
    write_file(folder / PACKED, msgspec.json.encode(header))
    return header


@contextmanager
def _discarding(folder: Path, out: Path) -> Iterator[None]:
    """Remove an unfinished corpus after an error in the text; keep it after any other.

    Raises:
        UserError: the disk is full.
    """
    try:
        yield
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(
            f"{out}: the disk is full; free space and repeat the command, which continues from "
            "what is written"
        ) from None
    except BrokenProcessPool:
        raise RegardError(
            f"{out}: a worker process ended. If memory is short, repeat the command with fewer "
            "--jobs, which continues from what is written; in a script, call pack under `if "
            "__name__ == '__main__':`, as workers import it"
        ) from None


def _begin(spec: TextSpec, folder: Path) -> PackProgress:
    """Return the progress of an interrupted packing of this text, or of a new one."""
    try:
        saved = decode_json((folder / PROGRESS).read_bytes(), PackProgress)
    except (OSError, ValueError):
        saved = None
    if saved is not None and saved.fingerprint == spec.fingerprint:
        remove_unfinished(folder)
        return saved
    remove_corpus(folder)
    folder.mkdir(parents=True)
    return PackProgress(fingerprint=spec.fingerprint)


def _save_tokenizer(
    spec: TextSpec, folder: Path, advance: Advance, known: Tokenizer | None
) -> Tokenizer:
    """Return the tokenizer, after training and saving it if that wasn't done before.

    The first record of the progress follows it, so that a saved tokenizer is that of this text.
    """
    if (folder / PROGRESS).exists():
        return Tokenizer.load(folder)
    tokenizer = known or train_tokenizer(spec.tokenizer, spec.sample(advance))
    tokenizer.save(folder)
    _record(folder, PackProgress(fingerprint=spec.fingerprint))
    return tokenizer


def _record(folder: Path, progress: PackProgress) -> None:
    write_file(folder / PROGRESS, msgspec.json.encode(progress))


def _write(
    spec: TextSpec,
    folder: Path,
    progress: PackProgress,
    tokenizer: Tokenizer,
    advance: Advance,
    jobs: int,
) -> Header:
    dtype = id_type(tokenizer)
    held_out = held_out_documents(spec.validation, spec.seed)
    batches = islice(batch_pieces(spec.pieces()), progress.batches, None)
    advance("tokens", progress.characters)
    with ExitStack() as stack:
        files = {
            name: _SplitFiles(stack, folder, name, dtype, getattr(progress.sizes, name))
            for name in SPLITS
        }
        encoded = stack.enter_context(_encoding(tokenizer, folder, batches, jobs))
        for batch in encoded:
            held = batch.held_out(progress.documents - 1, held_out)
            files["training"].append(batch.only(~held))
            files["validation"].append(batch.only(held))
            progress.batches += 1
            progress.characters += batch.characters
            progress.documents += int(batch.begins.sum())
            advance("tokens", batch.characters)
            if progress.batches % RECORDED == 0:
                _flush(files.values())
                _record(folder, progress)
        _flush(files.values())
    return Header(
        dtype=dtype,
        vocabulary=tokenizer.size,
        tokenizer=tokenizer.fingerprint,
        sizes=progress.sizes,
        sums=sums_of(folder / name for name in TOKEN_FILES),
        spec=spec,
    )


class _SplitFiles:
    """The files of a split, which grow by batches; `size` counts their tokens and documents."""

    def __init__(self, stack: ExitStack, folder: Path, name: str, dtype: str, size: Size) -> None:
        """`stack` closes the files."""
        self.size, width = size, np.dtype(dtype).itemsize
        self._ids = _open_truncated(stack, folder / f"{name}.bin", size.tokens * width)
        self._starts = _open_truncated(stack, folder / f"{name}.starts", size.documents * 8)

    def append(self, batch: EncodedBatch) -> None:
        """Write the pieces of a batch."""
        starts = self.size.tokens + batch.starts
        self._ids.write(batch.ids.tobytes())
        self._starts.write(starts.astype("<i8").tobytes())
        self.size.tokens += len(batch.ids)
        self.size.documents += len(starts)

    def flush(self) -> None:
        """Write to the disk, so that a power failure loses nothing."""
        for file in (self._ids, self._starts):
            file.flush()
            os.fsync(file.fileno())


def _open_truncated(stack: ExitStack, path: Path, size: int) -> IO[bytes]:
    """Open a file to append to its first `size` bytes.

    Raises:
        UserError: it has fewer.
    """
    file = stack.enter_context(path.open("ab"))
    if file.tell() < size:
        raise UserError(f"{path}: was cut short; repeat the command, which starts again")
    file.truncate(size)
    return file


def _flush(files: Iterable[_SplitFiles]) -> None:
    for file in files:
        file.flush()


# Encoding, in worker processes if there are several jobs


def id_type(tokenizer: Tokenizer) -> Literal["<u2", "<u4"]:
    """Return the type of the ids of a tokenizer."""
    return "<u2" if tokenizer.size <= 2**16 else "<u4"


def encode_batch(tokenizer: Tokenizer, batch: Sequence[Piece]) -> EncodedBatch:
    """Encode pieces in parallel.

    Raises:
        UserError: names the place of text that the vocabulary lacks.
    """
    dtype = id_type(tokenizer)
    rows: list[list[int]] = [[]] * len(batch)
    for begins in (True, False):
        places = [i for i, piece in enumerate(batch) if piece.begins == begins]
        for place, row in zip(places, _rows(tokenizer, [batch[i] for i in places]), strict=True):
            rows[place] = row
    return EncodedBatch(
        ids=np.concatenate([np.empty(0, dtype), *(np.array(row, dtype) for row in rows)]),
        lengths=np.array([len(row) for row in rows], dtype=np.int64),
        begins=np.array([piece.begins for piece in batch], dtype=bool),
        characters=sum(len(piece.text) for piece in batch),
    )


def _rows(tokenizer: Tokenizer, pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the ids of pieces that all begin documents, or all continue them."""
    if not pieces:
        return []
    texts = [piece.text for piece in pieces]
    try:
        return tokenizer.encode_batch(texts, continuing=not pieces[0].begins)
    except UserError:
        for piece in pieces:
            with locate_unknown(piece.where, tokenizer):
                tokenizer.encode_batch([piece.text], continuing=not piece.begins)
        raise


@contextmanager
def _encoding(
    tokenizer: Tokenizer,
    folder: Path,
    batches: Iterator[list[Piece]],
    jobs: int,
) -> Iterator[Iterator[EncodedBatch]]:
    """Yield the encoded batches in their order; few are in memory at any time."""
    if jobs == 1:
        yield (encode_batch(tokenizer, batch) for batch in batches)
        return
    jobs = min(jobs, MOST_ON_WINDOWS) if sys.platform == "win32" else jobs
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(folder,)
    )
    try:
        yield _in_order(pool, batches, jobs + 2)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, batches: Iterator[list[Piece]], ahead: int
) -> Iterator[EncodedBatch]:
    pending: deque[Future[EncodedBatch]] = deque()
    for batch in batches:
        pending.append(pool.submit(_encode_in_worker, batch))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


_worker: dict[str, Tokenizer] = {}
"""The tokenizer of a worker process."""


def _start_worker(folder: Path) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes share the cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends them
    _worker["tokenizer"] = Tokenizer.load(folder)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End the process when the main one has ended, even if it was killed."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _encode_in_worker(batch: Sequence[Piece]) -> EncodedBatch:
    return encode_batch(_worker["tokenizer"], batch)
