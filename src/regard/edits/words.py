"""Find positions of a prompt: a word, an index, or the last token."""

import re
import unicodedata
from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.edits.edit import LAST, At
from regard.edits.tokens import Prompt
from regard.errors import UserError, nearest
from regard.text.tokenizer import Tokenizer

_UNSPACED = (
    *("CJK ", "IDEOGRAPHIC ", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "BOPOMOFO"),
    *("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN "),
)
"""Beginnings of the Unicode names of letters of scripts without spaces between words."""


def chosen_positions(
    at: At, prompt: Prompt, tokenizer: Tokenizer, site: str
) -> Bool[Tensor, "p n"]:
    """Return a mask of the positions of each prompt that `at` selects.

    Raises:
        UserError: a prompt has no such word or position.
    """
    chosen = torch.zeros_like(prompt.input_ids, dtype=torch.bool)
    if at is None:
        return ~chosen
    for row, length in enumerate(prompt.lengths.tolist()):
        if at == LAST:
            places = [length - 1]
        elif isinstance(at, str):
            if prompt.unit == "latent":
                raise UserError(
                    f"{site}: latents have no word {at!r}; name a latent by its number from 0: "
                    "latent i reads the tokens up to i"
                )
            ids = prompt.input_ids[row, :length].tolist()
            places = word_positions(tokenizer, ids, at, site)
        else:
            places = [at] if isinstance(at, int) else list(at)
            for place in places:
                if not 0 <= place < length:
                    raise UserError(
                        f"{site}: position {place} isn't in a text of {length} {prompt.unit}s, "
                        "which are numbered from 0"
                    )
        chosen[row, places] = True
    return chosen


def word_positions(tokenizer: Tokenizer, ids: Sequence[int], word: str, site: str) -> list[int]:
    """Return the positions of the tokens of a word, or of several words, at each occurrence.

    Raises:
        UserError: the text doesn't contain it; the message suggests a similar word.
    """
    if not word.strip():
        raise UserError(f"{site}: at is empty; name a word of the text, or a position")
    prefixes = [tokenizer.decode(ids[: i + 1]) for i in range(len(ids))]
    # A token may end inside a character, whose first bytes are decoded as U+FFFD.
    whole = [len(prefix.rstrip("\ufffd")) for prefix in prefixes]
    ends = [n + (n < len(prefix)) for n, prefix in zip(whole, prefixes, strict=True)]
    text = tokenizer.decode(ids)
    found = [match.span() for match in re.finditer(_whole(word), text)]
    if not found:
        words = {one.lower(): one for one in re.findall(r"\w+", text)}
        near = nearest(word, words)
        mend = f"; did you mean {words[near]}?" if near else ""
        raise UserError(f"{site}: the text {_short(text)!r} has no word {word!r}{mend}")
    starts = [0, *whole[:-1]]
    return [
        i
        for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        if any(start < last and first < end for first, last in found)
    ]


def _whole(word: str) -> str:
    """Return a regular expression that matches a word, but not inside a longer one."""
    before = r"(?<!\w)" if _in_words(word[0]) else ""
    after = r"(?!\w)" if _in_words(word[-1]) else ""
    return before + re.escape(word) + after


def _in_words(letter: str) -> bool:
    """Return whether spaces separate words of this letter."""
    return letter.isalnum() and not unicodedata.name(letter, "").startswith(_UNSPACED)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"
