"""Text ↔ token ids, by the tokenizers package of Hugging Face."""

import json
import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import tokenizers
from msgspec.structs import force_setattr
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import UserError
from regard.files import MISSING, fingerprint_of, read_text, write_file
from regard.text.config import (
    ByteFallback,
    BytePairsConfig,
    CharactersConfig,
    HuggingFaceConfig,
    SpecialTokensConfig,
    TokenizerConfig,
    WordsConfig,
)
from regard.text.corpus import Document, Piece

ROLES = ("pad", "bos", "eos", "sep", "cls", "mask", "unk")
"""Roles of special tokens, by Hugging Face's names, as in `pad_token` and `pad_token_id`."""


class SpecialTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The id of each role, anywhere in the vocabulary; one id may have several roles."""

    pad: int | None = None
    """Pads rows."""
    bos: int | None = None
    """Begins a text."""
    eos: int | None = None
    """Ends a text."""
    sep: int | None = None
    """Separates two texts."""
    cls: int | None = None
    """Begins a text that is classified."""
    mask: int | None = None
    """Replaces a masked token."""
    unk: int | None = None
    """Replaces text that the vocabulary lacks."""
    stop_ids: tuple[int, ...] = ()
    """Each ends a generated text. Default: eos, or else sep."""
    decoder_start_id: int | None = None
    """Begins the target of an encoder-decoder. Default: bos, or else cls or pad."""

    def __post_init__(self) -> None:
        if not self.stop_ids:
            ends = [i for i in (self.eos, self.sep) if i is not None]
            force_setattr(self, "stop_ids", tuple(ends[:1]))
        if self.decoder_start_id is None:
            starts = (i for i in (self.bos, self.cls, self.pad) if i is not None)
            force_setattr(self, "decoder_start_id", next(starts, None))

    @property
    def ids(self) -> frozenset[int]:
        """All special ids."""
        named = (*(getattr(self, role) for role in ROLES), *self.stop_ids, self.decoder_start_id)
        return frozenset(i for i in named if i is not None)

    @property
    def padding(self) -> int:
        """The id that pads rows: pad, or else 0, since padding is masked anyway."""
        return 0 if self.pad is None else self.pad

    def require(self, role: str) -> int:
        """Return the id of a role.

        Raises:
            UserError: there is none.
        """
        found: int | None = getattr(self, role)
        if found is None:
            raise UserError(f"the tokenizer has no {role} token; choose a tokenizer that has one")
        return found


class OutOfVocabularyError(UserError):
    """A text contains something that the vocabulary lacks."""


class Tokenizer:
    """Text ↔ token ids. Text never becomes a special token, except unk where it is configured."""

    def __init__(
        self,
        native: tokenizers.Tokenizer,
        names: Mapping[str, str],
        *,
        unknown: ByteFallback = "error",
        file: str | None = None,
        **special: Any,
    ) -> None:
        """`names` maps roles to tokens; `file` is the tokenizer.json that `native` was read from.

        `special` are the fields of `SpecialTokens` that aren't roles.

        Raises:
            ValueError: a token isn't in the vocabulary.
        """
        self._file = file or native.to_str(pretty=True)
        native.no_truncation()
        native.no_padding()
        native.encode_special_tokens = True  # as ordinary text; not a part of the file
        ids = {role: native.token_to_id(name) for role, name in names.items()}
        if missing := [role for role, token in ids.items() if token is None]:
            raise ValueError(f"no {names[missing[0]]}, its {missing[0]}_token")
        self.native, self.special = native, msgspec.convert(ids | special, SpecialTokens)
        self._settings = {f"{role}_token": name for role, name in names.items()} | special
        self._unknown: ByteFallback = unknown
        added = native.get_added_tokens_decoder().items()
        self._reserved = self.special.ids | {i for i, token in added if token.special}

    @cached_property
    def size(self) -> int:
        """The number of ids: one more than the highest."""
        return max(self.native.get_vocab().values()) + 1

    @cached_property
    def regular_ids(self) -> list[int]:
        """The ids of all tokens except the special ones."""
        return sorted(set(self.native.get_vocab().values()) - self._reserved)

    @property
    def summary(self) -> str:
        """The number of tokens that aren't special, and some of them."""
        ids = self.regular_ids
        shown = [repr(self.decode([i])) for i in dict.fromkeys([*ids[:3], *ids[-1:]])]
        return f"{len(ids):,} tokens, such as {', '.join(shown)}"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text alone.

        Raises:
            OutOfVocabularyError: names what the vocabulary lacks.
        """
        encoding = self._encode(text)
        return self._without_special(encoding.ids, text, encoding)

    def encode_batch(self, texts: Sequence[str], *, continuing: bool = False) -> list[list[int]]:
        """Return the ids of texts, encoded in parallel; `continuing` ones don't begin a document.

        Raises:
            OutOfVocabularyError: as `encode`, which is several times slower.
        """
        native = self._continuing if continuing else self.native
        try:
            rows = [one.ids for one in native.encode_batch_fast(texts, add_special_tokens=False)]
        except Exception:  # bare ones; `encode` says which text it is
            return [self.encode(text) for text in texts]
        return [self._without_special(*row) for row in zip(rows, texts, strict=True)]

    def _without_special(
        self, ids: list[int], text: str, encoding: tokenizers.Encoding | None = None
    ) -> list[int]:
        """Replace special ids, which encode unknown text, by unk, if that is configured."""
        if self._reserved.isdisjoint(ids):
            return ids
        if self._unknown == "unk" and self.special.unk is not None:
            return [self.special.unk if i in self._reserved else i for i in ids]
        encoding = encoding or self._encode(text)  # a batch is encoded without offsets
        place = next((p for p, i in enumerate(encoding.ids) if i in self._reserved), 0)
        missing = self._describe(text, *encoding.offsets[place])
        raise OutOfVocabularyError(f"the vocabulary has no {missing}")

    def unknown_parts(self, text: str) -> list[str]:
        """Return the different parts of a text that are encoded as unk or, if unknown, as bytes.

        Bytes of an imported tokenizer don't count, as its model was trained on them.
        """
        encoding, by_bytes = self._encode(text), self._unknown == "bytes"
        tokens = zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
        parts = (
            text[start:end].strip() or text[start:end]
            for i, token, (start, end) in tokens
            if i in self._reserved or (by_bytes and re.fullmatch("<0x..>", token))
        )
        return list(dict.fromkeys(parts))

    @cached_property
    def _continuing(self) -> tokenizers.Tokenizer:
        """The tokenizer of text that continues a document, which prepends no space."""
        if not isinstance(self.native.normalizer, normalizers.Prepend):
            return self.native
        native = tokenizers.Tokenizer.from_str(self.native.to_str())
        native.normalizer = normalizers.Sequence([])
        native.encode_special_tokens = True
        return native

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of a text, and for each the index of its word, or -1 if it has none.

        Words are separated by spaces; a space belongs to the word that follows it.

        Raises:
            OutOfVocabularyError: names what the vocabulary lacks.
        """
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        of_tokens = [end for _, end in self._encode(text).offsets]
        words = (bisect_left(ends, end) if end else -1 for end in of_tokens)
        return self.encode(text), [word if word < len(ends) else -1 for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens by their names."""
        text: str = self.native.decode(list(ids), skip_special_tokens=False)
        return text

    def token_text(self, token: int) -> str:
        """Return a token as text, or as in the vocabulary if it ends inside a character."""
        text = self.decode([token])
        piece: str | None = self.native.id_to_token(token)
        return piece if piece and "\ufffd" in text else text

    def save(self, folder: Path, **settings: Any) -> None:
        """Write tokenizer.json, and tokenizer_config.json with the special tokens.

        Further settings of tokenizer_config.json may name the transformers class that loads them.
        """
        content = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,
            "unknown": self._unknown,
            **self._settings,
            **settings,
        }
        file, config = FILES
        write_file(folder / config, json.dumps(content, ensure_ascii=False, indent=2).encode())
        write_file(folder / file, self._file.encode())

    @staticmethod
    def load(folder: Path) -> "Tokenizer":
        """Return the tokenizer that was saved in a folder.

        Raises:
            UserError: a file is missing or damaged.
        """
        file, config = (read_text(folder / name, missing=MISSING) for name in FILES)
        try:
            native = tokenizers.Tokenizer.from_str(file)
        except Exception as error:  # the tokenizers package raises bare exceptions
            raise UserError(
                f"{folder / FILES[0]}: is no tokenizer ({error}); restore it from a copy"
            ) from None
        try:
            saved = json.loads(config)
            names = {role: saved[f"{role}_token"] for role in ROLES if f"{role}_token" in saved}
            more = {key: saved[key] for key in ("stop_ids", "decoder_start_id") if key in saved}
            return Tokenizer(native, names, unknown=saved["unknown"], file=file, **more)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(
                f"{folder / FILES[1]}: doesn't fit {FILES[0]} ({error}); restore it from a copy"
            ) from None

    @cached_property
    def fingerprint(self) -> str:
        """A hash that is equal only if all ids have the same meaning."""
        return fingerprint_of(self.native.to_str().encode() + msgspec.json.encode(self.special))

    def _encode(self, text: str) -> tokenizers.Encoding:
        try:
            return self.native.encode(text, add_special_tokens=False)
        except TypeError:  # lone surrogates, from bytes that aren't UTF-8
            raise OutOfVocabularyError("the text isn't valid Unicode") from None
        except Exception as error:  # a bare one, of imported vocabularies without unk
            raise OutOfVocabularyError(
                f"the vocabulary lacks a part of the text: {error}"
            ) from None

    def _describe(self, text: str, start: int, end: int) -> str:
        """Describe a part of a text that the vocabulary lacks, perhaps only for a space."""
        word = text[start:end].strip() or text[start:end]
        spaced = start == 0 or text[start] == " "
        if self.native.token_to_id(word if spaced else f" {word}") in {None, *self._reserved}:
            return repr(word)
        here, there = ("with", "without") if spaced else ("without", "with")
        return f"{word!r} {here} a space before it, but one {there}"


FILES = ("tokenizer.json", "tokenizer_config.json")
"""Files of a saved tokenizer, in Hugging Face's formats."""


# Training


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str | Piece]) -> Tokenizer:
    """Return a tokenizer for the given texts or pieces of them, which are read once.

    Raises:
        UserError: its kind can't be trained, or a text has lone surrogates.
    """
    pieces = map(_require_unicode, texts)
    match config:
        case CharactersConfig():
            return _train_characters(config, (piece.text for piece in pieces))
        case WordsConfig():
            return _train_words(config, pieces)
        case BytePairsConfig():
            return _train_byte_pairs(config, (piece.text for piece in pieces))
        case HuggingFaceConfig():
            raise UserError(
                "tokenizer.kind=hugging-face: comes with an imported model and can't be trained; "
                "give --tokenizer RUN, or take another kind"
            )


