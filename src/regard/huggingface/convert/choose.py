"""The choice of a tokenizer: one to train on a text, or a saved one."""

from pathlib import Path

from regard.errors import UserError
from regard.text.tokenizer import Tokenizer

_TRAINED = ("characters", "words", "byte-pairs")
"""Kinds of tokenizers to train on a text."""


def choose_tokenizer(value: str | Path) -> tuple[list[str], Tokenizer | None]:
    """Return the settings of a tokenizer to train, or a loaded tokenizer.

    Raises:
        UserError: `value` is neither a kind of tokenizer nor the place of one.
    """
    kind, colon, size = str(value).partition(":")
    if kind in _TRAINED:
        if colon and not (kind == "byte-pairs" and size.isdecimal()):
            raise UserError(f"--tokenizer {value}: takes no such size; write byte-pairs:32000, say")
        return [f"tokenizer.kind={kind}", *([f"tokenizer.size={size}"] if colon else [])], None
    if kind != "hf" and not Path(value, "tokenizer.json").is_file():
        kinds = ", ".join(_TRAINED)
        raise UserError(
            f"--tokenizer {value}: there is no {value}/tokenizer.json; name a run, hf:PATH, or a "
            f"kind: {kinds}, with its size as in byte-pairs:32000"
        )
    from regard.huggingface.convert.folder import load_tokenizer  # needs torch

    return [], load_tokenizer(str(value))
