"""Text ↔ token ids.

Every vocabulary begins with the same two special tokens: padding □ and the mask ⁇.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import UserError
from regard.text.config import (
    BytePairsConfig,
    CharactersConfig,
    HuggingFaceConfig,
    TokenizerConfig,
    WordsConfig,
)
from regard.text.corpus import Document
from regard.text.vocabulary import MASK, PAD, SPECIAL


class OutOfVocabularyError(UserError):
    """A text holds something that the vocabulary doesn't."""


class Tokenizer(ABC):
    """Text ↔ token ids."""

    kind: str
    size: int
    """Number of tokens, special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text; special tokens are never among them.

        Raises:
            OutOfVocabularyError: names what the vocabulary lacks.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; `decode(encode(text)) == text`.

        Special tokens show as □ and ⁇, or by the names that an imported vocabulary has for them.
        """

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """Two texts as one, and for each id which of them it belongs to. ⁇ begins the second.

        Raises:
            OutOfVocabularyError: names the part of a text that it has no token for.
        """
        one, other = self.encode(first), [MASK, *self.encode(second)]
        return [*one, *other], [0] * len(one) + [1] * len(other)

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a text, and for each the number of its word, or -1 if it is of none.

        Words are what spaces part; a space belongs to the word that follows it.

        Raises:
            OutOfVocabularyError: names the part of the text that it has no token for.
        """
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        numbered = (bisect_left(ends, end) if end else -1 for end in self._ends(text))
        return self.encode(text), [n if n < len(ends) else -1 for n in numbered]

    @abstractmethod
    def _ends(self, text: str) -> list[int]:
        """Behind which character of the text each token ends; 0 for a token that isn't of it."""

    def show(self, token: int) -> str:
        """A token as a reader sees it, special ones too."""
        return self.decode([token])

    @abstractmethod
    def _data(self) -> Any:
        """What the vocabulary is, as JSON values."""

    def to_json(self) -> str:
        """All that `from_json` needs."""
        data = {"kind": self.kind, "data": self._data()}
        return json.dumps(data, ensure_ascii=False, sort_keys=True, indent=1)

    @property
    def fingerprint(self) -> str:
        """Tells tokenizers apart: equal only where all ids mean the same."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


class Characters(Tokenizer):
    """Each character is a token."""

    kind = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        self._characters = [*SPECIAL, *characters]
        self._ids = {character: i for i, character in enumerate(self._characters)}
        self.size = len(self._characters)

    @staticmethod
    def train(texts: Iterable[str]) -> "Characters":
        """All characters of the texts, sorted."""
        return Characters(sorted(set().union(*texts) - set(SPECIAL)))

    def encode(self, text: str) -> list[int]:
        try:
            ids = [self._ids[character] for character in text]
        except KeyError as missing:
            raise OutOfVocabularyError(f"the vocabulary has no {missing.args[0]!r}") from None
        if PAD in ids or MASK in ids:
            raise OutOfVocabularyError("the text holds □ or ⁇, which are reserved")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._characters[i] for i in ids)

    def _ends(self, text: str) -> list[int]:
        return list(range(1, len(text) + 1))

    def _data(self) -> list[str]:
        return self._characters[len(SPECIAL) :]


class Pieces(Tokenizer):
    """Words or byte pairs, by Hugging Face tokenizers.

    A space belongs to the word that follows it, and each text is read as if a space stood before
    it, so that a word is the same token everywhere.
    """

    def __init__(self, kind: str, pieces: tokenizers.Tokenizer) -> None:
        self.kind = kind
        self._pieces = pieces
        self.size = pieces.get_vocab_size()
        self._unknown = pieces.token_to_id(_UNKNOWN)

    @staticmethod
    def train_words(texts: Iterable[str]) -> "Pieces":
        """All words and punctuation marks of the texts, the commonest first."""
        splitter = _word_splitter()
        counts = Counter(
            piece
            for text in texts
            for piece, _ in splitter.pre_tokenize_str(" " + text)
            if piece.strip() not in SPECIAL
        )
        return Pieces.of_words(sorted(counts, key=lambda word: (-counts[word], word)))

    @staticmethod
    def of_words(words: Sequence[str]) -> "Pieces":
        """These words and punctuation marks, each with the space before it if it has one."""
        splitter = _word_splitter()
        vocabulary = {token: i for i, token in enumerate([*SPECIAL, _UNKNOWN, *words])}
        pieces = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
        pieces.normalizer = normalizers.Prepend(" ")
        pieces.pre_tokenizer = splitter
        pieces.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        return Pieces("words", pieces)

    @staticmethod
    def train_byte_pairs(texts: Iterable[str], size: int) -> "Pieces":
        """Byte pairs learned from the texts (Sennrich et al., 2016; over bytes as in GPT-2)."""
        pieces = tokenizers.Tokenizer(models.BPE())
        pieces.normalizer = normalizers.Prepend(" ")
        pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        pieces.decoder = decoders.Sequence(
            [decoders.ByteLevel(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        pieces.train_from_iterator(texts, trainer)
        return Pieces("byte-pairs", pieces)

    def encode(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._pieces.encode(text, add_special_tokens=False).ids
        except TypeError:  # lone surrogates, from bytes that aren't UTF-8
            raise OutOfVocabularyError("the text isn't valid Unicode") from None
        if self._unknown is not None and self._unknown in ids:
            raise OutOfVocabularyError(f"the vocabulary has no word {self._first_unknown(text)}")
        if PAD in ids or MASK in ids:
            raise OutOfVocabularyError("the text holds □ or ⁇, which are reserved")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._pieces.decode(list(ids), skip_special_tokens=False)
        return text

    def _ends(self, text: str) -> list[int]:
        return [end for _, end in self._pieces.encode(text, add_special_tokens=False).offsets]

    def _first_unknown(self, text: str) -> str:
        pieces = (piece for piece, _ in _word_splitter().pre_tokenize_str(" " + text))
        unknown = next(p for p in pieces if self._pieces.token_to_id(p) in (None, self._unknown))
        word = unknown.strip() or unknown
        spaced, other = ("with", "without") if unknown.startswith(" ") else ("without", "with")
        if self._pieces.token_to_id(word if spaced == "with" else f" {word}") is None:
            return repr(word)
        return f"{word!r} {spaced} a space before it, but one {other}"

    def _data(self) -> Any:
        return json.loads(self._pieces.to_str())


class ForeignPieces(Pieces):
    """The tokens of an imported model, numbered so that its padding and its mask come first.

    They keep their names. What the model expects around each text, as BERT its [CLS] and [SEP], is
    put there by `encode` and left out by `decode`. An unknown word is no error where the vocabulary
    has a token for it, as BERT's has. `decode(encode(text)) == text` for GPT-2's tokens; those of a
    BERT forget spaces, and those of an uncased one capitals and accents.
    """

    kind = "hugging-face"

    def __init__(self, pieces: tokenizers.Tokenizer) -> None:
        super().__init__(self.kind, pieces)
        bare = pieces.encode("", add_special_tokens=False)
        self._around = frozenset(pieces.encode("").ids) - frozenset(bare.ids)

    def encode(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._pieces.encode(text).ids
        except TypeError:  # lone surrogates, from bytes that aren't UTF-8
            raise OutOfVocabularyError("the text isn't valid Unicode") from None
        for special in (PAD, MASK):
            if special in ids:
                name = self._pieces.id_to_token(special)
                raise OutOfVocabularyError(f"the text holds {name}, which is reserved")
        return ids

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        if not self._around:
            return super().encode_pair(first, second)
        for text in (first, second):
            self.encode(text)  # refuses what can't be encoded
        pair = self._pieces.encode(first, second)
        return list(pair.ids), list(pair.type_ids)

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode([i for i in ids if i not in self._around])

    def _ends(self, text: str) -> list[int]:
        return [end for _, end in self._pieces.encode(text).offsets]

    def show(self, token: int) -> str:
        return super().decode([token])


_UNKNOWN = "<unknown>"


def _word_splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(tokenizers.Regex(r" ?\w+| ?[^\w\s]|\s"), behavior="isolated")


def numbers(n: int) -> Tokenizer:
    """The numbers 0 to n-1, each a token."""
    return Pieces.of_words([f" {i}" for i in range(n)])


def train_tokenizer(config: TokenizerConfig, texts: Sequence[str]) -> Tokenizer:
    """A tokenizer for the given texts.

    Raises:
        UserError: it is of a kind that no text makes.
    """
    match config:
        case CharactersConfig(newline=newline):
            return Characters.train([*texts, "\n"] if newline else texts)
        case WordsConfig():
            return Pieces.train_words(texts)
        case BytePairsConfig():
            return Pieces.train_byte_pairs(texts, config.size)
        case HuggingFaceConfig():
            raise UserError(
                "tokenizer.kind=hugging-face: comes with an imported model and can't be trained; "
                "give --tokenizer RUN, or take another kind"
            )


def tokenizer_from_json(text: str) -> Tokenizer:
    """The inverse of `Tokenizer.to_json`.

    Raises:
        ValueError: the text is no tokenizer.
    """
    saved = json.loads(text)
    if not isinstance(saved, dict) or {"kind", "data"} - saved.keys():
        raise ValueError("no kind and data")
    if saved["kind"] == "characters":
        return Characters(saved["data"])
    pieces = tokenizers.Tokenizer.from_str(json.dumps(saved["data"]))
    if saved["kind"] == ForeignPieces.kind:
        return ForeignPieces(pieces)
    return Pieces(saved["kind"], pieces)


def encode_documents(tokenizer: Tokenizer, documents: Sequence[Document]) -> list[list[int]]:
    """The ids of each document.

    Raises:
        OutOfVocabularyError: names the place and what the vocabulary lacks.
    """
    encoded = []
    for document in documents:
        with said_of(document.where):
            encoded.append(tokenizer.encode(document.text))
    return encoded


@contextmanager
def said_of(where: str) -> Iterator[None]:
    """Let what the vocabulary lacks be told with the place of the text."""
    try:
        yield
    except OutOfVocabularyError as error:
        raise OutOfVocabularyError(
            f"{where}: {error}; remove it, or train with a tokenizer that knows it "
            "(tokenizer.kind=byte-pairs knows all)"
        ) from None
