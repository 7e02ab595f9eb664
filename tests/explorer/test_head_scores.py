"""Scores of heads, on matrices in which patterns were planted, and of all heads of a model."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard import drawing
from regard.attention import Softmax
from regard.attention.config import AttentionConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import DeltaNetConfig, RWKV7Config
from regard.explorer.attention_maps import AttentionMap, Layer, gather_maps
from regard.explorer.from_tensors import look_at_attention
from regard.explorer.head_scores import (
    Head,
    TokenInfo,
    after_same_token,
    at_distance,
    blocks,
    distance,
    draw_head_scores,
    entropy,
    head_scores,
    most_selective,
    patterns,
    repeated,
    same_token,
    shares,
    sink,
    sink_share,
    token_info,
    with_scores,
)
from regard.explorer.intercept import AttentionRecord, capture_attention
from tiny_models import tiny_model

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


SCORES: list[tuple[list[int], dict[str, float]]] = [
    (
        [0, 0, 1, 2, 3, 4],
        {"previous": 1, "causal": 1, "next": 0, "self": 1 / N, "first": 2 / N},
    ),
    ([1, 2, 3, 4, 5, 5], {"next": 1}),
    ([0, 1, 2, 3, 4, 5], {"self": 1}),
    ([0] * N, {"first": 1}),
    ([5] * N, {"separators": 1}),
    ([2, 4, 2, 4, 2, 4], {"punctuation": 1}),
    # 5 stands at 1 and 3, 7 at 2 and 4; the others have no twin.
    ([0, 3, 4, 1, 2, 0], {"same token": 4 / N}),
    # After the earlier 5 came 7, after the earlier 7 came 5.
    ([0, 0, 0, 2, 3, 0], {"induction": 2 / N}),
]
"""The key of each query, and scores of such a head."""


def test_patterns_are_shares_of_weight() -> None:
    for keys, expected in SCORES:
        found = patterns(pointing(keys), TEXT)
        assert {name: float(found[name]) for name in expected} == pytest.approx(expected)


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


@pytest.mark.parametrize("size", [0, 0.03, 4])
def test_a_causal_head_is_one_whatever_its_weights_add_up_to(size: float) -> None:
    """Those of sigmoid attention give any sum, and a token may attend to nothing."""
    assert patterns(size * pointing([0, 0, 1, 2, 3, 4]), TEXT)["causal"] == 1
    half = size * pointing([1, 2, 3, 3, 4, 5])
    assert patterns(half, TEXT)["causal"] == (0.5 if size else 1)


def test_a_sink_gets_the_weight_of_all_behind_it() -> None:
    weights = pointing([0, 0, 2, 2, 2, 2])
    assert sink(weights) == pytest.approx(2 / N)
    assert sink(weights, key=2) == 1


def test_a_token_that_attends_to_nothing_has_no_distance() -> None:
    assert distance(torch.zeros(1, 1, 1)) == 0  # the first token of stick-breaking attention


@given(st.integers(2, 12))
def test_equal_weights_are_uniform(n: int) -> None:
    assert entropy(torch.full((n, n), 1 / n, dtype=torch.float64), causal=False) == pytest.approx(1)
    seen = torch.ones(n, n, dtype=torch.float64).tril()
    assert entropy(seen / seen.sum(-1, keepdim=True), causal=True) == pytest.approx(1)
    assert entropy(torch.eye(n, dtype=torch.float64), causal=False) == 0
    half = torch.zeros(n, n, dtype=torch.float64)
    half[:, :2] = 0.5
    assert entropy(half, causal=False) == pytest.approx(math.log(2) / math.log(n))
    assert entropy(half / 100, causal=False) == pytest.approx(math.log(2) / math.log(n))


def test_how_far_a_head_looks() -> None:
    assert distance(pointing([0, 1, 2])) == 0
    assert distance(pointing([2, 1, 0])) == pytest.approx(4 / 3)
    assert at_distance(torch.ones(1, 1), -1) == 0, "no query has such a key"


@given(st.integers(2, 8), st.data())
def test_what_a_text_gives_is_shared_out(n: int, data: st.DataObject) -> None:
    second = data.draw(st.integers(1, n - 1))
    draw = torch.Generator().manual_seed(n)
    weights = torch.rand(3, n, n, generator=draw, dtype=torch.float64).softmax(-1)
    shares = blocks(weights, second)
    torch.testing.assert_close(shares.sum(-1), torch.ones(3, 2, dtype=torch.float64))
    for i, queries in enumerate((slice(second), slice(second, n))):
        to_first = weights[:, queries, :second].sum(-1).mean(-1)
        torch.testing.assert_close(shares[:, i, 0], to_first)


# All heads of a model

TOKENS = ("⁇", "the", "dog", ",", "the", "cat")


def planted(*heads: list[int], value: float = 0.0) -> AttentionMap:
    """A layer whose heads each give all the weight of query i to one key."""
    n = len(TOKENS)
    weights = torch.stack([torch.eye(n)[to] for to in heads])[None]
    nothing = torch.zeros(1, len(heads), n, 4)
    captured = AttentionRecord(
        layer="layers.0.attention",
        mechanism=Softmax(),
        query=nothing,
        key=nothing,
        value=nothing + value,
        out=nothing,
        mask=None,
        bias=None,
        gates={},
        weights=weights,
    )
    projection = torch.ones(1, 4 * len(heads))
    layer = Layer("0", captured, tuple(range(len(heads))), projection)
    return AttentionMap("self-attention", TOKENS, TOKENS, (layer,))


PREVIOUS, FIRST, COMMA, SPREAD = [0, 0, 1, 2, 3, 4], [0] * 6, [3] * 6, [0, 1, 0, 3, 1, 5]


def test_heads_are_named_by_what_they_look_at() -> None:
    heads = head_scores([planted(PREVIOUS, FIRST, COMMA, SPREAD)])
    assert [head.head for head in heads] == [0, 1, 2, 3]
    assert [head.pattern for head in heads] == ["previous", "first", "punctuation", "self"]
    assert sink_share(heads) == 0.75, "two of six weights are more than 0.3"


def test_texts_are_averaged() -> None:
    (head,) = head_scores([planted(PREVIOUS), planted(FIRST)])
    assert head.scores["previous"] == pytest.approx((1 + 1 / 5) / 2)
    assert head.scores["first"] == pytest.approx((2 / 6 + 1) / 2)
    assert Head("0", 0, dict.fromkeys(head.scores, 0.4)).pattern == "mixed"
    with pytest.raises(ValueError, match="at least one text"):
        head_scores([])


def test_tokens_are_sorted_into_kinds() -> None:
    read = token_info(TOKENS)
    assert read.ids.tolist() == [0, 1, 2, 3, 1, 4]
    assert read.separators.tolist() == [True, False, False, False, False, False]
    assert read.punctuation.tolist() == [False, False, False, True, False, False]


def test_columns_are_colored_by_their_own_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are 1 in all heads, such as causal, outshone the others."""
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(drawing, "heat_map", lambda _, matrix: drawn.append(matrix))
    (one, *_) = head_scores([planted(PREVIOUS, FIRST)])
    scores = {"causal": (1.0, 1.0), "first": (0.2, 0.6), "next": (0.5, 0.52)}
    heads = [one._replace(scores={k: of[i] for k, of in scores.items()}) for i in (0, 1)]
    assert draw_head_scores(heads, ".png").startswith(b"\x89PNG")
    text = draw_head_scores(heads, ".svg").decode()
    assert drawn[1].tolist() == [[0, 0, 0], [0, 1, pytest.approx(0.2)]]
    for shown in ("1.00 to 1.00", "0.20 to 0.60", "0.50 to 0.52"):
        assert shown in text


