"""Read the tokenizer of a Hugging Face folder unchanged: its file, ids and special tokens."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import UserError
from regard.files import read_table, read_text
from regard.text.config import MOST_TOKENS
from regard.text.template import TemplateConfig
from regard.text.tokenizer import ROLES, OutOfVocabularyError, Tokenizer

_BERT = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA = {
    **{"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>"},
    **{"unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
}
_GEMMA = {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}
_USUAL = {
    "gpt2": {"bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    "gpt_neox": {"bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "bert": _BERT,
    "distilbert": _BERT,
    "roberta": _ROBERTA,
    "bart": _ROBERTA,
    "t5": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
}
"""Model type → its default special tokens."""


def read_tokenizer(folder: Path, hf: Mapping[str, Any], generation: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a folder with the special tokens of its files.

    `hf` is the folder's config.json, whose special ids are used only if the tokenizer's files name
    no token; if they disagree, a warning is given. `generation` is its generation_config.json,
    whose stop ids and decoder start take precedence.

    Raises:
        UserError: files are missing or damaged, or the vocabulary lacks a special token.
    """
    settings = _read_settings(folder)
    native, file = _read_native(folder, hf["model_type"], settings)
    usual = _USUAL.get(hf["model_type"], {}).items()
    names = {role: name for role, name in usual if native.token_to_id(name) is not None}
    names |= _named(settings)
    ends = (table.get("eos_token_id") for table in (generation, hf))
    stops = next((found for found in ends if isinstance(found, list)), None)
    own = generation.get("eos_token_id")
    if stops is None and isinstance(own, int) and own in range(MOST_TOKENS):
        stops = None if native.id_to_token(own) in (None, names.get("eos")) else [own]
    more: dict[str, Any] = {} if stops is None else {"stop_ids": tuple(stops)}
    start = generation.get("decoder_start_token_id", hf.get("decoder_start_token_id"))
    if start is not None:
        more["decoder_start_id"] = start
    for i in (*(stops or ()), *([] if start is None else [start])):
        if not (isinstance(i, int) and 0 <= i < MOST_TOKENS):
            raise UserError(
                f"{folder}: its special id {i} is none of a vocabulary; mend config.json"
            )
    try:
        return Tokenizer(native, _agree(names, hf, native), unknown="unk", file=file, **more)
    except ValueError as error:
        raise UserError(
            f"{folder}: its tokenizer has {error}; name another in tokenizer_config.json"
        ) from None


def template_of(
    tokenizer: Tokenizer, hf: Mapping[str, Any], generation: Mapping[str, Any]
) -> TemplateConfig:
    """Return the template that adds the same tokens as the tokenizer's post-processor.

    `hf` and `generation` are config.json and generation_config.json.

    Raises:
        UserError: the post-processor adds a token without a role.
    """
    sample, text = known_text(tokenizer)
    whole = tokenizer.native.encode(sample).ids
    start = next(i for i in range(len(whole)) if whole[i : i + len(text)] == text)
    before = _roles(tokenizer, whole[:start], ("bos", "cls"))
    after = _roles(tokenizer, whole[start + len(text) :], ("eos", "sep"))
    model_type = hf["model_type"]
    if model_type in _PAIRS:  # Devlin et al., 2019, §3
        before, after = before or "{cls}", after or "{sep}"
    separator = "{sep}" if tokenizer.special.sep is not None else "{eos}"
    end = "{eos}" if tokenizer.special.eos is not None else "{sep}"
    first, second = (_PAIRS[model_type], "") if model_type in _PAIRS else ("", separator)
    forced = generation.get("forced_bos_token_id", hf.get("forced_bos_token_id"))
    begin = "" if forced is None else _roles(tokenizer, [forced], ("bos",))
    return TemplateConfig(
        document=f"{before}{{document}}{after}",
        prompt=f"{before}{{question}}{after}",
        completion=f"{separator}{{answer}}{end}",
        pair=(f"{{first}}{first}", f"{second}{{second}}"),
        source=f"{before}{{source}}{after}",
        target=f"{begin}{{target}}{end}",
    )


_PAIRS = {"bert": "{sep}", "distilbert": "{sep}", "roberta": "{sep}{sep}"}
"""Separators between two texts; RoBERTa (Liu et al., 2019) has two."""


