"""The gates of a layer: their ranges, their first values, and those of a custom mechanism."""

import math
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from regard.attention.config import CHECKED_SHAPE, AttentionConfig, LayerShape, config_type
from regard.attention.gated import RecurrentAttention
from regard.attention.gates import Gate
from regard.attention.gating import Gating, NormalizedGating, OutputGate, RWKV7Gating, Steps
from regard.attention.registry import mechanisms
from regard.errors import UnsupportedError
from regard.explorer.intercept import capture_attention
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.models.transformer import Decoder
from tiny_models import tiny_model

RECURRENCES = [
    kind for kind, one in mechanisms().items() if issubclass(one.type, RecurrentAttention)
]
SHAPE = LayerShape(n_heads=4, n_kv_heads=2, n_value_heads=2, d_head=8, context_length=32)


VALUE_HEADS = list(
    zip(RECURRENCES, cycle([(2, 2, 4), (4, 2, 8), (4, 1, 2), (4, 2, 4)]), strict=False)
)


def made(kind: str, **options: Any) -> tuple[RecurrentAttention, Gating]:
    torch.manual_seed(0)
    config = cast(AttentionConfig, config_type(kind)(**options))
    attend = config.build(SHAPE)
    assert isinstance(attend, RecurrentAttention)
    gating = config.build_gating(attend.gates, 16, SHAPE)
    assert gating is not None
    return attend, gating


@torch.no_grad()
@pytest.mark.parametrize("kind", RECURRENCES)
def test_gates_have_their_shapes_and_ranges(kind: str) -> None:
    attend, gating = made(kind)
    x, query = 10 * torch.randn(2, 5, 16), torch.randn(2, 4, 5, 8)
    key, value = torch.randn(2, 2, 2, 5, 8)
    query, key, value, gates = gating.inputs(x, query, key, value)
    assert list(gates) == [gate.name for gate in attend.gates]
    for gate in attend.gates:
        made_ = gates[gate.name]
        assert made_.shape == gate.shape(query, key, value)
        assert gate.low <= float(made_.min()) <= float(made_.max()) <= gate.high
    out = torch.randn(2, 4, 5, 8)
    assert gating.finish(x, out).shape == out.shape


@torch.no_grad()
@pytest.mark.parametrize("kind", [kind for kind in RECURRENCES if "delta" in kind])
def test_negative_eigenvalues_double_what_is_erased(kind: str) -> None:
    x, query = torch.randn(2, 5, 16), torch.randn(2, 4, 5, 8)
    key, value = torch.randn(2, 2, 2, 5, 8)
    _, once = made(kind)
    _, twice = made(kind, negative_eigenvalues=True)
    *_, gates = once.inputs(x, query, key, value)
    *_, doubled = twice.inputs(x, query, key, value)
    for name, gate in gates.items():
        factor = 2 if name in {"beta", "erase"} else 1
        torch.testing.assert_close(doubled[name], factor * gate)
    torch.testing.assert_close(twice.normalize(key).norm(dim=-1), torch.ones(2, 2, 5))
    with pytest.raises(ValueError, match="negative_eigenvalues needs keys of length 1"):
        made(kind, negative_eigenvalues=True, qk_norm=False)


@torch.no_grad()
def test_the_gate_of_outputs_may_be_silu_and_norms_have_their_epsilons() -> None:
    """RMSNorm(out) ⊙ silu(W x), and x / √(x² + ε)."""
    options = {"output_gate": True, "gate_activation": "silu", "norm_eps": 0.3, "qk_norm_eps": 0.2}
    _, gating = made("gated-deltanet", **options)
    assert isinstance(gating, NormalizedGating)
    assert gating.out_gate is not None
    x, out = torch.randn(2, 5, 16), torch.randn(2, 4, 5, 8)
    z = (x @ gating.out_gate.weight.T).view(2, 5, 4, 8).transpose(1, 2)
    expected = out / (out.square().mean(-1, keepdim=True) + 0.3).sqrt() * z / (1 + (-z).exp())
    torch.testing.assert_close(gating.finish(x, out), expected)
    length = (out.square().sum(-1, keepdim=True) + 0.2).sqrt()
    torch.testing.assert_close(gating.normalize(out), out / length)
    with pytest.raises(ValueError, match="gate_activation = silu needs output_gate = true"):
        made("gated-deltanet", gate_activation="silu")


@torch.no_grad()
@pytest.mark.parametrize(("kind", "heads"), VALUE_HEADS)
def test_a_layer_has_more_value_heads_than_key_heads(kind: str, heads: tuple[int, ...]) -> None:
    n_heads, n_kv_heads, n_value_heads = heads
    config = cast(AttentionConfig, config_type(kind)(output_gate=True))
    sizes = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "n_value_heads": n_value_heads}
    model = tiny_model(attention=config, head_dim=4, short_conv=3, dtype=torch.float64, **sizes)
    ids = torch.randint(5, (2, 8))
    record = capture_attention(model, ids)[0]  # checks weights · values against the output
    assert record.out.shape[1] == max(n_heads, n_value_heads)
    whole, states = model(ids), model.init_state(2, 8)
    for t in range(8):
        logits, states = model.extend(ids[:, t : t + 1], states)
        torch.testing.assert_close(logits, whole[:, t])
    matrix = states.layers[0].attention.matrix
    assert matrix.shape == (2, n_value_heads, 4, 4)