def test_a_norm_is_what_a_query_gets() -> None:
    """Each query gives all its weight to a value that adds 4 · 2 to an output of width 1."""
    heads = head_scores([planted(PREVIOUS, FIRST, value=2.0)])
    assert [head.scores["norm"] for head in heads] == [8, 8]


def test_further_scores_are_joined_in_the_order_of_heads() -> None:
    heads = with_scores(
        head_scores([planted(PREVIOUS, FIRST)]), {"gradient": torch.tensor([0.5, 3.0])}
    )
    assert [head.scores["gradient"] for head in heads] == [0.5, 3.0]
    assert [head.pattern for head in heads] == ["previous", "first"]
    assert draw_head_scores(heads, ".svg").count(b"gradient") == 0, "no share"


@pytest.mark.parametrize("config", [EluConfig(), DeltaNetConfig(), RWKV7Config()])
def test_scores_of_implied_weights_are_shares(config: AttentionConfig) -> None:
    model = tiny_model(attention=config)
    maps = gather_maps(capture_attention(model, torch.arange(8)[None]), list("abcdefgh"))
    for layer in maps[0].layers:
        found = shares(layer.record)
        assert float(found.min()) >= 0
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    for head in head_scores(maps):
        assert 0 <= head.scores["entropy"] <= 1
        assert 0 <= head.scores["sink"] <= 1
