"""What a page holds is what the heads did, to half a step of a byte."""

from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tiny_views import tiny_view

from regard.attention.recurrent_config import (
    GatedDeltaNet2Config,
    KimiDeltaConfig,
    RecurrentConfig,
)
from regard.errors import UserError
from regard.explorer import page as pages
from regard.explorer.adapters import with_layer_context
from regard.explorer.attention_maps import Panel, choose, gather_maps, parse_index_ranges
from regard.explorer.head_scores import blocks
from regard.explorer.intercept import capture_attention
from regard.explorer.page import pack, page, serialize
from regard.positions.config import AlibiConfig
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


def panel() -> Panel:
    return Panel("tiny", gather_maps(capture_attention(tiny_model(), IDS), TOKENS))


def test_a_page_holds_every_head() -> None:
    shown = panel()
    (written,) = serialize("title", [shown])["panels"][0]["maps"]
    assert written["queries"] == written["keys"] == tuple(TOKENS)
    assert [layer["name"] for layer in written["layers"]] == ["0", "1"]
    for layer, drawn in zip(shown.maps[0].layers, written["layers"], strict=True):
        for weights, head in zip(layer.record.weights[0], drawn["heads"], strict=True):
            assert np.abs(unpacked(head, 8) - weights.numpy()).max() <= 0.5 / 255


def test_exact_steps_are_exact() -> None:
    shown = panel()
    (detail,) = serialize("title", [shown], [(0, 1, 2)])["panels"][0]["details"]
    captured = shown.maps[0].layers[1].record
    read = np.frombuffer(b64decode(detail["q"]), "<f4").reshape(8, -1)
    assert (read == captured.query[0, 2].float().numpy()).all()
    value = np.frombuffer(b64decode(detail["v"]), "<f4").reshape(8, -1)
    found = np.frombuffer(b64decode(detail["output"]), "<f4").reshape(8, -1)
    assert np.abs(captured.weights[0, 2].numpy() @ value - found).max() <= 1e-5
    assert not detail["implied"]
    masked = detail["steps"][-2]
    bits = np.unpackbits(np.frombuffer(b64decode(masked["hidden"]), np.uint8), bitorder="little")
    assert masked["name"] == "masked"
    assert (bits.reshape(8, 8) == ~np.tri(8, dtype=bool)).all()
    last = np.frombuffer(b64decode(detail["steps"][-1]["values"]), "<f4").reshape(8, 8)
    assert (last == captured.weights[0, 2].float().numpy()).all()


@pytest.mark.parametrize("config", [KimiDeltaConfig(), GatedDeltaNet2Config()])
def test_gates_of_each_key_are_exact(config: RecurrentConfig) -> None:
    model = tiny_model(attention=config, n_kv_heads=2)
    shown = Panel("tiny", gather_maps(capture_attention(model, IDS), TOKENS))
    (detail,) = serialize("title", [shown], [(0, 1, 3)])["panels"][0]["details"]
    assert detail["implied"]
    captured = shown.maps[0].layers[1].record
    expected = {name: gate[0, 1].float().numpy() for name, gate in captured.gates.items()}
    expected["decay"] = np.exp(expected.pop("log_decay"))
    read = {one["name"]: np.frombuffer(b64decode(one["values"]), "<f4") for one in detail["gates"]}
    assert read.keys() == expected.keys()
    for name, gate in expected.items():
        np.testing.assert_allclose(read[name], gate.ravel(), rtol=1e-6)


def test_what_is_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--detail of 5 heads"):
        serialize("title", [panel()], [(0, 0, 0)] * 5)
    monkeypatch.setattr(pages, "LARGEST_STEPS", 100)
    with pytest.raises(UserError, match="fewer --detail"):
        serialize("title", [panel()], [(0, 0, 0)])
    monkeypatch.setattr(pages, "LARGEST", 100)
    with pytest.raises(UserError, match="choose some --layers or --heads"):
        serialize("title", [panel()])


def test_of_two_texts_each_block_has_its_share() -> None:
    shown = panel()
    pair = replace(shown.maps[0], second=3)
    written = serialize("title", [Panel("pair", (pair,))])["panels"][0]["maps"][0]
    for layer, drawn in zip(pair.layers, written["layers"], strict=True):
        for weights, head in zip(layer.record.weights[0], drawn["heads"], strict=True):
            assert head["blocks"] == blocks(weights, 3).tolist()
    (alone,) = serialize("title", [shown])["panels"][0]["maps"]
    assert "blocks" not in alone["layers"][0]["heads"][0]


