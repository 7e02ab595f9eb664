"""Recurrent layers of Hugging Face models: what they do is weights · values, or it is an error."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from transformers import (
    Mamba2Config,
    Mamba2Model,
    NemotronHConfig,
    NemotronHModel,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextModel,
)
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.qwen3_next import modeling_qwen3_next

from regard.attention import GatedDeltaNet, Mamba2
from regard.explorer.huggingface.intercept import intercept_huggingface
from regard.explorer.huggingface.layer_context import huggingface_maps
from regard.explorer.huggingface.recurrences import intercept_recurrences, recurrent_layers
from regard.explorer.intercept import AttentionRecord, MismatchError, recorded
from tiny_hugging_face import sharp

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]])


SIZES: dict[str, Any] = {"vocab_size": 30, "hidden_size": 32}
LINEAR: dict[str, Any] = {
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8},
}


def mamba2() -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "num_heads": 4,
        "head_dim": 16,
        "state_size": 8,
        "n_groups": 2,
        "chunk_size": 8,
    }
    return sharp(
        Mamba2Model(Mamba2Config(**SIZES, num_hidden_layers=2, expand=2, **sizes)), torch.float32
    )


def qwen3_next() -> PreTrainedModel:
    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    experts: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32}
    experts |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
    config = Qwen3NextConfig(**SIZES, **LINEAR, **heads, **experts, num_hidden_layers=4)
    return sharp(Qwen3NextModel(config), torch.float32)


def nemotron_h() -> PreTrainedModel:
    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    scan: dict[str, Any] = {
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 2,
    }
    layers = ["linear_attention", "mlp", "full_attention", "mlp"]
    config = NemotronHConfig(**SIZES, **heads, **scan, layers_block_type=layers, chunk_size=8)
    return sharp(NemotronHModel(config), torch.float32)


@torch.inference_mode()
def test_attention_of_a_layer_called_mixer_is_no_recurrence() -> None:
    model = nemotron_h()
    found = huggingface_maps(model, {"input_ids": IDS}, [str(i) for i in range(13)])
    assert [(one.name, len(one.layers)) for one in found] == [
        ("recurrence", 1),
        ("self-attention", 1),
    ]


Maker = Callable[[], PreTrainedModel]
BOTH = pytest.mark.parametrize("make", [mamba2, qwen3_next])


@BOTH
@torch.inference_mode()
def test_each_layer_does_its_weights_times_its_values(make: Maker) -> None:
    model = make()
    (first, *others) = huggingface_maps(model, {"input_ids": IDS}, [str(i) for i in range(13)])
    assert first.name == "recurrence"
    assert [one.name for one in others] == ([] if make is mamba2 else ["self-attention"])
    assert [layer.name for layer in first.layers] == (
        ["0", "1"] if make is mamba2 else ["0", "1", "2"]
    )
    for layer in first.layers:
        record = layer.record
        assert isinstance(record.mechanism, Mamba2 if make is mamba2 else GatedDeltaNet)
        gathered = record.weights @ record.value
        assert record.out.abs().max() > 0.01
        torch.testing.assert_close(gathered, record.out, rtol=1e-4, atol=1e-5)
        assert not record.weights.triu(1).any()


@BOTH
@torch.inference_mode()
def test_the_model_goes_on_with_what_the_handler_returns(make: Maker) -> None:
    model = make()
    before = model(IDS).last_hidden_state
    with recorded(lambda handler: intercept_huggingface(model, handler)):
        seen = model(IDS).last_hidden_state
    torch.testing.assert_close(seen, before, rtol=1e-4, atol=1e-5)

    def ablated(record: AttentionRecord) -> torch.Tensor:
        return torch.zeros_like(record.out)

    with intercept_recurrences(recurrent_layers(model), ablated):
        assert not torch.allclose(model(IDS).last_hidden_state, before, atol=1e-3)
    assert torch.equal(model(IDS).last_hidden_state, before)


def off_by_a_hundredth(original: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    found = original(*args, **settings)
    return (found[0] * 1.01, *found[1:]) if isinstance(found, tuple) else found * 1.01


@torch.inference_mode()
def test_another_function_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (modeling_mamba2, "mamba2_chunk_scan"),
        (modeling_qwen3_next, "torch_chunk_gated_delta_rule"),
    ):
        monkeypatch.setattr(module, name, partial(off_by_a_hundredth, getattr(module, name)))
    for make in (mamba2, qwen3_next):
        with pytest.raises(MismatchError, match="off the kernel's output"):
            huggingface_maps(make(), {"input_ids": IDS}, [str(i) for i in range(13)])
