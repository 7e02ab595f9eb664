"""Texts are cut to fit, counted, and never at the cost of their answers."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from regard.errors import UserError
from regard.tasks.encoding import (
    encode_answers,
    encode_joined,
    encode_texts,
    encode_words,
    max_prompt_length,
)
from regard.tasks.examples import Example
from regard.text.config import CharactersConfig
from regard.text.template import Affixes, Template, TemplateConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer
from tiny_tasks import examples

ABC = train_tokenizer(CharactersConfig(), ["abc"])
BARE = Template(TemplateConfig(prompt="{question}"), ABC)
"""Nothing begins a prompt."""
words = st.text("abc", min_size=1, max_size=24)
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=5)


@given(pairs, st.integers(1, 30))
def test_long_texts_lose_their_ends_and_are_counted(
    pairs: list[tuple[str, str]], max_tokens: int
) -> None:
    encoded = encode_texts(BARE, Affixes(), examples(*pairs), max_tokens)
    assert [ABC.decode(row) for row in encoded.rows] == [text[:max_tokens] for text, _ in pairs]
    assert encoded.cut == sum(len(text) > max_tokens for text, _ in pairs)


@given(pairs, st.integers(2, 60))
def test_of_two_long_texts_the_longer_one_loses_its_end(
    pairs: list[tuple[str, str]], max_tokens: int
) -> None:
    asked = [Example(text=text, second=second) for text, second in pairs]
    encoded = encode_texts(BARE, Affixes(), asked, max_tokens)
    cut = 0
    for (text, second), row, parts in zip(pairs, encoded.rows, encoded.marks, strict=True):
        one, other = ([i for i, p in zip(row, parts, strict=True) if p == of] for of in (0, 1))
        assert row == [*one, *other]
        assert text.startswith(ABC.decode(one))
        assert f"<sep>{second}".startswith(ABC.decode(other))
        assert len(row) == min(len(text) + 1 + len(second), max_tokens)
        # One that is cut is as long as the other, or longer.
        kept = len(other) - 1
        assert len(one) == len(text) or len(one) >= kept
        assert kept == len(second) or kept >= len(one) - 1
        cut += len(text) + 1 + len(second) > max_tokens
    assert encoded.cut == cut


@given(st.lists(st.lists(words, min_size=1, max_size=4), min_size=1), st.integers(1, 30))
def test_words_end_where_their_last_characters_are(texts: list[list[str]], max_tokens: int) -> None:
    spaced = train_tokenizer(CharactersConfig(), ["abc "])
    asked = [Example(text=" ".join(text)) for text in texts]
    encoded = encode_words(Template(TemplateConfig(), spaced), Affixes(), asked, max_tokens)
    for text, row, ends in zip(texts, encoded.rows, encoded.marks, strict=True):
        whole = " ".join(text)
        assert spaced.decode(row) == whole[:max_tokens]
        last = [len(" ".join(text[: n + 1])) - 1 for n in range(len(text))]
        assert ends == [end for end in last if end < max_tokens]
    assert encoded.cut == sum(len(" ".join(text)) > max_tokens for text in texts)


def test_a_word_that_becomes_nothing_is_named() -> None:
    """BERT's tokenizers leave out characters that aren't seen."""
    native = tokenizers.Tokenizer(models.WordLevel({"□": 0, "⁇": 1, "a": 2, "?": 3}, unk_token="?"))
    native.normalizer, native.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    template = Template(TemplateConfig(), Tokenizer(native, {"pad": "□", "unk": "?"}))
    asked = [Example(text="a \u200b a", where="my.tsv:7")]
    with pytest.raises(UserError, match=r"^my\.tsv:7: the tokenizer makes nothing of the word"):
        encode_words(template, Affixes(), asked, 9)


@given(pairs, st.integers(1, 30))
def test_an_answer_is_kept_whole_or_refused_by_its_line(
    pairs: list[tuple[str, str]], max_tokens: int
) -> None:
    long = [line for line, (_, answer) in enumerate(pairs, start=1) if len(answer) > max_tokens]
    if not long:
        rows = encode_answers(ABC, examples(*pairs), max_tokens)
        assert [ABC.decode(row) for row in rows] == [answer for _, answer in pairs]
        return
    with pytest.raises(
        UserError, match=rf"^my\.tsv:{long[0]}: .* at most {max_tokens} fit; shorten it"
    ):
        encode_answers(ABC, examples(*pairs), max_tokens)


@given(pairs, st.integers(28, 60))
def test_a_text_and_its_answer_fill_the_room_and_one_more_at_most(
    pairs: list[tuple[str, str]], max_tokens: int
) -> None:
    encoded = encode_joined(BARE, examples(*pairs), max_tokens)
    cut = 0
    for (text, answer), (ids, told) in zip(pairs, encoded.pairs, strict=True):
        longest = max_prompt_length(max_tokens, BARE)
        assert ABC.decode(told) == f"<sep>{answer}<sep>"
        assert text.startswith(ABC.decode(ids))
        assert 1 <= len(ids) <= longest
        assert len(ids) + len(told) <= max_tokens + 1
        cut += len(ids) < len(text)
        # Nothing is cut off that fits.
        assert len(ids) == len(text) or len(ids) == min(longest, max_tokens - 1 - len(answer))
    assert encoded.cut == cut


@given(st.lists(st.tuples(words, st.text("abc", max_size=5)), min_size=1), st.integers(24, 60))
def test_before_a_short_answer_a_text_is_cut_as_if_there_were_none(
    pairs: list[tuple[str, str]], max_tokens: int
) -> None:
    """So that it is read in training as it is where its answer isn't known."""
    joined = encode_joined(BARE, examples(*pairs), max_tokens)
    alone = encode_texts(BARE, BARE.prompt, examples(*pairs), max_prompt_length(max_tokens, BARE))
    assert [text for text, _ in joined.pairs] == alone.rows
    assert joined.cut == alone.cut


def test_the_longest_answer_leaves_a_token_of_its_text() -> None:
    (pair,) = encode_joined(BARE, examples(("abc", "a" * 18)), 20).pairs
    assert [len(part) for part in pair] == [1, 20]
    with pytest.raises(UserError, match=r"my\.tsv:1: the answer takes 19 tokens"):
        encode_joined(BARE, examples(("abc", "a" * 19)), 20)


@pytest.mark.parametrize("place", ["text", "answer"])
def test_what_cannot_be_written_is_named_by_its_line(place: str) -> None:
    with pytest.raises(UserError, match=r"^my\.tsv:2: the vocabulary has no 'x'"):
        encode_joined(BARE, examples(("a", "b"), ("x", "b") if place == "text" else ("a", "x")), 20)