def test_other_mechanisms_have_as_many_value_heads_as_key_heads() -> None:
    message = "softmax attention does not support more value heads.* supported by: gated-linear"
    with pytest.raises(UnsupportedError, match=message):
        tiny_model(n_heads=2, n_value_heads=4)


def test_steps_begin_log_uniform_and_rates_uniform() -> None:
    torch.manual_seed(0)
    n = 4000
    steps = Steps(n, n)
    sizes, rates = nn.functional.softplus(steps.bias.detach()), steps.log_a.detach().exp()
    for drawn, low, high in ((sizes.log10(), -3.0, -1.0), (rates, 1.0, 16.0)):
        assert low - 1e-5 <= float(drawn.min()) <= float(drawn.max()) <= high + 1e-5
        off = float(drawn.mean()) - (low + high) / 2
        assert abs(off) < 4 * (high - low) / math.sqrt(12 * n)  # four standard errors
        quarter = (low + high) / 2 - (high - low) / 4
        share = float((drawn < quarter).float().mean())
        assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)


LEAKY = '''
"""A decay that the layer chooses."""

import torch
from regard.attention import Gate
from regard.attention.gated import RecurrentAttention
from regard.attention.recurrence import Update


class Leaky(RecurrentAttention):
    """Linear attention that keeps a share of its state."""

    name = "leaky"
    gates = (Gate("kept"), Gate("strength", "value", low=-1.0, high=3.0))

    def update(self, key, value, **gates):
        return Update(key, gates["strength"] * value, gates["kept"].log()[..., None])
'''


@torch.no_grad()
@pytest.mark.parametrize("by", ["channel", "head"])
def test_an_output_gate_multiplies_each_head(by: str) -> None:
    config = config_type("gated-softmax")(gate=by)
    gating = cast(AttentionConfig, config).build_gating((), 16, SHAPE)
    assert isinstance(gating, OutputGate)
    x, out = torch.randn(2, 5, 16), torch.randn(2, 4, 5, 8)
    gate = torch.sigmoid(x @ gating.proj.weight.T).view(2, 5, 4, 8 if by == "channel" else 1)
    torch.testing.assert_close(gating.finish(x, out), out * gate.transpose(1, 2))


@torch.no_grad()
@pytest.mark.parametrize("low", [-math.inf, -2.0, 0.0])
def test_gates_without_an_upper_bound_are_finite(low: float) -> None:
    gating = Gating((Gate("any", low=low, high=math.inf),), 16, SHAPE)
    gate = gating.gates(10 * torch.randn(2, 5, 16))["any"]
    assert gate.isfinite().all()
    assert float(gate.min()) >= low
    assert float(gate.max()) > 1


@torch.no_grad()
def test_a_custom_mechanism_has_gates_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "leaky.py"
    path.write_text(LEAKY, encoding="utf-8")
    config = cast(AttentionConfig, config_type(f"{path}:Leaky")())
    attend = config.build(CHECKED_SHAPE)
    gating = config.build_gating(attend.gates, 16, CHECKED_SHAPE)
    assert isinstance(gating, NormalizedGating)
    gates = gating.gates(100 * torch.randn(2, 5, 16))
    assert gates["kept"].shape == (2, 4, 5)
    assert gates["strength"].shape == (2, 4, 5, 4)
    for gate in attend.gates:
        assert isinstance(gate, Gate)
        assert gate.low <= float(gates[gate.name].min())
        assert float(gates[gate.name].max()) <= gate.high
    model = tiny_model(attention=config)
    ids = torch.arange(8)[None]
    body = cast(Decoder, model.body)
    whole, states, steps = body(ids), body.init_state(1, 8), []
    for token in ids.split(1, 1):
        hidden, states = body.extend(token, states)
        steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, 1), whole)


@torch.no_grad()
def test_rwkv7_begins_by_forgetting_little() -> None:
    config = DecoderConfig(attention=cast(AttentionConfig, config_type("rwkv7")()))
    model = LanguageModel(config, 16)
    gating = next(part for part in model.modules() if isinstance(part, RWKV7Gating))
    like = gating.proj.weight
    x = like.new_zeros(1, 3, gating.proj.in_features)
    vectors = like.new_ones(3, 1, gating.heads, 3, gating.d_head)
    log_decay = gating.inputs(x, *vectors)[3]["log_decay"]
    expected = [-math.exp(-0.5) / (1 + math.exp(x)) for x in (6.5, 1.5)]
    assert [float(log_decay.max()), float(log_decay.min())] == pytest.approx(expected)


@torch.no_grad()
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_keys_in_bfloat16_are_rounded_once(eps: float, autocast: bool) -> None:
    """A rounded length would scale all channels alike, and a longer key makes the state grow."""
    _, gating = made("deltanet", qk_norm_eps=eps)
    key = torch.randn(2, 2, 200, 64).bfloat16()  # after the seed of `made`
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = gating.normalize(key)
    assert found.dtype == torch.bfloat16
    wide = key.double()
    exact = wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()
    torch.testing.assert_close(found.double(), exact, rtol=1.001 * 2**-8, atol=0.0)