def test_words_are_compared_between_all_sides() -> None:
    panels = [panel(), panel(), Panel("short", (choose(panel().maps[0], [0]),))]
    found = serialize("title", panels, word="4")["words"]
    assert [one["panels"] for one in found] == [[0, 1]], "the third has fewer layers"
    (one,) = found
    assert one["pairs"][0] == (2, 2)
    cosines = np.frombuffer(b64decode(one["cosines"]), "<f4")
    assert cosines.size == len(one["pairs"]) * 2 * 4 * 3
    assert np.abs(cosines[: 2 * 4 * 3] - 1).max() <= 1e-6, "it is the same model on the same text"


def test_positions_are_packed() -> None:
    body = tiny_model(positions=AlibiConfig()).body
    shown = with_layer_context(gather_maps(capture_attention(body, IDS), TOKENS)[0], body)
    (picture,) = serialize("title", [Panel("alibi", (shown,))])["panels"][0]["maps"][0]["positions"]
    assert picture["shape"] == [8, 8]
    far = np.arange(8)
    for slope, panel in zip((1 / 4, 1 / 16, 1 / 64, 1 / 256), picture["matrices"], strict=True):
        bias = -slope * np.abs(far[:, None] - far)
        assert np.abs(unpacked(panel, 8) - bias).max() <= slope * 7 / 255


def test_values_have_their_lengths() -> None:
    body = tiny_model().body
    shown = with_layer_context(gather_maps(capture_attention(body, IDS), TOKENS)[0], body)
    (written,) = serialize("title", [Panel("tiny", (shown,))])["panels"][0]["maps"]
    lengths = shown.layers[1].value_lengths
    assert lengths is not None
    for head, of in zip(written["layers"][1]["heads"], lengths.numpy(), strict=True):
        assert np.abs(unpacked(head["lengths"], 8)[0] - of).max() <= 0.51 * of.max() / 255


def test_a_page_of_twelve_by_twelve_heads_and_all_views_is_below_four_megabytes() -> None:
    """BERT base in shape, with a text of 128 tokens; its layers are one layer, repeated."""
    settings: dict[str, Any] = {"n_layers": 1, "n_heads": 12, "d_model": 768, "context_length": 128}
    body = tiny_model(dtype=torch.float32, **settings).body
    ids = torch.randint(2, 11, (1, 128), generator=torch.Generator().manual_seed(0))
    one = with_layer_context(gather_maps(capture_attention(body, ids), ["word"] * 128)[0], body)
    shown = replace(one, layers=one.layers * 12)
    written = page(serialize("title", [Panel("base", (shown,))], [(0, 0, 0)]))
    assert len(written.encode()) <= 4_000_000


def test_a_page_opens_on_a_view_and_a_head() -> None:
    view = tiny_view().opening("matrix", layer=1, head=2)
    assert view.data["opens"] == {"view": "matrix", "map": 0, "layer": 1, "head": 2}
    exact = tiny_view().opening("step by step", layer=1, head=3)
    assert [(one["layer"], one["head"]) for one in exact.data["panels"][0]["details"]] == [(1, 3)]
    with pytest.raises(UserError, match="matrx: no such view; there are: model"):
        tiny_view().opening("matrx")
    for layer, head in ((9, 0), (0, -1)):
        with pytest.raises(UserError, match=f"layer {layer}, head {head} is not among the heads"):
            tiny_view().opening("matrix", layer=layer, head=head)
    with pytest.raises(UserError, match="word: this view would be empty here"):
        tiny_view().opening("word").embed()
    first, second, third = (tiny_view(tokens) for tokens in (("a", "b"), ("c", "d"), ("c", "e")))
    with pytest.raises(UserError, match="word: this view would be empty here"):
        _ = first.beside(second).beside(third).opening("word").data


# Lists of layers and heads, as people write them

ends = st.integers(0, 9999)


@given(st.lists(st.tuples(ends, st.integers(0, 20)), min_size=1, max_size=5), st.booleans())
def test_what_is_written_is_read(parts: list[tuple[int, int]], spaced: bool) -> None:
    wanted = [(first, min(first + more, 9999)) for first, more in parts]
    text = ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in wanted)
    found = parse_index_ranges("--layers", text.replace(",", " , ") if spaced else text)
    assert found == [i for a, b in wanted for i in range(a, b + 1)]


@pytest.mark.parametrize(
    "text", ["", "x", "2-x", "1,", ",1", "1-2-3", "-1", "4-3", "0,4-3", "1;2", "²", "1-99999999"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"--heads {text}: is not a list of numbers"):
        parse_index_ranges("--heads", text)


def test_a_word_of_one_kind_of_attention_is_enough() -> None:
    (one,) = panel().maps
    names = tuple("abcdefgh"[: len(one.queries)])
    both = Panel("both", (one, replace(one, name="decoder", queries=names, keys=names)))
    found = serialize("title", [both, both], word=TOKENS[4])["words"]
    assert [shown["kinds"] for shown in found] == [[0, 0]]
    with pytest.raises(UserError, match="isn't in"):
        serialize("title", [both, both], word="nowhere")