def _require_unicode(text: str | Piece) -> Piece:
    piece = Piece(text, True, "") if isinstance(text, str) else text
    try:
        piece.text.encode()
    except UnicodeEncodeError as error:
        part = ascii(piece.text[max(error.start - 20, 0) : error.end])
        raise OutOfVocabularyError(f"the text isn't valid Unicode: {part}") from None
    return piece


def _train_characters(config: CharactersConfig, texts: Iterable[str]) -> Tokenizer:
    """Return all characters of the texts, sorted, as byte pairs without merges."""
    found = set("\n" if config.newline else "")
    for text in texts:
        found.update(text)
    characters, in_bytes = sorted(found), config.unknown == "bytes"
    # A special token of one character would stand for that character, which has bytes.
    tokens = (getattr(config.special_tokens, role) for role in ROLES)
    taken = found.union(token for token in tokens if in_bytes and len(token) == 1)
    names = _name_roles(config.special_tokens, taken, with_unk=config.unknown == "unk")
    special = list(dict.fromkeys(names.values()))
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if in_bytes else []
    vocabulary = {token: i for i, token in enumerate([*special, *fallback, *characters])}
    model = models.BPE(vocabulary, [], unk_token=special[-1], byte_fallback=in_bytes)
    native = tokenizers.Tokenizer(model)
    fuse = decoders.Fuse()
    native.decoder = decoders.Sequence([decoders.ByteFallback(), fuse]) if in_bytes else fuse
    native.add_special_tokens(special)
    return Tokenizer(native, names, unknown=config.unknown)


