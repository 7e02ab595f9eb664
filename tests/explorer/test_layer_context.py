"""What stands around attention: positions as the model has them, and where values go."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.attention import Bias
from regard.attention.config import SoftmaxConfig
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.score_config import DifferentialConfig, GatedSoftmaxConfig
from regard.explorer.adapters import with_layer_context
from regard.explorer.attention_maps import (
    AttentionMap,
    Panel,
    PositionPicture,
    choose,
    gather_maps,
    position_pictures,
)
from regard.explorer.intercept import capture_attention
from regard.explorer.page import serialize
from regard.models.builders import make_model
from regard.models.config import RecurrentEncoderDecoderConfig
from regard.models.head_config import LMHeadConfig
from regard.models.pattern import LayerConfig
from regard.models.transformer import Decoder
from regard.positions import ShawVectors
from regard.positions.config import (
    AlibiConfig,
    LearnedConfig,
    NoPositionsConfig,
    OneHotConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    SinusoidalConfig,
    T5BiasConfig,
)
from tiny_families import FAMILIES
from tiny_models import tiny_model
from tiny_recurrent import TINY, sharp

IDS = torch.tensor([[3, 1, 4, 1, 5, 9]])
N = IDS.shape[1]


def seen(**settings: Any) -> tuple[AttentionMap, Decoder]:
    body = tiny_model(**settings).body
    assert isinstance(body, Decoder)
    (one,) = gather_maps(capture_attention(body, IDS), [str(i) for i in IDS[0].tolist()])
    return with_layer_context(one, body), body


@pytest.mark.parametrize(
    "other",
    [
        LayerConfig(positions=NoPositionsConfig()),
        LayerConfig(positions=RotaryConfig(base=50.0)),
        LayerConfig(n_heads=8, head_dim=2),
    ],
    ids=str,
)
def test_layers_of_different_rotations_have_none_in_common(other: LayerConfig) -> None:
    one, _ = seen(positions=RotaryConfig(), pattern=(LayerConfig(), other))
    assert one.position_info.rotation is None
    (panel,) = serialize("tiny", [Panel("tiny", (one,))], [(0, 1, 0)])["panels"]
    assert panel["details"][0]["before"] == {}


def only(found: list[PositionPicture]) -> tuple[PositionPicture, list[Tensor]]:
    (picture,) = found
    return picture, list(picture.matrices.values())


@pytest.mark.parametrize(
    "positions",
    [
        LearnedConfig(),
        SinusoidalConfig(),
        OneHotConfig(),
        SinusoidalConfig(combine="concatenate", width=4),
    ],
    ids=str,
)
def test_vectors_are_those_of_the_embeddings(positions: Any) -> None:
    one, body = seen(positions=positions)
    picture, (drawn,) = only(position_pictures(one))
    assert body.absolute is not None
    assert_close(drawn, body.absolute(torch.arange(N)))
    assert (picture.rows, picture.columns) == ("position", "dimension")


def test_turns_are_drawn_by_pair() -> None:
    one, _ = seen(positions=RotaryConfig(base=100.0))
    _, (cosines, sines) = only(position_pictures(one))
    angles = torch.outer(torch.arange(N).double(), 100.0 ** (-torch.arange(0, 4, 2).double() / 4))
    assert_close(cosines, angles.cos().float())
    assert_close(sines, angles.sin().float())
    assert one.position_info.vectors is None


@pytest.mark.parametrize(
    "positions", [AlibiConfig(), T5BiasConfig(), RelativeBiasConfig()], ids=str
)
def test_a_bias_is_drawn_once_for_all_layers_with_the_heads_that_are_shown(positions: Any) -> None:
    one, body = seen(positions=positions)
    picture, drawn = only(position_pictures(choose(one, heads=[2, 0])))
    assert list(picture.matrices) == ["head 2", "head 0"]
    bias = body.bias
    assert isinstance(bias, Bias)
    with torch.no_grad():
        added = bias.dense(torch.arange(N), torch.arange(N))
    assert_close(torch.stack(drawn), added[[2, 0]])


def test_vectors_of_distances_are_drawn_from_the_farthest_behind() -> None:
    one, body = seen(positions=ShawVectorsConfig(clip=3))
    picture, (keys, values) = only(position_pictures(one))
    assert picture.first == -3
    assert isinstance(body.bias, ShawVectors)
    assert torch.equal(keys, body.bias.keys)
    assert torch.equal(values, body.bias.values)


def test_without_positions_there_is_nothing_to_draw() -> None:
    one, _ = seen(positions=NoPositionsConfig())
    assert position_pictures(one) == []


def test_a_model_with_two_stacks_has_the_positions_of_each() -> None:
    body = sharp(make_model(FAMILIES["encoder-decoder"], LMHeadConfig(), 11)).body
    captured = capture_attention(body, IDS, torch.tensor([N]), IDS[:, :4])
    maps = gather_maps(captured, ["source"] * N, ["target"] * 4)
    for one in (with_layer_context(one, body) for one in maps):
        if one.name == "decoder to source":
            assert position_pictures(one) == []
        else:
            stack = getattr(body, one.name)
            assert (one.position_info.vectors is None) == (stack.absolute is None)
            assert (one.position_info.rotation is None) == (not stack.rotary)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"n_kv_heads": 2}])
def test_values_add_their_lengths_to_the_output(settings: dict[str, int]) -> None:
    one, body = seen(**settings)
    for layer, real in zip(one.layers, body._layers(), strict=True):
        lengths = layer.value_lengths
        assert lengths is not None
        value = layer.record.value[0]
        project = real.self_attention.o_proj.weight
        for head in range(4):
            part = project[:, 4 * head : 4 * (head + 1)]
            moved = value[head // (4 // len(value))] @ part.mT
            assert_close(lengths[head], moved.norm(dim=-1))


def test_of_other_models_less_is_known() -> None:
    config = RecurrentEncoderDecoderConfig(**TINY, attention=SoftmaxConfig())
    body = sharp(make_model(config, LMHeadConfig(), 11)).body
    captured = capture_attention(body, IDS, torch.tensor([N]), IDS[:, :4])
    (one,) = gather_maps(captured, ["source"] * N, ["target"] * 4)
    found = with_layer_context(one, body)
    assert position_pictures(found) == []
    assert found.layers[0].value_lengths is None


@pytest.mark.parametrize(
    ("attention", "known"),
    [
        (GatedDeltaNetConfig(), False),
        (GatedSoftmaxConfig(), False),
        (DifferentialConfig(version=1), False),
        (DifferentialConfig(), True),
    ],
)
def test_outputs_that_are_normalized_or_gated_have_no_lengths(attention: Any, known: bool) -> None:
    one, _ = seen(attention=attention)
    assert [layer.value_lengths is not None for layer in one.layers] == [known] * 2
