"""Patterns, on matrices in which they were planted."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import Softmax
from regard.explorer.attention_maps import value_lengths
from regard.explorer.from_tensors import look_at_attention
from regard.explorer.head_scores import (
    TokenInfo,
    after_same_token,
    at_distance,
    blocks,
    distance,
    entropy,
    most_selective,
    patterns,
    repeated,
    same_token,
    sink,
)

N = 6
TEXT = TokenInfo(
    ids=torch.tensor([1, 5, 7, 5, 7, 2]),
    separators=torch.tensor([False, False, False, False, False, True]),
    punctuation=torch.tensor([False, False, True, False, True, False]),
)


ATTENDED = {
    "itself": range(N),
    "the one before": [0, 0, 1, 2, 3, 4],
    "the first": [0] * N,
    "a separator": [5] * N,
    "the same word": [3] * N,
    "words": [3, 4, 4, 1, 1, 2],
}
"""Heads, and the key of each query."""


def pointing(to: list[int]) -> Tensor:
    """A head whose query i gives all its weight to key to[i]."""
    return torch.eye(len(to), dtype=torch.float64)[to]


def test_the_most_selective_head_attends_to_words_apart_from_its_neighbors() -> None:
    eye = 100 * torch.eye(N)
    query = torch.stack([eye[list(keys)] for keys in ATTENDED.values()])[None]
    names = ["<bos>", "a", ",", "a", ".", "<sep>"]
    key = torch.eye(N).expand_as(query)
    view = look_at_attention(Softmax(), query, key, key, title="", queries=names, keys=names)
    chosen = list(ATTENDED).index("words")
    assert most_selective(view.panels[0].maps[0]) == (0, chosen)
    assert view.opened == ("matrix", (0, 0, chosen))
    (detail,) = view.data["panels"][0]["details"]
    assert (detail["layer"], detail["head"]) == (0, chosen)
    # Heads are counted as they are shown.
    assert view.only(heads=[0, chosen]).opened == ("matrix", (0, 0, 1))


def found(weights: Tensor) -> dict[str, float]:
    return {name: float(score) for name, score in patterns(weights, TEXT).items()}


def test_a_head_that_looks_back_by_one() -> None:
    scores = found(pointing([0, 0, 1, 2, 3, 4]))
    assert scores["previous"] == 1
    assert scores["causal"] == 1
    assert scores["next"] == 0
    assert scores["self"] == pytest.approx(1 / N)
    assert scores["first"] == pytest.approx(2 / N)


def test_a_head_that_looks_ahead_at_itself_and_at_the_first() -> None:
    assert found(pointing([1, 2, 3, 4, 5, 5]))["next"] == 1
    assert found(pointing([0, 1, 2, 3, 4, 5]))["self"] == 1
    assert found(pointing([0] * N))["first"] == 1


def test_heads_that_look_at_kinds_of_tokens() -> None:
    assert found(pointing([5] * N))["separators"] == 1
    assert found(pointing([2, 4, 2, 4, 2, 4]))["punctuation"] == 1
    # 5 stands at 1 and 3, 7 at 2 and 4; the others have no twin.
    assert found(pointing([0, 3, 4, 1, 2, 0]))["same token"] == pytest.approx(4 / N)
    # After the earlier 5 came 7, after the earlier 7 came 5.
    assert found(pointing([0, 0, 0, 2, 3, 0]))["induction"] == pytest.approx(2 / N)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_places_of_tokens_by_their_definition(ids: list[int]) -> None:
    same, after = same_token(torch.tensor(ids)), after_same_token(torch.tensor(ids))
    for i, query in enumerate(ids):
        for j, key in enumerate(ids):
            assert same[i, j] == (i != j and query == key)
            assert after[i, j] == (0 < j < i and ids[j - 1] == query)


def test_a_text_twice() -> None:
    half = 4
    copies = torch.zeros(2, 2 * half, 2 * half)
    for i in range(half, 2 * half):
        copies[0, i, i - half] = 1
        copies[1, i, i - half + 1] = 1
    scores = repeated(copies)
    assert scores["duplicate"].tolist() == [1, 0]
    assert scores["induction"].tolist() == [0, 1]


def test_a_sink_gets_the_weight_of_all_behind_it() -> None:
    weights = pointing([0, 0, 2, 2, 2, 2])
    assert sink(weights) == pytest.approx(2 / N)
    assert sink(weights, key=2) == 1


@given(st.integers(2, 12))
def test_equal_weights_are_uniform(n: int) -> None:
    assert entropy(torch.full((n, n), 1 / n, dtype=torch.float64), causal=False) == pytest.approx(1)
    seen = torch.ones(n, n, dtype=torch.float64).tril()
    assert entropy(seen / seen.sum(-1, keepdim=True), causal=True) == pytest.approx(1)
    assert entropy(torch.eye(n, dtype=torch.float64), causal=False) == 0
    half = torch.zeros(n, n, dtype=torch.float64)
    half[:, :2] = 0.5
    assert entropy(half, causal=False) == pytest.approx(math.log(2) / math.log(n))


def test_how_far_a_head_looks() -> None:
    assert distance(pointing([0, 1, 2])) == 0
    assert distance(pointing([2, 1, 0])) == pytest.approx(4 / 3)
    assert at_distance(torch.ones(1, 1), -1) == 0, "no query has such a key"


def test_value_norms_are_those_of_what_is_added() -> None:
    draw = torch.Generator().manual_seed(0)
    heads, n, d, width = 3, 5, 4, 12
    weights = torch.rand(heads, n, n, generator=draw, dtype=torch.float64)
    values = torch.randn(heads, n, d, generator=draw, dtype=torch.float64)
    projection = torch.randn(width, heads * d, generator=draw, dtype=torch.float64)
    norms = weights * value_lengths(values, projection)[:, None]
    for h in range(heads):
        alone = torch.zeros(heads * d, dtype=torch.float64)
        alone[h * d : (h + 1) * d] = weights[h, 1, 2] * values[h, 2]
        assert norms[h, 1, 2] == pytest.approx(float((projection @ alone).norm()))


def test_texts_look_at_themselves_or_at_one_another() -> None:
    """Two tokens, then four; the first text looks at the second, which looks at both alike."""
    weights = pointing([2, 3, 0, 1, 4, 5])
    assert blocks(weights, 2).tolist() == [[0, 1], [0.5, 0.5]]


@given(st.integers(2, 8), st.data())
def test_what_a_text_gives_is_shared_out(n: int, data: st.DataObject) -> None:
    second = data.draw(st.integers(1, n - 1))
    draw = torch.Generator().manual_seed(n)
    weights = torch.rand(3, n, n, generator=draw, dtype=torch.float64).softmax(-1)
    shares = blocks(weights, second)
    torch.testing.assert_close(shares.sum(-1), torch.ones(3, 2, dtype=torch.float64))
    torch.testing.assert_close(shares[:, 1, 0], weights[:, second:, :second].sum(-1).mean(-1))
