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
    text_room,
)
from regard.tasks.examples import Example
from regard.text.tokenizer import Characters, ForeignPieces

ABC = Characters.train(["abc"])
words = st.text("abc", min_size=1, max_size=24)
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=5)


def asked(pairs: list[tuple[str, str]]) -> list[Example]:
    return [
        Example(text=text, answer=answer, where=f"my.tsv:{line}")
        for line, (text, answer) in enumerate(pairs, start=1)
    ]


@given(pairs, st.integers(1, 30))
def test_long_texts_lose_their_ends_and_are_counted(
    pairs: list[tuple[str, str]], room: int
) -> None:
    encoded = encode_texts(ABC, asked(pairs), room)
    assert [ABC.decode(row) for row in encoded.rows] == [text[:room] for text, _ in pairs]
    assert encoded.cut == sum(len(text) > room for text, _ in pairs)


@given(pairs, st.integers(2, 60))
def test_of_two_long_texts_the_longer_one_loses_its_end(
    pairs: list[tuple[str, str]], room: int
) -> None:
    asked = [Example(text=text, second=second) for text, second in pairs]
    encoded = encode_texts(ABC, asked, room)
    cut = 0
    for (text, second), row, parts in zip(pairs, encoded.rows, encoded.segments, strict=True):
        one, other = ([i for i, p in zip(row, parts, strict=True) if p == of] for of in (0, 1))
        assert row == [*one, *other]
        assert text.startswith(ABC.decode(one))
        assert f"⁇{second}".startswith(ABC.decode(other))
        assert len(row) == min(len(text) + 1 + len(second), room)
        # One that is cut is as long as the other, or longer.
        assert len(one) == len(text) or len(one) >= len(other)
        assert len(other) == 1 + len(second) or len(other) >= len(one) - 1
        cut += len(text) + 1 + len(second) > room
    assert encoded.cut == cut


@given(st.lists(st.lists(words, min_size=1, max_size=4), min_size=1), st.integers(1, 30))
def test_words_end_where_their_last_characters_are(texts: list[list[str]], room: int) -> None:
    spaced = Characters.train(["abc "])
    encoded = encode_words(spaced, [Example(text=" ".join(text)) for text in texts], room)
    for text, row, ends in zip(texts, encoded.rows, encoded.ends, strict=True):
        whole = " ".join(text)
        assert spaced.decode(row) == whole[:room]
        last = [len(" ".join(text[: n + 1])) - 1 for n in range(len(text))]
        assert ends == [end for end in last if end < room]
    assert encoded.cut == sum(len(" ".join(text)) > room for text in texts)


def test_a_word_that_becomes_nothing_is_named() -> None:
    """BERT's tokenizers leave out characters that aren't seen."""
    pieces = tokenizers.Tokenizer(models.WordLevel({"□": 0, "⁇": 1, "a": 2, "?": 3}, unk_token="?"))
    pieces.normalizer, pieces.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    asked = [Example(text="a \u200b a", where="my.tsv:7")]
    with pytest.raises(UserError, match=r"^my\.tsv:7: the tokenizer makes nothing of the word"):
        encode_words(ForeignPieces(pieces), asked, 9)


@given(pairs, st.integers(1, 30))
def test_an_answer_is_kept_whole_or_refused_by_its_line(
    pairs: list[tuple[str, str]], room: int
) -> None:
    long = [line for line, (_, answer) in enumerate(pairs, start=1) if len(answer) > room]
    if not long:
        rows = encode_answers(ABC, asked(pairs), room)
        assert [ABC.decode(row) for row in rows] == [answer for _, answer in pairs]
        return
    with pytest.raises(UserError, match=rf"^my\.tsv:{long[0]}: .* room for {room}; shorten it"):
        encode_answers(ABC, asked(pairs), room)


@given(pairs, st.integers(28, 60))
def test_a_text_and_its_answer_fill_the_room_and_one_more_at_most(
    pairs: list[tuple[str, str]], room: int
) -> None:
    encoded = encode_joined(ABC, asked(pairs), room)
    cut = 0
    for (text, answer), (ids, told) in zip(pairs, encoded.pairs, strict=True):
        assert ABC.decode(told) == answer
        assert text.startswith(ABC.decode(ids))
        assert 1 <= len(ids) <= text_room(room)
        assert len(ids) + 1 + len(told) + 1 <= room + 1
        cut += len(ids) < len(text)
        # Nothing is cut off that there was room for.
        assert len(ids) == len(text) or len(ids) == min(text_room(room), room - 1 - len(answer))
    assert encoded.cut == cut


@given(st.lists(st.tuples(words, st.text("abc", max_size=5)), min_size=1), st.integers(24, 60))
def test_before_a_short_answer_a_text_is_cut_as_if_there_were_none(
    pairs: list[tuple[str, str]], room: int
) -> None:
    """So that it is read in training as it is where its answer isn't known."""
    joined = encode_joined(ABC, asked(pairs), room)
    alone = encode_texts(ABC, asked(pairs), text_room(room))
    assert [text for text, _ in joined.pairs] == alone.rows
    assert joined.cut == alone.cut


def test_the_longest_answer_leaves_a_token_of_its_text() -> None:
    (pair,) = encode_joined(ABC, asked([("abc", "a" * 18)]), 20).pairs
    assert [len(part) for part in pair] == [1, 18]
    with pytest.raises(UserError, match=r"my\.tsv:1: the answer takes 19 tokens"):
        encode_joined(ABC, asked([("abc", "a" * 19)]), 20)


@pytest.mark.parametrize("place", ["text", "answer"])
def test_what_cannot_be_written_is_named_by_its_line(place: str) -> None:
    with pytest.raises(UserError, match=r"^my\.tsv:2: the vocabulary has no 'x'"):
        encode_joined(ABC, asked([("a", "b"), ("x", "b") if place == "text" else ("a", "x")]), 20)
