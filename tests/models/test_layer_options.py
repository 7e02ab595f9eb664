"""Parts of layers, each against its plain formula in float64."""

import math
from typing import Any

import pytest
import torch
from msgspec import structs
from torch import Tensor, nn

from regard.attention import Mask
from regard.attention.config import SoftmaxConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.models.attention_layers import SelfAttention
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig, EncoderConfig, TargetConfig, TransformerConfig
from regard.models.layers import FeedForward, Layer
from regard.models.pattern import LayerConfig
from regard.models.transformer import Encoder
from regard.positions import Rotary, frequencies
from regard.positions.config import NoPositionsConfig, RotaryConfig
from tiny_recurrent import normal, sharp

D, HEADS, N, VOCABULARY = 12, 3, 9, 17
IDS = torch.randint(VOCABULARY, (2, N), generator=torch.Generator().manual_seed(0))


def close(one: Tensor, other: Tensor) -> None:
    """The same up to what float64 rounds off in a few dozen steps."""
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def decoder(**options: Any) -> DecoderConfig:
    sizes = {"context_length": 16, "n_layers": 2, "n_heads": HEADS, "d_model": D, "dropout": 0.0}
    return DecoderConfig(**{**sizes, **options})


def windows(*sizes: int) -> tuple[LayerConfig, ...]:
    return tuple(LayerConfig(window=size) for size in sizes)


TARGET = TargetConfig(
    context_length=16,
    n_layers=1,
    n_heads=HEADS,
    d_model=D,
    dropout=0.0,
    positions=NoPositionsConfig(),
)
GEMMA: dict[str, Any] = {
    "norm": "sandwich",
    "norm_type": "zero-centered-rms-norm",
    "attention": SoftmaxConfig(softcap=2.0, scale_dim=3),
    "positions": RotaryConfig(base=1e6),
    "pattern": (LayerConfig(window=3, positions=RotaryConfig()), LayerConfig()),
}


def layer_config(**options: Any) -> TransformerConfig:
    return decoder(**{"positions": NoPositionsConfig(), **options})


# Norms and feed-forward


@pytest.mark.usefixtures("all_warnings")
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [
        {"norm_type": "rms-norm", "qk_norm": True, "positions": RotaryConfig()},
        {"attention": GatedDeltaNetConfig(), "positions": NoPositionsConfig()},
        {**GEMMA, "qk_norm": True, "logit_softcap": 3.0},
    ],
    ids=["rms-norm", "gated-deltanet", "gemma"],
)
def test_a_model_with_rms_norms_is_trained_in_bfloat16(
    options: dict[str, Any], weights: torch.dtype
) -> None:
    config = decoder(**options)
    model = LanguageModel(config, VOCABULARY)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(weights)
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS).float().square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("activation", "plain"),
    [
        ("silu", lambda x: x / (1 + (-x).exp())),
        ("gelu", lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2),
        ("relu", lambda x: x.clamp(min=0)),
        ("relu2", lambda x: x.clamp(min=0) ** 2),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_gate_multiplies_the_feed_forward_layer(activation: Any, plain: Any, bias: bool) -> None:
    """W₂ (f(W_g x) ⊙ W₁ x): SwiGLU with silu, GeGLU with gelu."""
    config = layer_config(activation=activation, gated=True, ff_bias=bias, d_ff=20)
    fed = sharp(FeedForward(config))
    x, gate = normal(2, 5, D), fed.gate_proj
    assert gate is not None

    def linear(module: Any, x: Tensor) -> Tensor:
        product: Tensor = x @ module.weight.T
        return product + module.bias if bias else product

    assert (gate.bias is not None) == bias
    close(fed(x), linear(fed.down_proj, plain(linear(gate, x)) * linear(fed.up_proj, x)))


def normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    assert norm is not None
    normalized: Tensor = norm(x)
    return normalized


def test_a_sandwich_has_norms_before_and_after_each_branch() -> None:
    """x + norm'(f(norm(x))), in parallel too, and of attention to a source."""
    config = structs.replace(TARGET, norm="sandwich")
    layer = sharp(Layer(config, 0, config))
    x, source, mask = normal(2, 5, D), normal(2, 4, D, seed=1), Mask.causal()
    attended = layer.self_attention(layer.norm_attention(x), None, None, mask)
    after = x + normed(layer.norm_attention_out, attended)
    memory = layer.cross_attention.encode_memory(source, None)
    read = layer.cross_attention(layer.norm_cross(after), memory)
    last = after + normed(layer.norm_cross_out, read)
    fed = normed(layer.norm_feed_forward_out, layer.feed_forward(layer.norm_feed_forward(last)))
    close(layer(x, None, None, mask, memory), last + fed)
    parallel = sharp(Layer(layer_config(norm="sandwich", parallel_residual=True), 0))
    attended = parallel.self_attention(parallel.norm_attention(x), None, None, mask)
    fed = parallel.feed_forward(parallel.norm_feed_forward(x))
    both = normed(parallel.norm_attention_out, attended) + normed(
        parallel.norm_feed_forward_out, fed
    )
    close(parallel(x, None, None, mask), x + both)


# Attention


def test_attention_weights_have_their_own_dropout() -> None:
    own = SelfAttention(layer_config(dropout=0.5, attention_dropout=0.1), 0)
    same = SelfAttention(layer_config(dropout=0.5), 0)
    dropouts: list[Any] = [layer.attention.dropout for layer in (own, same)]
    assert [dropout.p for dropout in dropouts] == [0.1, 0.5]


def test_an_encoder_has_a_window_on_both_sides() -> None:
    config = EncoderConfig(
        context_length=16, n_layers=1, n_heads=HEADS, d_model=D, window=2, dropout=0.0
    )
    model = sharp(Encoder(config, VOCABULARY)).eval()
    ids = IDS[:1].clone()
    before = model(ids)
    ids[0, 4] = (ids[0, 4] + 1) % VOCABULARY
    changed = (model(ids) - before)[0].abs().amax(-1) > 1e-9
    assert changed.nonzero().flatten().tolist() == [3, 4, 5]


# Rotary positions


@pytest.mark.parametrize(
    ("kind", "holds"),
    [(SoftmaxConfig(), True), (GatedDeltaNetConfig(), True), (EluConfig(), False)],
)
def test_only_distances_of_rotary_positions_count(kind: Any, holds: bool) -> None:
    """Activations must come before the rotation; those of kernel attention come after it."""
    layer = sharp(SelfAttention(decoder(head_dim=4, attention=kind), 0))
    rotary, x = Rotary(frequencies(4, 100.0), length=N + 7), normal(2, N, D)
    places = torch.arange(N)[None]
    here, moved = (rotary(at, torch.float64) for at in (places, places + 7))
    one, other = (layer(x, rope, None, Mask.causal()) for rope in (here, moved))
    assert torch.allclose(one, other, rtol=1e-11, atol=1e-11) == holds


# Embeddings and heads


def test_no_option_changes_the_weights_that_a_seed_draws() -> None:
    """Absent parts draw nothing."""
    models = []
    for options in ({}, {"norm_type": "rms-norm"}, {"pattern": windows(3, 3)}, {"qk_norm": True}):
        torch.manual_seed(0)
        models.append(LanguageModel(decoder(**options), VOCABULARY))
    for other in models[1:]:
        for name, parameter in models[0].named_parameters():
            if name in dict(other.named_parameters()):
                assert torch.equal(parameter, other.get_parameter(name))
