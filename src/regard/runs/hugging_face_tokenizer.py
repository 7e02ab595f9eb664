"""The tokenizer of a Hugging Face folder, numbered as here: padding is 0, the mask is 1.

All other tokens keep their order. Texts become the same tokens as before.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from regard.errors import UserError
from regard.runs.hugging_face_pieces import ROLES, named_tokens, read_pieces, read_settings
from regard.text.tokenizer import ForeignPieces

_BYTE_FF = "ÿ"
"""The byte FF as byte-level tokenizers write it. UTF-8 never uses it (RFC 3629, §1)."""


def read_tokenizer(folder: Path, hf: Mapping[str, Any]) -> tuple[ForeignPieces, list[int]]:
    """The tokenizer of a folder, and the id that each of its tokens has there.

    `hf` is the folder's config.json, of a GPT-2 or a BERT.

    Raises:
        UserError: files are missing or damaged, or disagree about the special tokens.
    """
    settings = read_settings(folder)
    pieces = read_pieces(folder, hf["model_type"], settings)
    if set(pieces.get_vocab().values()) != set(range(pieces.get_vocab_size())):
        raise UserError(f"{folder}: the ids of its tokenizer have gaps; save it whole")
    special = named_tokens(hf["model_type"], settings)
    try:
        special = _agreed(special, hf, pieces)
        tokenizer, order = _READERS[hf["model_type"]](pieces, special)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None
    return ForeignPieces(tokenizer), order


Numbered = tuple[tokenizers.Tokenizer, list[int]]
"""A tokenizer, and the id that each of its tokens had before it was numbered anew."""


def _gpt2(pieces: tokenizers.Tokenizer, special: Mapping[str, str]) -> Numbered:
    """What ends GPT-2's texts is the mask, which ends texts here.

    Raises:
        UserError: the tokenizer ends each text itself, so that nothing could continue it.
    """
    if pieces.num_special_tokens_to_add(is_pair=False):
        raise UserError(
            "its tokenizer puts tokens around each text; save it without its post_processor"
        )
    return _numbered(pieces, [_padding(pieces, special), special["eos"]])


def _bert(pieces: tokenizers.Tokenizer, special: Mapping[str, str]) -> Numbered:
    """[CLS] comes before each text and [SEP] behind it (Devlin et al., 2019, §3)."""
    numbered, order = _numbered(pieces, [special["pad"], special["mask"]])
    cls, sep = special["cls"], special["sep"]
    numbered.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(token, numbered.token_to_id(token)) for token in {cls: 0, sep: 0}],
    )
    return numbered, order


_READERS = {"gpt2": _gpt2, "bert": _bert}


def _agreed(
    named: Mapping[str, str], hf: Mapping[str, Any], pieces: tokenizers.Tokenizer
) -> dict[str, str]:
    """The special tokens that are named, and those of which config.json gives the id alone.

    Raises:
        UserError: a token isn't in the vocabulary, or has another id in config.json.
    """
    special = dict(named)
    for role, token in named.items():
        if pieces.token_to_id(token) is None:
            raise UserError(
                f"its tokenizer has no {token}, its {role}_token; name another in "
                "tokenizer_config.json"
            )
    for role in ROLES:
        said = hf.get(f"{role}_token_id")
        if said is None:
            continue
        token = special.get(role) or _token_of(pieces, said)
        if pieces.token_to_id(token) != said:
            raise UserError(
                f"{role}_token_id is {said} in config.json, but its tokenizer has {token} at "
                f"{pieces.token_to_id(token)}; correct one of them"
            )
        special[role] = token
    return special


def _token_of(pieces: tokenizers.Tokenizer, said: Any) -> str:
    if not isinstance(said, int) or not 0 <= said < pieces.get_vocab_size():
        raise UserError(
            f"config.json names a special token {said}, but its tokenizer has ids from 0 to "
            f"{pieces.get_vocab_size() - 1}; correct one of them"
        )
    return str(pieces.id_to_token(said))


def _padding(pieces: tokenizers.Tokenizer, special: Mapping[str, str]) -> str:
    """The padding of a GPT-2: its own, if nothing else is that too, or else the byte FF.

    A new token wouldn't do: its logit, 0 for a row of zeros, is far above those of GPT-2's tokens.

    Raises:
        UserError: there is neither.
    """
    own = special.get("pad")
    if own is not None and own not in (special["bos"], special["eos"]):
        return own
    by_bytes = '"ByteLevel"' in json.dumps(json.loads(pieces.to_str())["pre_tokenizer"])
    if not by_bytes or pieces.token_to_id(_BYTE_FF) is None:
        raise UserError(
            "its tokenizer has no padding, and no byte FF to take for it; name a pad_token in "
            "tokenizer_config.json"
        )
    return _BYTE_FF


def _numbered(pieces: tokenizers.Tokenizer, first: Sequence[str]) -> Numbered:
    """The same tokens with these first, which no longer cuts, pads or surrounds a text.

    Raises:
        UserError: two of the first are one, or the vocabulary is of an unknown kind.
    """
    ids, data = pieces.get_vocab(), json.loads(pieces.to_str())
    chosen = [ids[token] for token in first]
    if len(set(chosen)) < len(chosen):
        raise UserError(f"{' and '.join(first)} have one id; padding needs one of its own")
    if not isinstance(data["model"]["vocab"], dict):
        raise UserError(
            f"its tokenizer is of the kind {data['model']['type']}, and only BPE, WordPiece and "
            "WordLevel can be imported"
        )
    order = list(dict.fromkeys([*chosen, *range(len(ids))]))
    new = {old: i for i, old in enumerate(order)}
    # Tokens that were added have their ids behind the vocabulary's, so the first must be in it.
    vocabulary = data["model"]["vocab"] | dict(zip(first, chosen, strict=True))
    data["model"]["vocab"] = {token: new[i] for token, i in vocabulary.items()}
    added = [token | {"id": new[token["id"]]} for token in data["added_tokens"]]
    data["added_tokens"] = sorted(added, key=lambda token: int(token["id"]))
    data |= {"truncation": None, "padding": None, "post_processor": None}
    return tokenizers.Tokenizer.from_str(json.dumps(data)), order
