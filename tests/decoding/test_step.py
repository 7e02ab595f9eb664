"""Exported steps: the model's own tokens, whatever runs the exported graph."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import KernelAttention
from regard.attention.config import config_type
from regard.attention.recurrent_config import GatedDeltaNetConfig, Mamba2Config
from regard.attention.registry import mechanisms
from regard.decoding import generate_ids, search_ids
from regard.decoding.prepare import prepare
from regard.decoding.step import PackagedModel, check_step, export_step
from regard.errors import UnsupportedError
from regard.models.builders import LanguageModel, make_model
from regard.models.head_config import LMHeadConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import (
    AlibiConfig,
    NoPositionsConfig,
    RotaryConfig,
    ShawVectorsConfig,
    T5BiasConfig,
)
from tiny_attentions import STACKS
from tiny_families import FAMILIES
from tiny_models import tiny_model

PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
NEW = 8
MODELS: list[dict[str, Any]] = [
    {"positions": RotaryConfig(), "qk_norm": True, "n_kv_heads": 2},
    {"positions": T5BiasConfig(), "short_conv": 3},
    {"positions": RotaryConfig(), "n_kv_heads": 1},
    {"positions": AlibiConfig(), "pattern": (LayerConfig(window=3), LayerConfig(window=5))},
    {"positions": ShawVectorsConfig()},
    *STACKS,
    {"attention": Mamba2Config(output_gate=True)},
    {
        "positions": RotaryConfig(),
        "pattern": (
            LayerConfig(attention=GatedDeltaNetConfig(), positions=NoPositionsConfig()),
            LayerConfig(window=3),
        ),
    },
]
KINDS = [kind for kind, one in mechanisms().items() if one.type.supports.decoding]
REFUSED = {k for k in KINDS if k == "bigbird" or issubclass(mechanisms()[k].type, KernelAttention)}


def packaged(model: LanguageModel, batch: int) -> PackagedModel:
    """The model with its exported step, run as a graph of torch's operators."""
    exported, replaced = export_step(model, batch)
    module = exported.module()

    def run(flat: list[Tensor]) -> list[Tensor]:
        outputs: list[Tensor] = module(flat[0], flat[1], flat[2:])
        return outputs

    return PackagedModel(prepare(model), {batch: (run, replaced)})


def same_generation(model: LanguageModel, prompts: list[list[int]], new: int = NEW) -> None:
    """Float64: tokens are equal, and their log-probabilities to the last digits of float32."""
    other = packaged(model, len(prompts))
    expected, found = (generate_ids(m, prompts, max_new_tokens=new) for m in (model, other))
    assert [row.ids for row in found] == [row.ids for row in expected]
    assert other.steps, "no step was left to the model"
    for row, plain in zip(found, expected, strict=True):
        assert row.log_probabilities == pytest.approx(plain.log_probabilities, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [MODELS[0], *(pytest.param(model, marks=pytest.mark.slow) for model in MODELS[1:])],
    ids=str,
)
def test_the_step_writes_the_tokens_of_the_model(settings: dict[str, Any]) -> None:
    same_generation(tiny_model(**settings), PROMPTS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*KINDS} - REFUSED))
