"""Heads as pictures."""

import re
import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch

from regard.explorer.attention_maps import AttentionMap, end_of, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.pictures import draw_map, draw_maps
from regard.models.pattern import LayerConfig
from tiny_models import tiny_model

TOKENS = ("⁇", "</script>", "<b>&", "the", "dog", "ran")


def shown() -> AttentionMap:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    (one,) = gather_maps(capture_attention(tiny_model(n_heads=2), ids), TOKENS, second=3)
    return one


@pytest.fixture(scope="module")
def drawn() -> str:
    return draw_maps(shown(), ".svg").decode()


def test_every_head_is_drawn_with_its_tokens(drawn: str) -> None:
    assert ET.fromstring(drawn).get("aria-label") == "self-attention of 2 × 2 heads"
    for layer in (0, 1):
        for head in (0, 1):
            assert f"layer {layer}, head {head}" in drawn
    assert drawn.count("<image") == 4 + 1, "heads, and the color bar"
    assert {"queries", "keys", "weight"} <= set(re.findall(r">(\w+)</text>", drawn))
    assert drawn.count("&lt;/script&gt;") == 2 + 2, "beside a row, and below a column"
    assert "</script>" not in drawn


def test_layers_may_have_different_numbers_of_heads() -> None:
    model = tiny_model(n_heads=2, pattern=(LayerConfig(n_heads=4), LayerConfig()))
    (one,) = gather_maps(capture_attention(model, torch.tensor([[1, 2, 3, 4, 5, 6]])), TOKENS)
    drawn = draw_maps(one, ".svg").decode()
    assert drawn.count("<image") == 4 + 2 + 1, "heads, and the color bar"
    assert "layer 0, head 3" in drawn
    assert "layer 1, head 1" in drawn
    assert "layer 1, head 2" not in drawn


def test_a_long_token_leaves_space_for_the_weights() -> None:
    long = "Kapitän" * 20
    one = replace(shown(), queries=(long, *TOKENS[1:]), keys=(long, *TOKENS[1:]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_map(one, 0, 0, ".svg").decode()
    assert long not in drawn
    assert drawn.count(f"{long[:23]}…") == 2, "beside a row, and below a column"


def test_uniform_attention_is_visible_and_its_scale_is_named() -> None:
    one = shown()
    uniform = torch.full_like(one.layers[0].record.weights, 0.125)
    layer = replace(one.layers[0], record=replace(one.layers[0].record, weights=uniform))
    drawn = draw_map(replace(one, layers=(layer,)), 0, 0, ".svg").decode()
    assert max(map(float, re.findall(r">(\d\.\d+)</text>", drawn))) <= 0.125


def test_the_same_map_gives_the_same_picture(drawn: str) -> None:
    one = shown()
    assert draw_maps(one, ".svg").decode() == drawn
    assert draw_map(one, 0, 1, ".png") == draw_map(one, 0, 1, ".png")


def test_lines_part_two_texts(drawn: str) -> None:
    alone = draw_maps(replace(shown(), second=None), ".svg").decode()
    assert drawn.count("stroke-dasharray") == alone.count("stroke-dasharray") + 2 * 4


@pytest.mark.parametrize("n", [1, 2, 4, 6, 9])
def test_the_end_of_a_map_is_its_corner(n: int) -> None:
    one, cut = shown(), end_of(shown(), n)
    assert cut.queries == cut.keys == TOKENS[-n:]
    for whole, part in zip(one.layers, cut.layers, strict=True):
        n_kept = min(n, len(TOKENS))
        assert part.record.weights.shape[-2:] == (n_kept, n_kept)
        corner = whole.record.weights[..., -n_kept:, -n_kept:]
        assert torch.equal(part.record.weights, corner)
        assert torch.equal(part.record.value, whole.record.value[:, :, -n_kept:])
    where = {1: None, 2: None, 4: 1, 6: 3, 9: 3}
    assert cut.second == where[n]
