"""Input tokens of a stack: their positions, their prompt, and the positions of its words."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.edits.edit import LAST, At
from regard.errors import UserError, nearest
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Prompt:
    """The first input rows of a stack."""

    input_ids: Int[Tensor, "p n"]
    lengths: Int[Tensor, " p"]
    unit: str = "token"
    """Unit of the positions: token, or latent of a perceiver."""


class Tokens(NamedTuple):
    """Tokens of a tensor: their positions, and the prompt of their rows."""

    prompt: Prompt
    positions: Int[Tensor, "#b n"]

    @property
    def n(self) -> int:
        """Number of tokens."""
        return self.positions.shape[1]

    def times(self, rows: int) -> int:
        """Return the number of consecutive rows that continue each prompt.

        Raises:
            UserError: the number of rows isn't a multiple of that of the prompts.
        """
        prompts = len(self.prompt.lengths)
        if rows % prompts:
            raise UserError(
                f"edits: {rows} rows can't continue {prompts} prompts; start the generation "
                "inside the edit"
            )
        return rows // prompts

    def at(self, chosen: Bool[Tensor, "p n"], rows: int) -> Bool[Tensor, "b n"]:
        """Return a mask of the tokens at chosen positions of the prompt."""
        inside = self.positions < chosen.shape[1]
        places = self.positions.clamp(max=chosen.shape[1] - 1).expand(rows, -1)
        of_rows = chosen.repeat_interleave(self.times(rows), 0)
        return of_rows.gather(1, places) & inside

    def beyond(self, rows: int) -> Bool[Tensor, "b n"]:
        """Return a mask of the tokens after the prompt."""
        lengths = self.prompt.lengths.repeat_interleave(self.times(rows))
        return self.positions >= lengths[:, None]


Hook: TypeAlias = Callable[[Tensor, Tokens, Tokens], Tensor]
"""Receives a tensor, the tokens of its rows, and those of its columns (the same, or the keys)."""
Hooks: TypeAlias = Mapping[str, Hook]
"""The hooks of a model by place."""


class Reader:
    """Track the input tokens of a stack, or the first `limit` of them.

    Latents of a perceiver have the numbers of the tokens that they are made with.
    """

    def __init__(
        self,
        prompt_tokens: int | None = None,
        *,
        limit: int | None = None,
        unit: str = "token",
        followers: Sequence["Reader"] = (),
    ) -> None:
        """Take the first `prompt_tokens` of whole rows as the prompt (default: all).

        Followers read the same tokens.
        """
        self._prompt_tokens, self._limit, self._unit = prompt_tokens, limit, unit
        self._followers = followers
        self._prompt: Prompt | None = None
        self._positions: Tensor | None = None
        self._lengths: Tensor | None = None

    @contextmanager
    def reading(self, lengths: Int[Tensor, " b"] | None) -> Iterator[None]:
        """Read rows of these lengths in the with block, which begin without a mask of padding."""
        self._lengths = lengths
        try:
            yield
        finally:
            self._lengths = None

    def begin(self, input_ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"] | None) -> None:
        """Read whole rows."""
        for reader in self._followers:
            reader.begin(input_ids, lengths)
        input_ids = input_ids[:, : self._limit]
        b, n = input_ids.shape
        if lengths is None:
            lengths = torch.full((b,), n, device=input_ids.device)
        p = n if self._prompt_tokens is None else min(n, self._prompt_tokens)
        self._prompt = Prompt(input_ids[:, :p], lengths.clamp(max=p), self._unit)
        self._positions = torch.arange(n, device=input_ids.device)[None]

    def extend(
        self,
        input_ids: Int[Tensor, "b n"],
        before: Int[Tensor, " b"],
        attention_mask: Bool[Tensor, "b n"] | None,
    ) -> None:
        """Read new tokens after `before` others; the first tokens of a row are its prompt."""
        if not before.any():
            lengths = self._lengths if attention_mask is None else attention_mask.sum(1)
            self.begin(input_ids, lengths)
        new = torch.arange(input_ids.shape[1], device=input_ids.device)
        positions = before[:, None] + new
        # Positions beyond the limit are clamped: such rows are computed, too, but never used.
        self._positions = positions if self._limit is None else positions.clamp(max=self._limit - 1)
        for reader in self._followers:
            reader.extend(input_ids, before, attention_mask)

    @property
    def now(self) -> Tokens:
        """The tokens of the current call."""
        prompt, positions = self._prompt, self._positions
        if prompt is None or positions is None:
            raise UserError("edits: a layer was called outside the model; call the model")
        return Tokens(prompt, positions)

    def so_far(self, n: int) -> Tokens:
        """The first n tokens of the rows."""
        positions = torch.arange(n, device=self.now.positions.device)[None]
        return Tokens(self.now.prompt, positions)


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
