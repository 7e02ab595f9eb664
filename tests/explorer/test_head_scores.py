"""The patterns of all heads of a model."""

import numpy as np
import pytest
import torch

from regard.attention import Softmax
from regard.attention.config import AttentionConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import DeltaNetConfig, RWKV7Config
from regard.explorer import head_scores as scores_module
from regard.explorer.attention_maps import AttentionMap, Layer, gather_maps
from regard.explorer.head_scores import (
    Head,
    draw_head_scores,
    head_scores,
    shares,
    sink_share,
    token_info,
    with_scores,
)
from regard.explorer.intercept import AttentionRecord, capture_attention
from tiny_models import tiny_model

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


def test_a_profile_is_drawn() -> None:
    heads = head_scores([planted(PREVIOUS, FIRST)])
    assert draw_head_scores(heads, ".png").startswith(b"\x89PNG")
    assert draw_head_scores(heads, ".svg").startswith(b"<svg")


def test_columns_are_colored_by_their_own_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are 1 in all heads, such as causal, outshone the others."""
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(scores_module, "heat_map", lambda _, matrix: drawn.append(matrix))
    (one, *_) = head_scores([planted(PREVIOUS, FIRST)])
    scores = {"causal": (1.0, 1.0), "first": (0.2, 0.6), "next": (0.5, 0.52)}
    heads = [one._replace(scores={k: of[i] for k, of in scores.items()}) for i in (0, 1)]
    text = draw_head_scores(heads, ".svg").decode()
    assert drawn[0].tolist() == [[0, 0, 0], [0, 1, pytest.approx(0.2)]]
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
