"""What a page holds is what the heads did, to half a step of a byte."""

from base64 import b64decode
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from regard.errors import UserError
from regard.explorer import payload as payloads
from regard.explorer.capture import capture_attention
from regard.explorer.maps import Side, choose, gather_maps
from regard.explorer.payload import pack, payload
from tiny_models import tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
TOKENS = [str(i) for i in IDS[0].tolist()]


def unpacked(head: dict[str, Any], columns: int) -> np.ndarray:
    """As the page's module does it."""
    scales = np.frombuffer(b64decode(head["scales"]), "<f4").reshape(-1, 2)
    values = np.frombuffer(b64decode(head["values"]), np.uint8).reshape(-1, columns)
    weights: np.ndarray = scales[:, :1] + (scales[:, 1:] - scales[:, :1]) / 255 * values
    return weights


@settings(max_examples=50)
@given(arrays(np.float32, (4, 5), elements=st.floats(-2, 2, width=32)))
def test_a_packed_matrix_is_off_by_half_a_step_at_most(weights: np.ndarray) -> None:
    step = (weights.max(1) - np.minimum(weights.min(1), 0)).clip(0) / 255
    off = np.abs(unpacked(pack(weights), 5) - weights).max(1)
    assert (off <= 0.5 * step + 1e-6).all()


def test_zero_stays_zero() -> None:
    weights = np.tril(np.full((5, 5), 0.3, dtype=np.float32))
    assert (unpacked(pack(weights), 5)[weights == 0] == 0).all()


def side() -> Side:
    return Side("tiny", gather_maps(capture_attention(tiny_model(), IDS), TOKENS))


def test_a_page_holds_every_head() -> None:
    shown = side()
    (written,) = payload("title", [shown])["sides"][0]["maps"]
    assert written["queries"] == written["keys"] == tuple(TOKENS)
    assert [layer["name"] for layer in written["layers"]] == ["1", "2"]
    for layer, drawn in zip(shown.maps[0].layers, written["layers"], strict=True):
        for weights, head in zip(layer.captured.weights[0], drawn["heads"], strict=True):
            assert np.abs(unpacked(head, 8) - weights.numpy()).max() <= 0.5 / 255


def test_exact_steps_are_exact() -> None:
    shown = side()
    (detail,) = payload("title", [shown], [(0, 1, 2)])["sides"][0]["details"]
    captured = shown.maps[0].layers[1].captured
    read = np.frombuffer(b64decode(detail["q"]), "<f4").reshape(8, -1)
    assert (read == captured.query[0, 2].float().numpy()).all()
    last = np.frombuffer(b64decode(detail["steps"][-1]["values"]), "<f4").reshape(8, 8)
    assert (last == captured.weights[0, 2].float().numpy()).all()


def test_layers_and_heads_are_chosen() -> None:
    shown = side()
    chosen = Side("tiny", tuple(choose(one, [1], [3, 0]) for one in shown.maps))
    (layer,) = payload("title", [chosen])["sides"][0]["maps"][0]["layers"]
    assert layer["name"] == "2"
    assert [head["name"] for head in layer["heads"]] == ["4", "1"]
    for layers, heads in (([2], None), (None, [4])):
        with pytest.raises(UserError, match="choose others"):
            choose(shown.maps[0], layers, heads)


def test_what_is_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="exact steps of 5 heads"):
        payload("title", [side()], [(0, 0, 0)] * 5)
    monkeypatch.setattr(payloads, "LARGEST_STEPS", 100)
    with pytest.raises(UserError, match="fewer --steps"):
        payload("title", [side()], [(0, 0, 0)])
    monkeypatch.setattr(payloads, "LARGEST", 100)
    with pytest.raises(UserError, match="choose some --layers or --heads"):
        payload("title", [side()])


def test_twelve_by_twelve_heads_of_128_tokens_are_below_four_megabytes() -> None:
    text = str(pack(np.random.default_rng(0).dirichlet(np.ones(128), 128).astype(np.float32)))
    assert 144 * len(text) <= 4_000_000