def known_text(tokenizer: Tokenizer) -> tuple[str, list[int]]:
    """Return a text that the tokenizer can encode, and its ids."""
    words = (tokenizer.decode([i]) for i in tokenizer.regular_ids)  # tokens with another spelling
    for text in chain(("a",), tokenizer.native.get_vocab(), words):
        with suppress(OutOfVocabularyError):
            if ids := tokenizer.encode(text):
                return text, ids
    raise UserError("the tokenizer encodes none of its own tokens; save it again")


def _roles(tokenizer: Tokenizer, ids: Sequence[int], likely: tuple[str, ...]) -> str:
    """Return ids as roles of a template, preferring the likely ones."""
    special = tokenizer.special
    named = {getattr(special, role): role for role in (*ROLES, *reversed(likely))}
    for i in ids:
        if i not in named:
            raise UserError(
                f"the tokenizer puts {tokenizer.decode([i])} around each text, which has no role; "
                "name it in tokenizer_config.json"
            )
    return "".join(f"{{{named[i]}}}" for i in ids)


def _read_settings(folder: Path) -> dict[str, Any]:
    """Read the fields of tokenizer_config.json, and of the older special_tokens_map.json."""
    paths = (folder / "special_tokens_map.json", folder / "tokenizer_config.json")
    tables = [read_table(path) for path in paths if path.is_file()]
    settings = {name: value for table in tables for name, value in table.items()}
    path = folder / "added_tokens.json"  # older still
    if "added_tokens_decoder" not in settings and path.is_file():
        special = set(_named(settings).values())
        settings["added_tokens_decoder"] = {
            i: {"content": token, "special": token in special}
            for token, i in read_table(path).items()
        }
    return settings


def _named(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens in the settings by role."""
    given = {role: settings.get(f"{role}_token") for role in ROLES}
    texts = {
        role: token.get("content") if isinstance(token, dict) else token
        for role, token in given.items()
    }
    return {role: str(text) for role, text in texts.items() if text is not None}


def _agree(
    names: Mapping[str, str], hf: Mapping[str, Any], native: tokenizers.Tokenizer
) -> dict[str, str]:
    """Return the special tokens, including those given only by id in config.json."""
    agreed = dict(names)
    for role in ROLES:
        found = hf.get(f"{role}_token_id")
        if found is None or isinstance(found, list):
            continue
        token = native.id_to_token(found) if found in range(MOST_TOKENS) else None
        if token is not None:
            agreed.setdefault(role, token)
        own = agreed.get(role)
        if own is None or native.token_to_id(own) not in (found, None):
            has = "has no such token" if own is None else f"has {own}, {native.token_to_id(own)}"
            warnings.warn(
                f"{role}_token_id is {found} in config.json, but the tokenizer {has}; "
                "the tokenizer's is used",
                stacklevel=2,
            )
    return agreed


# Files

_Build = Callable[[Sequence[Path], Mapping[str, Any]], tokenizers.Tokenizer]


def _read_native(
    folder: Path, model_type: str, settings: Mapping[str, Any]
) -> tuple[tokenizers.Tokenizer, str | None]:
    """Read the tokenizer, with the text of tokenizer.json unless older files are used."""
    whole = folder / "tokenizer.json"
    names, build = _OLDER.get(model_type, ((), None))
    paths = [folder / name for name in names]
    older = build is not None and all(path.is_file() for path in paths)
    if not whole.is_file() and not older:
        raise _no_tokenizer(folder, names)
    try:
        if not whole.is_file() and build is not None:
            return build(paths, settings), None
        native = tokenizers.Tokenizer.from_str(read_text(whole))
        _warn_of_differences(native, settings)
        return native, whole.read_bytes().decode()  # kept as it is, line ends too
    except UserError:
        raise
    except Exception as error:  # the tokenizers package raises bare exceptions
        damaged = whole if whole.is_file() else paths[0]
        raise UserError(f"{damaged}: is no tokenizer ({error}); restore it from a copy") from None


def _warn_of_differences(native: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Warn of settings with which the tokenizer's class in transformers replaces tokenizer.json."""
    if settings.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        return
    parts = (
        ("do_lower_case", native.normalizer, "lowercase"),
        ("add_prefix_space", native.pre_tokenizer, "add_prefix_space"),
    )
    for name, part, own in parts:
        found = {} if part is None else json.loads(part.__getstate__())
        if name in settings and found.get(own, settings[name]) != settings[name]:
            warnings.warn(
                f"{name} is {settings[name]} in tokenizer_config.json, but {own} is {found[own]} "
                "in tokenizer.json, which is used",
                stacklevel=2,
            )


def _no_tokenizer(folder: Path, names: Sequence[str]) -> UserError:
    """Return the error for a folder without a supported tokenizer."""
    for pieces in folder.glob("*.model"):
        return UserError(
            f"{pieces}: is a SentencePiece model, which isn't read; convert it: python -c \"from "
            f"transformers import AutoTokenizer as T; T.from_pretrained('{folder}')"
            f".save_pretrained('{folder}')\""
        )
    neither = f"neither tokenizer.json nor {' and '.join(names)}" if names else "no tokenizer.json"
    return UserError(f"{folder}: has no tokenizer, {neither}; save the tokenizer beside the model")


def _byte_pairs(paths: Sequence[Path], settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build a byte-level BPE tokenizer (Radford et al., 2019, §2.2)."""
    vocabulary, merges = map(str, paths)
    native = tokenizers.Tokenizer(models.BPE.from_file(vocabulary, merges))
    native.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(settings.get("add_prefix_space", False))
    )
    native.decoder = decoders.ByteLevel()
    native = _with_specials(native, names := _USUAL["gpt2"] | _named(settings), settings)
    known = (role for role in ("bos", "eos") if native.token_to_id(names[role]) is not None)
    ends = {role: names[role] for role in known if settings.get(f"add_{role}_token")}
    if ends:
        native.post_processor = processors.TemplateProcessing(
            single=[part for part in (ends.get("bos"), "$A", ends.get("eos")) if part],
            special_tokens=[(token, native.token_to_id(token)) for token in {*ends.values()}],
        )
    return native


def _word_pieces(paths: Sequence[Path], settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build the WordPiece tokenizer of BERT, uncased unless tokenizer_config.json differs."""
    names = _USUAL["bert"] | _named(settings)
    model = models.WordPiece.from_file(str(paths[0]), unk_token=names["unk"])
    native = tokenizers.Tokenizer(model)
    native.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
        lowercase=bool(settings.get("do_lower_case", True)),
    )
    native.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    native.decoder = decoders.WordPiece()
    native = _with_specials(native, names, settings)
    cls, sep = names["cls"], names["sep"]
    native.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(token, native.token_to_id(token)) for token in {cls: 0, sep: 0}],
    )
    return native


