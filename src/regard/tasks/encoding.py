"""Encode examples as rows of ids that fit a model; truncated ones are counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import UserError
from regard.tasks.examples import Example
from regard.text.corpus import Document
from regard.text.template import Affixes, Template
from regard.text.tokenizer import Tokenizer, encode_documents, locate_unknown


@dataclass(frozen=True)
class Encoded:
    """Rows of ids, and the number of truncated rows."""

    rows: list[list[int]]
    marks: list[list[int]]
    """For texts, the segment of each id; for words, the position of each word's last token."""
    cut: int = 0


@dataclass(frozen=True)
class EncodedPairs:
    """Prompts with their completions, and the number of truncated prompts."""

    pairs: list[tuple[list[int], list[int]]]
    cut: int = 0


def max_prompt_length(context_length: int, template: Template) -> int:
    """Return the largest prompt length before an answer; a quarter is left for the answer."""
    max_tokens = context_length - len(template.prompt)
    return context_length - max_tokens // 4


def encode_texts(
    template: Template, affixes: Affixes, examples: Sequence[Example], longest: int
) -> Encoded:
    """Encode texts in rows of at most `longest` ids; of two texts, the longer is truncated first.

    Raises:
        UserError: a text can't be encoded.
    """
    joined, cut = [], 0
    for example in examples:
        with locate_unknown(example.place, template.tokenizer):
            first = template.tokenizer.encode(example.text)
            second = None if example.second is None else template.tokenizer.encode(example.second)
        empty, _ = template.join(affixes, [], None if second is None else [])
        kept = _fit(first, second, longest - len(empty))
        cut += kept != (first, second)
        joined.append(template.join(affixes, *kept))
    return Encoded([row for row, _ in joined], [segments for _, segments in joined], cut)


def encode_words(
    template: Template, affixes: Affixes, examples: Sequence[Example], longest: int
) -> Encoded:
    """Encode texts in rows of at most `longest` ids, word by word.

    Raises:
        UserError: a text can't be encoded, or a word has no tokens.
    """
    rows, ends, cut = [], [], 0
    max_tokens, begin = longest - len(affixes), len(affixes.prefix)
    for example in examples:
        with locate_unknown(example.place, template.tokenizer):
            ids, words = template.tokenizer.encode_words(example.text)
        last = {word: place for place, word in enumerate(words)}
        for number, word in enumerate(example.text.split()):
            if number not in last:
                raise UserError(
                    f"{example.place}: the tokenizer makes nothing of the word {word!r}; remove it"
                )
        cut += len(ids) > max_tokens
        rows.append(affixes.around(ids[:max_tokens]))
        ends.append(
            [begin + place for word, place in last.items() if word >= 0 and place < max_tokens]
        )
    return Encoded(rows, ends, cut)


def encode_answers(
    tokenizer: Tokenizer, examples: Sequence[Example], max_tokens: int
) -> list[list[int]]:
    """Encode the answers of examples, of at most `max_tokens` each.

    Raises:
        UserError: an answer can't be encoded or is too long.
    """
    rows = encode_documents(tokenizer, [Document(e.answer or "", e.place) for e in examples])
    for example, row in zip(examples, rows, strict=True):
        if len(row) > max_tokens:
            raise UserError(
                f"{example.place}: the answer takes {len(row)} tokens, but at most "
                f"{max_tokens} fit; shorten it, or train with a larger model.context_length"
            )
    return rows


def encode_joined(
    template: Template, examples: Sequence[Example], context_length: int
) -> EncodedPairs:
    """Encode prompts and answers, together at most one token longer than the context.

    Raises:
        UserError: as `encode_answers`.
    """
    max_tokens = context_length + 1 - len(template.completion)
    longest = max_prompt_length(context_length, template)
    answers = encode_answers(template.tokenizer, examples, max_tokens - len(template.prompt) - 1)
    prompts = [
        encode_texts(template, template.prompt, [example], min(longest, max_tokens - len(answer)))
        for example, answer in zip(examples, answers, strict=True)
    ]
    rows = [row for prompt in prompts for row in prompt.rows]
    completions = map(template.completion.around, answers)
    return EncodedPairs(list(zip(rows, completions, strict=True)), sum(p.cut for p in prompts))


def _fit(
    first: list[int], second: list[int] | None, max_tokens: int
) -> tuple[list[int], list[int] | None]:
    """Truncate one text or two to `max_tokens` together, the longer one first."""
    if second is None:
        return first[:max_tokens], None
    kept = min(len(second), max(max_tokens - len(first), max_tokens // 2))
    return first[: max_tokens - kept], second[:kept]
