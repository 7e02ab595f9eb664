"""The tokenizer of a Hugging Face folder as it is there, from the files of today or older ones."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from regard.errors import UserError
from regard.files import read_text
from regard.runs.run import read_table

ROLES = ("bos", "eos", "unk", "pad", "cls", "sep", "mask")
"""What a special token may be for."""

_USUAL = {
    "gpt2": {"bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    "bert": {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
}
"""The special tokens of each type of model where its files don't name others."""


def read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says, and the older special_tokens_map.json.

    Raises:
        UserError: one of them is damaged.
    """
    paths = (folder / "special_tokens_map.json", folder / "tokenizer_config.json")
    tables = [read_table(path) for path in paths if path.is_file()]
    return {name: value for table in tables for name, value in table.items()}


def named_tokens(model_type: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The special token of each role that has one."""
    given = {role: settings.get(f"{role}_token") for role in ROLES}
    texts = {
        role: token.get("content") if isinstance(token, dict) else token
        for role, token in given.items()
    }
    named = {role: str(text) for role, text in texts.items() if text is not None}
    return _USUAL[model_type] | named


def read_pieces(folder: Path, model_type: str, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The tokenizer in tokenizer.json, or in vocab.json and merges.txt, or in vocab.txt.

    Raises:
        UserError: there is none, or it is damaged.
    """
    for names, build in (_WHOLE, _OLDER[model_type]):
        paths = [folder / name for name in names]
        if all(path.is_file() for path in paths):
            return _built(build, paths, settings)
    raise UserError(
        f"{folder}: has no tokenizer, neither tokenizer.json nor "
        f"{' and '.join(_OLDER[model_type][0])}; save the tokenizer beside the model"
    )


_Build = Callable[[Sequence[Path], Mapping[str, Any]], tokenizers.Tokenizer]


def _built(
    build: _Build, paths: Sequence[Path], settings: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    try:
        return build(paths, settings)
    except UserError:
        raise
    except Exception as error:  # the tokenizers package raises bare exceptions
        raise UserError(f"{paths[0]}: is no tokenizer ({error}); restore it from a copy") from None


def _whole(paths: Sequence[Path], _: Mapping[str, Any]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(read_text(paths[0]))


def _byte_pairs(paths: Sequence[Path], settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Byte pairs over bytes (Radford et al., 2019, §2.2)."""
    vocabulary, merges = map(str, paths)
    pieces = tokenizers.Tokenizer(models.BPE.from_file(vocabulary, merges))
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(settings.get("add_prefix_space", False))
    )
    pieces.decoder = decoders.ByteLevel()
    return _with_specials(pieces, named_tokens("gpt2", settings))


def _word_pieces(paths: Sequence[Path], settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Word pieces as in BERT, uncased where tokenizer_config.json doesn't say otherwise."""
    special = named_tokens("bert", settings)
    model = models.WordPiece.from_file(str(paths[0]), unk_token=special["unk"])
    pieces = tokenizers.Tokenizer(model)
    pieces.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
        lowercase=bool(settings.get("do_lower_case", True)),
    )
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    return _with_specials(pieces, special)


def _with_specials(
    pieces: tokenizers.Tokenizer, special: Mapping[str, str]
) -> tokenizers.Tokenizer:
    """The special tokens of the vocabulary are read whole in a text; none is added to it."""
    known = [t for t in dict.fromkeys(special.values()) if pieces.token_to_id(t) is not None]
    pieces.add_special_tokens(known)
    return pieces


_WHOLE: tuple[tuple[str, ...], _Build] = (("tokenizer.json",), _whole)
_OLDER: dict[str, tuple[tuple[str, ...], _Build]] = {
    "gpt2": (("vocab.json", "merges.txt"), _byte_pairs),
    "bert": (("vocab.txt",), _word_pieces),
}
"""The files that a tokenizer may lie in, and what makes it of them."""