def _byte_pairs_with_ends(
    paths: Sequence[Path], settings: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """Build the byte-level BPE tokenizer of RoBERTa and BART, with <s> and </s> around a text."""
    names = _ROBERTA | _named(settings)
    native = _with_specials(_byte_pairs(paths, settings), names, settings)
    sep, cls = ((name, native.token_to_id(name) or 0) for name in ("</s>", "<s>"))
    spaced = bool(settings.get("add_prefix_space", False))
    native.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=spaced)
    return native


def _with_specials(
    native: tokenizers.Tokenizer, names: Mapping[str, str], settings: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """Add the added tokens of the settings, and mark the special tokens that there are then."""
    added = {int(i): token for i, token in settings.get("added_tokens_decoder", {}).items()}
    for i, token in sorted(added.items()):
        options = {name: value for name, value in token.items() if name in _ADDED}
        native.add_tokens([tokenizers.AddedToken(**options)])
        if native.token_to_id(token["content"]) != i:
            raise ValueError(f"{token['content']} can't have id {i}")
    known = [t for t in dict.fromkeys(names.values()) if native.token_to_id(t) is not None]
    # Adding a token again would reset its options, such as lstrip of <mask>.
    marked = {token["content"] for token in added.values() if token.get("special")}
    native.add_special_tokens([token for token in known if token not in marked])
    return native


_ADDED = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
"""Fields of an added token."""
_OLDER: dict[str, tuple[tuple[str, ...], _Build]] = {
    "gpt2": (("vocab.json", "merges.txt"), _byte_pairs),
    "bert": (("vocab.txt",), _word_pieces),
    "distilbert": (("vocab.txt",), _word_pieces),
    "roberta": (("vocab.json", "merges.txt"), _byte_pairs_with_ends),
    "bart": (("vocab.json", "merges.txt"), _byte_pairs_with_ends),
}
"""Model type → older files of its tokenizer, and the function that builds it from them."""
