"""One word in two contexts: what is compared is what the layers computed."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.errors import UserError
from regard.explorer import token_comparison
from regard.explorer.attention_maps import AttentionMap, choose, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.token_comparison import (
    TokenComparison,
    compare_tokens,
    find_token,
    shared_tokens,
)
from regard.positions.config import RotaryConfig
from tiny_models import tiny_model

PLAY, OTHER = (3, 1, 4, 1, 5), (2, 7, 4, 8)
"""Both have the token 4, in the middle."""


def read(ids: tuple[int, ...], *, seed: int = 0, **settings: Any) -> AttentionMap:
    model = tiny_model(seed=seed, positions=RotaryConfig(), n_kv_heads=2, **settings)
    (one,) = gather_maps(capture_attention(model, torch.tensor([ids])), [str(i) for i in ids])
    return one


def compared(first: AttentionMap, second: AttentionMap, word: str | None = None) -> TokenComparison:
    found = compare_tokens(first, second, word)
    assert found is not None
    return found


def test_cosines_and_distances_are_those_of_queries_keys_and_values() -> None:
    first, second = read(PLAY), read(OTHER)
    found = compared(first, second)
    assert found.pairs == ((2, 2),)
    for layer, (one, other) in enumerate(zip(first.layers, second.layers, strict=True)):
        for h, (part, name) in product(range(4), enumerate(("query", "key", "value"))):
            of_head = h if name == "query" else h // 2
            mine, its = (getattr(x.record, name)[0, of_head, 2] for x in (one, other))
            cosine = mine @ its / (mine.norm() * its.norm())
            assert_close(found.cosines[0, layer, h, part], cosine)
            assert_close(found.distances[0, layer, h, part], (mine - its).norm())
            assert_close(found.vectors[0][part][layer, h], mine)
            assert_close(found.vectors[1][part][layer, h], its)


def test_a_text_beside_itself_is_the_same_everywhere() -> None:
    one = read(PLAY)
    found = compared(one, one)
    same = [place for place, (i, j) in enumerate(found.pairs) if i == j]
    assert_close(found.cosines[same], torch.ones_like(found.cosines[same]))
    assert (found.distances[same] == 0).all()
    apart = [place for place, (i, j) in enumerate(found.pairs) if i != j]
    assert (found.distances[apart][..., 0] > 0).all(), "a query is turned to its position"


def test_only_the_heads_that_are_shown_are_compared() -> None:
    first, second = (choose(one, [1], [3, 0]) for one in (read(PLAY), read(OTHER)))
    whole = compared(read(PLAY), read(OTHER))
    assert_close(compared(first, second).cosines, whole.cosines[:, 1:, [3, 0]])


@pytest.mark.parametrize("settings", [{"n_layers": 1}, {"d_model": 8}, {"n_heads": 2}])
def test_models_of_other_sizes_and_other_words_are_not_compared(settings: dict[str, int]) -> None:
    assert compare_tokens(read(PLAY), read(OTHER, **settings)) is None
    assert compare_tokens(read(PLAY), read((2, 7, 8))) is None


texts = st.lists(st.sampled_from(["a", " a", "A", "b", "⁇", " "]), max_size=5)


@given(texts, texts)
def test_pairs_are_all_places_of_the_same_word(first: list[str], second: list[str]) -> None:
    pairs = shared_tokens(first, second, None)
    same = {"a": "a", " a": "a", "A": "a"}
    assert sorted(pairs) == [
        (i, j)
        for i, one in enumerate(first)
        for j, other in enumerate(second)
        if same.get(one, one) == same.get(other, other)
    ]
    if any(first[i].strip().isalnum() for i, _ in pairs):
        assert first[pairs[0][0]].strip().isalnum(), "a word, if there is one"


def test_the_chosen_word_comes_first() -> None:
    first, second = ("⁇", " the", " play"), ("⁇", " a", " play", " the")
    assert shared_tokens(first, second, None)[0] == (1, 3)
    assert shared_tokens(first, second, "Play")[0] == (2, 2)


@given(st.text("abc ", min_size=1, max_size=12), st.integers(0, 11), st.integers(1, 4))
def test_a_word_of_many_tokens_is_found_where_it_ends(text: str, start: int, size: int) -> None:
    word = text[start : start + size]
    if not word.strip() or len(word.strip()) == 1:
        return
    at = find_token(list(text), word)
    plain = word.strip()
    assert text[: at + 1].endswith(plain)
    assert text.find(plain) + len(plain) == at + 1


def test_a_word_that_is_not_there_is_refused() -> None:
    for word in ("cat", " ", ""):
        with pytest.raises(UserError, match=rf"the word “{word}” isn't in “the dog”"):
            find_token(["the", " dog"], word)
    with pytest.raises(UserError, match="the word “9”"):
        compare_tokens(read(PLAY), read(OTHER), "9")


def test_a_page_has_room_for_some_words(monkeypatch: pytest.MonkeyPatch) -> None:
    one = read(PLAY)
    monkeypatch.setattr(token_comparison, "LARGEST", 32 * 8 * 3)
    assert len(compared(one, one).pairs) == 3
    monkeypatch.setattr(token_comparison, "LARGEST", 0)
    assert len(compared(one, one).pairs) == 1
