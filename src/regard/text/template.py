"""Templates: special tokens and fixed texts around the fields of an example."""

import string
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from msgspec.structs import asdict

from regard.config import Config
from regard.text.tokenizer import ROLES, Tokenizer, locate_unknown


class TemplateConfig(Config, frozen=True):
    """Special tokens, {bos}, {eos}, {sep} and so on, and fixed texts around each field."""

    document: str = "{bos}{document}{eos}"
    """A document of a corpus, for models that continue texts."""
    prompt: str = "{bos}{question}"
    """A question, or a text that an encoder reads; in a conversation, that of each turn."""
    completion: str = "{sep}{answer}{eos}"
    """Continuation of the prompt, the only part with loss; generation begins at {answer}."""
    pair: tuple[str, str] = ("{first}", "{sep}{second}")
    """Two texts in the place of one, with token types 0 and 1."""
    source: str = "{source}"
    """Source of a sequence-to-sequence model."""
    target: str = "{target}{eos}"
    """Its target, which follows the tokenizer's decoder start."""

    def __post_init__(self) -> None:
        for field, text in self.texts.items():
            _parse(text, field)

    @property
    def texts(self) -> dict[str, str]:
        """The part of the template around each field."""
        names = {"prompt": "question", "completion": "answer"}
        parts = {names.get(name, name): text for name, text in asdict(self).items()}
        first, second = parts.pop("pair")
        return parts | {"first": first, "second": second}


@dataclass(frozen=True)
class Affixes:
    """The ids before and after a field."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def around(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of a field with those around it."""
        return [*self.prefix, *ids, *self.suffix]

    def without_suffix(self, ids: Sequence[int], stop_id: int | None) -> Sequence[int]:
        """Return a generated field without the ids of the suffix before the stop id."""
        if stop_id not in self.suffix:
            return ids
        end = self.suffix[: self.suffix.index(stop_id)]
        begin = len(ids) - len(end)
        return ids[:begin] if tuple(ids[begin:]) == end else ids


def _around(field: str) -> "cached_property[Affixes]":
    """Return a property: the ids around a field, computed at first use."""
    return cached_property(lambda template: template.encode_affixes(field))


class Template:
    """A template in the ids of a tokenizer. Fields are encoded separately and never parsed."""

    document, prompt, completion = _around("document"), _around("question"), _around("answer")
    turn = _around("question")  # the prompt without a history
    first, second = _around("first"), _around("second")
    source, target = _around("source"), _around("target")

    def __init__(self, config: TemplateConfig, tokenizer: Tokenizer) -> None:
        self._texts, self.tokenizer = config.texts, tokenizer

    @property
    def separator(self) -> list[int]:
        """The ids between two documents: the end of one and the beginning of the other."""
        before, behind = self.document.prefix, self.document.suffix
        return [*behind] if before == behind else [*behind, *before]

    def open_answer(self, prompt: Sequence[int]) -> list[int]:
        """Return the row that the answer to a prompt continues."""
        return [*prompt, *self.completion.prefix]

    def open_target(self, ids: Sequence[int] = ()) -> list[int]:
        """Return the row that a target continues, with its first ids if they are known."""
        start = self.tokenizer.special.require("decoder_start_id")
        return [start, *self.target.prefix, *ids]

    def encode_turns(self, fields: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return questions and answers in turn with their affixes, the first with the history."""
        affixes = (self.turn, self.completion)
        return [(affixes[i % 2] if i else self.prompt).around(x) for i, x in enumerate(fields)]

    def with_history(self, turns: Sequence[tuple[str, str]]) -> "Template":
        """Return this template with earlier questions and answers before each prompt.

        Raises:
            UserError: a text can't be encoded.
        """
        fields = [self.tokenizer.encode(text) for turn in turns for text in turn]
        template = copy(self)
        if fields:
            earlier = chain(*self.encode_turns(fields))
            template.prompt = Affixes((*earlier, *self.turn.prefix), self.turn.suffix)
        return template

    def join(
        self, outer: Affixes, first: Sequence[int], second: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return one text or two as a row of ids, and the token type of each id."""
        if second is None:
            row = outer.around(first)
            return row, [0] * len(row)
        one = [*outer.prefix, *self.first.around(first)]
        other = [*self.second.around(second), *outer.suffix]
        return [*one, *other], [0] * len(one) + [1] * len(other)

    def encode_affixes(self, field: str) -> Affixes:
        """Return the ids around a field.

        Raises:
            UserError: the tokenizer lacks a special token or a text of the template.
        """
        ids: list[list[int]] = [[]]
        for literal, name in _parse(self._texts[field], field):
            with locate_unknown(f"template around {{{field}}}", self.tokenizer):
                ids[-1] += self.tokenizer.encode(literal)
            if name == field:
                ids.append([])
            elif name is not None:
                ids[-1].append(self.tokenizer.special.require(name))
        prefix, suffix = ids
        return Affixes(tuple(prefix), tuple(suffix))


def _parse(text: str, field: str) -> list[tuple[str, str | None]]:
    """Return literals, each with the role or field that follows it, if any.

    Raises:
        ValueError: the field isn't there exactly once, or has a format, or a name is neither a role
            nor the field.
    """
    parts, literal = list[tuple[str, str | None]](), ""
    for piece, name, format_spec, conversion in string.Formatter().parse(text):
        literal += piece  # a doubled brace splits it
        if format_spec or conversion:
            raise ValueError(f"{text!r}: a field has no format; write {{{name}}}")
        if name is not None:
            parts.append((literal, name))
            literal = ""
    parts.append((literal, None))
    names = [name for _, name in parts if name is not None]
    for name in names:
        if name not in (*ROLES, field):
            allowed = ", ".join((field, *ROLES))
            raise ValueError(f"{text!r}: {{{name}}} is neither field nor role; allowed: {allowed}")
    if names.count(field) != 1:
        raise ValueError(f"{text!r}: {{{field}}} must occur once")
    return parts