def test_each_mechanism_by_default_over_a_whole_context(kind: str) -> None:
    """Longer than its blocks, its window and the keys that it chooses."""
    model = tiny_model(attention=config_type(kind)(), context_length=72, n_layers=1)
    same_generation(model, PROMPTS[1:2], new=72)


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODELS[:2], ids=str)
def test_rows_may_be_of_unequal_length(settings: dict[str, Any]) -> None:
    same_generation(tiny_model(**settings), PROMPTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"tie_head": True, "norm": "post"}, {"canon": "ABCD"}], ids=str
)
def test_bfloat16_is_that_of_autocast(settings: dict[str, Any]) -> None:
    model = tiny_model(dtype=torch.float32, **settings)
    with torch.autocast("cpu", torch.bfloat16):
        other = packaged(model, len(PROMPTS))
        expected, found = (
            generate_ids(m, PROMPTS, max_new_tokens=NEW) for m in (prepare(model), other)
        )
    assert other.steps, "no step was left to the model"
    assert model.head.weight.dtype == torch.float32
    for row, plain in zip(found, expected, strict=True):
        assert row.log_probabilities[0] == plain.log_probabilities[0], "the prompt is the model's"
        assert row.log_probabilities[1] == pytest.approx(plain.log_probabilities[1], abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rnn, gru", "rnn, lstm", "fixed-window"])
def test_other_families(family: str) -> None:
    model = make_model(FAMILIES[family], LMHeadConfig(), 11).double().eval()
    assert isinstance(model, LanguageModel)
    same_generation(model, PROMPTS[:1])


@pytest.mark.slow
def test_states_of_constant_size_run_every_step_by_the_package() -> None:
    model = make_model(FAMILIES["fixed-window"], LMHeadConfig(), 11).double().eval()
    assert isinstance(model, LanguageModel)
    [(run, replaced)], calls = packaged(model, 1).steps.values(), []

    def counted(flat: list[Tensor]) -> list[Tensor]:
        calls.append(1)
        return run(flat)

    one = PackagedModel(prepare(model), {1: (counted, replaced)})
    generate_ids(one, PROMPTS[:1], max_new_tokens=NEW)
    assert len(calls) == NEW - 1


@pytest.mark.slow
def test_beams_move_the_states_of_packages() -> None:
    model = tiny_model()
    expected, found = (
        search_ids(m, PROMPTS[:1], beams=3, max_new_tokens=NEW) for m in (model, packaged(model, 3))
    )
    assert [beam.ids for beam in found[0]] == [beam.ids for beam in expected[0]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(REFUSED - {"fourier", "favor-trigonometric"}))
def test_what_cannot_be_compiled_is_refused_in_one_line(kind: str) -> None:
    model = tiny_model(attention=config_type(kind)(), context_length=72)
    reason = "writes to a buffer" if kind != "bigbird" else "can't be compiled"
    with torch.inference_mode(), pytest.raises(UnsupportedError, match=reason) as raised:
        export_step(model, 1)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_another_batch_size_is_the_model_s_and_a_line_tells_so() -> None:
    model = tiny_model()
    other = packaged(model, 1)
    with pytest.warns(UserWarning, match="is for batch size 1"):
        found = generate_ids(other, PROMPTS, max_new_tokens=NEW)
    assert found == generate_ids(model, PROMPTS, max_new_tokens=NEW)


@pytest.mark.slow
def test_a_step_that_fails_is_the_model_s_and_a_line_tells_so() -> None:
    model = tiny_model()
    exported, calls = packaged(model, 1), []
    [(run, replaced)] = exported.steps.values()

    def fail(flat: list[Tensor]) -> list[Tensor]:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of order")
        return run(flat)

    with pytest.warns(UserWarning, match="out of order"):
        found = generate_ids(
            PackagedModel(model, {1: (fail, replaced)}), PROMPTS[:1], max_new_tokens=NEW
        )
    expected = generate_ids(model, PROMPTS[:1], max_new_tokens=NEW)
    assert [row.ids for row in found] == [row.ids for row in expected]
    assert len(calls) == 3


@pytest.mark.slow
def test_wrong_logits_are_noticed() -> None:
    model = tiny_model(dtype=torch.float32)
    [(run, replaced)] = packaged(model, 1).steps.values()
    check_step(model, 1, run, replaced)

    def wrong(flat: list[Tensor]) -> list[Tensor]:
        logits, *rest = run(flat)
        return [logits + 1e-2, *rest]

    with pytest.raises(RuntimeError, match="other logits"):
        check_step(model, 1, wrong, replaced)


@pytest.mark.slow
def test_steps_that_fail_for_long_caches_are_noticed() -> None:
    model = tiny_model(dtype=torch.float32)
    [(run, replaced)] = packaged(model, 1).steps.values()

    def short(flat: list[Tensor]) -> list[Tensor]:
        if len(flat[1]) > model.body.context_length - 2:
            raise RuntimeError("too long")
        return run(flat)

    with pytest.raises(RuntimeError, match="too long"):
        check_step(model, 1, short, replaced)


@pytest.mark.slow
def test_caches_of_any_size_are_served() -> None:
    """The model itself reads large ones by other operators than small ones."""
    model = tiny_model(dtype=torch.float32)
    numbers = model.body.context_length * model.head.in_features
    export_step(model, 2**18 // numbers + 1)