def _train_words(config: WordsConfig, pieces: Iterable[Piece]) -> Tokenizer:
    """Return all words and punctuation marks of the texts, the most frequent first."""
    native = tokenizers.Tokenizer(models.WordLevel())
    native.pre_tokenizer = _word_splitter()
    trainer = trainers.WordLevelTrainer(vocab_size=sys.maxsize, show_progress=False)
    native.train_from_iterator((" " * one.begins + one.text for one in pieces), trainer)
    ids = native.get_vocab()
    return word_tokenizer(sorted(ids, key=ids.__getitem__), config)


def word_tokenizer(words: Sequence[str], config: WordsConfig = WordsConfig()) -> Tokenizer:  # noqa: B008 (frozen)
    """Return a tokenizer of words and punctuation marks, each with the space before it if any.

    A space belongs to the word that follows it, and each text is read as if it began with a space,
    so that a word is the same token everywhere.
    """
    names = _name_roles(config.special_tokens, {w.strip() for w in words}, with_unk=True)
    special = list(dict.fromkeys(names.values()))
    vocabulary = {token: i for i, token in enumerate([*special, *words])}
    native = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=names["unk"]))
    native.normalizer = normalizers.Prepend(" ")
    native.pre_tokenizer = _word_splitter()
    native.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    native.add_special_tokens(special)
    return Tokenizer(native, names, unknown=config.unknown)


