"""Synthesizer: scores that are learned, from each token or from none."""

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from attention_cases import CONTRACT_DTYPES
from torch.autograd.gradcheck import gradcheck

from regard.attention import Attention, LayerShape, Mask, Synthesizer
from regard.attention.config import CHECKED_SHAPE
from regard.attention.contract import check
from regard.attention.registry import Mechanism, find
from regard.attention.score_config import SynthesizerConfig
from regard.errors import UnsupportedError
from regard.explorer.intercept import capture_attention, score_steps
from regard.models.pattern import LayerConfig
from regard.positions.config import RotaryConfig
from tiny_models import BLOCK, VOCABULARY, tiny_model
from tiny_recurrent import close

Variant = Literal["dense", "random"]
VARIANTS: tuple[Variant, ...] = ("dense", "random")
IDS = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))


def drawn(variant: Variant, shape: LayerShape = CHECKED_SHAPE) -> Synthesizer:
    """One whose parameters are large, so that scores matter."""
    attend = SynthesizerConfig(variant=variant).build(shape)
    assert isinstance(attend, Synthesizer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in attend.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return attend


def known(variant: Variant) -> Mechanism:
    def example(shape: LayerShape = CHECKED_SHAPE) -> Attention:
        return drawn(variant, shape)

    return replace(find("synthesizer"), example=example)


@CONTRACT_DTYPES
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_variants_keep_the_contract(variant: Variant, dtype: torch.dtype) -> None:
    outcomes = list(check(known(variant), dtype=dtype, backend="eager"))
    assert len(outcomes) > 150
    assert [outcome for outcome in outcomes if outcome.failure] == []


def test_the_gradient_is_that_of_the_output_where_no_channel_is_zero() -> None:
    attend = drawn("dense").double()
    inputs = [torch.randn(1, 4, 5, d, dtype=torch.float64, requires_grad=True) for d in (4, 3)]

    def run(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = attend(query, query[..., :0], value, mask=Mask.causal())
        return out

    assert gradcheck(run, inputs)


def test_a_longer_text_than_that_of_its_columns_is_refused() -> None:
    attend, x = drawn("dense"), torch.zeros(1, 4, 33, 4)
    for use in (lambda: attend(x, x, x), lambda: attend.weights(x, x)):
        with pytest.raises(ValueError, match="this synthesizer is for 32 tokens at most, not 33;"):
            use()
    kind: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}
    with pytest.raises(ValueError, match="32 tokens at most, not 33"):
        attend.init_state(1, 4, 0, 4, capacity=33, **kind)


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_have_projections_for_what_is_read_alone(variant: Variant) -> None:
    model = tiny_model(attention=SynthesizerConfig(variant=variant), n_kv_heads=2)
    layer: Any = model.body.get_submodule("layers.0.self_attention")
    read = layer.n_heads * (variant == "dense") + 2
    assert layer.qkv_proj.out_features == read * layer.d_head
    state = model.init_state(2, BLOCK).layers[0]
    values = 2 * 2 * (BLOCK + 1) * layer.d_head * layer.qkv_proj.weight.itemsize
    assert state.keys.nbytes == 0
    assert state.values.nbytes == values


@torch.no_grad()
def test_a_model_decodes_from_its_cache_what_whole_rows_give() -> None:
    """The dense variant is decoded in tests/models/test_mechanisms.py."""
    model = tiny_model(attention=SynthesizerConfig(variant="random"), n_kv_heads=2)
    states, whole = model.init_state(2, BLOCK), model(IDS)
    for part in IDS.split([3, 1, BLOCK - 4], 1):
        logits, states = model.extend(part, states)
    assert close(logits, whole[:, -1])


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_look_shows_learned_scores_as_a_step(variant: Variant) -> None:
    model = tiny_model(attention=SynthesizerConfig(variant=variant))
    for record in capture_attention(model, IDS):
        names, steps = zip(*score_steps(record, 0, 0), strict=True)
        assert names == ("q·k", "learned scores", "masked", "weight")
        assert not steps[0].any()
        assert close(steps[2].softmax(-1), steps[3])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rotary positions": (
        {"attention": SynthesizerConfig(variant="random"), "positions": RotaryConfig()},
        "^synthesizer attention has no queries that rotary positions rotate; set model.positions",
    ),
    "norms of queries and keys": (
        {"attention": SynthesizerConfig(), "qk_norm": True},
        "^synthesizer attention does not support a norm of queries and keys",
    ),
    "a layer of a pattern": (
        {
            "pattern": (LayerConfig(), LayerConfig(attention=SynthesizerConfig(variant="random"))),
            "positions": RotaryConfig(),
        },
        "^layer 1: synthesizer attention has no queries",
    ),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED)
def test_an_option_of_what_it_lacks_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        tiny_model(**options)
