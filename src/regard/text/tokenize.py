"""Encoding of texts of any size: their files, their documents, and the ids of these in batches."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Bool, Integer

from regard.errors import UserError
from regard.text.config import TokenizerConfig
from regard.text.corpus import Piece, read_pieces
from regard.text.files import TextFile
from regard.text.tokenizer import Tokenizer, locate_unknown

SAMPLE_BYTES = 100_000_000
"""Largest size of the text on which a tokenizer is trained."""
BATCH = 2**21
"""Characters that are encoded together."""

Advance = Callable[[str, int], None]
"""Reports progress: what is done, and how many more characters of the text it has read."""


class TextSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the tokens of a text depend on."""

    files: tuple[TextFile, ...] = ()
    documents: str
    """What a document is; "auto" until the files are read."""
    text_field: str
    tokenizer: TokenizerConfig
    known: str | None = None
    """Fingerprint of a tokenizer that isn't trained on the text, if there is one."""
    validation: float
    seed: int

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A hash of the contents and of how they are read; names of files don't matter."""
        files = [msgspec.structs.replace(file, path="", modified=0) for file in self.files]
        content = msgspec.json.encode(msgspec.structs.replace(self, files=tuple(files)))
        return hashlib.sha256(content).hexdigest()[:16]


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
        """The place among the ids of the first id of each document that begins here."""
        ends = np.cumsum(self.lengths)
        return np.asarray((ends - self.lengths)[self.begins])


def pieces_of(spec: TextSpec) -> Iterator[Piece]:
    """Yield the documents of a text, long ones in pieces."""
    return read_pieces(spec.files, spec.documents, spec.text_field)


def sample_text(spec: TextSpec, advance: Advance) -> Iterator[str]:
    """Yield the text, or as many pieces of it, drawn by the seed, as a tokenizer is trained on."""
    draw, share = Random(f"{spec.seed} tokenizer"), SAMPLE_BYTES / max(spec.bytes, 1)
    for piece in pieces_of(spec):
        advance("tokenizer", len(piece.text))
        if share >= 1 or draw.random() < share:
            yield piece.text


def held_out_documents(share: float, seed: int) -> Callable[[int], bool]:
    """Return whether the document of an index is held out: one of each 1/share, by the seed.

    Of the first ones it is the last, so that none is where there are fewer.
    """
    size = max(round(1 / share), 2) if share else 0

    @lru_cache(maxsize=1)  # documents come in their order
    def place(block: int) -> int:
        return Random(f"{seed} {block}").randrange(size) if block else size - 1

    return (lambda index: place(index // size) == index % size) if share else lambda _: False


def batch_pieces(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield pieces in lists of some BATCH characters."""
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def encode_batch(tokenizer: Tokenizer, batch: Sequence[Piece], dtype: str) -> EncodedBatch:
    """Encode pieces in parallel.

    Raises:
        UserError: names the place of what the vocabulary lacks.
    """
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
    """The ids of pieces that all begin documents, or all continue them."""
    if not pieces:
        return []
    texts = [piece.text for piece in pieces]
    try:
        return tokenizer.encode_batch(texts, continuing=not pieces[0].begins)
    except UserError:
        for piece in pieces:
            with locate_unknown(piece.where, tokenizer):
                tokenizer.encode(piece.text)
        raise