def _train_byte_pairs(config: BytePairsConfig, texts: Iterable[str]) -> Tokenizer:
    """Return byte pairs learned from the texts (Sennrich et al., 2016; over bytes as in GPT-2).

    Texts begin with a space, as in `word_tokenizer`.
    """
    native = tokenizers.Tokenizer(models.BPE())
    native.normalizer = normalizers.Prepend(" ")
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    native.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = _name_roles(config.special_tokens, alphabet)
    trainer = trainers.BpeTrainer(
        vocab_size=config.size,
        special_tokens=list(dict.fromkeys(names.values())),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    native.train_from_iterator(texts, trainer)
    return Tokenizer(_without_merges(native, set(names.values())), names)


def _without_merges(native: tokenizers.Tokenizer, special: Collection[str]) -> tokenizers.Tokenizer:
    """Return byte pairs that never merge to a special token, whose name the text may contain."""
    saved = json.loads(native.to_str())
    model = saved["model"]
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) not in special]
    return tokenizers.Tokenizer.from_str(json.dumps(saved))


def _name_roles(
    config: SpecialTokensConfig, taken: Collection[str], *, with_unk: bool = False
) -> dict[str, str]:
    """Return the token of each role, in angle brackets where its name is ordinary text."""
    chosen = {role: name for role in ROLES if (name := getattr(config, role))}
    if with_unk:
        chosen.setdefault("unk", "<unknown>")
    for role, name in chosen.items():
        while name in taken:
            name = f"<{name}>"
        chosen[role] = name
    return chosen


def _word_splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(tokenizers.Regex(r" ?\w+| ?[^\w\s]|\s"), behavior="isolated")


# Documents


def encode_documents(tokenizer: Tokenizer, documents: Sequence[Document]) -> list[list[int]]:
    """Return the ids of each document.

    Raises:
        OutOfVocabularyError: names the place and what the vocabulary lacks.
    """
    encoded = []
    for document in documents:
        with locate_unknown(document.where, tokenizer):
            encoded.append(tokenizer.encode(document.text))
    return encoded


@contextmanager
def locate_unknown(where: str, tokenizer: Tokenizer) -> Iterator[None]:
    """Add to errors of unknown text its place, and a summary of the vocabulary."""
    try:
        yield
    except OutOfVocabularyError as error:
        raise OutOfVocabularyError(
            f"{where}: {error}; it has {tokenizer.summary}; remove it, set tokenizer.unknown=unk, "
            "or train with tokenizer.kind=byte-pairs, which encodes any text"
        ) from None
