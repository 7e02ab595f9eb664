"""Parts of layers, each against its plain formula in float64."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from msgspec import structs
from torch import Tensor, nn

from regard.attention import Mask
from regard.attention.config import SoftmaxConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.score_config import SlidingWindowConfig
from regard.errors import UnsupportedError
from regard.models.attention_layers import SelfAttention
from regard.models.builders import LanguageModel, SequenceToSequence
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.layers import FeedForward, Layer, make_norm
from regard.models.pattern import LayerConfig
from regard.models.transformer import Decoder, Encoder
from regard.positions import DynamicRotary, Rotary, frequencies, llama3_frequencies, rotate
from regard.positions.config import (
    DynamicScalingConfig,
    LearnedConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    NoPositionsConfig,
    RotaryConfig,
    RotaryScalingConfig,
    T5BiasConfig,
)
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


def test_an_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    """x / √(mean x² + ε) ⊙ g."""
    norm = sharp(make_norm(layer_config(norm_type="rms-norm", norm_eps=0.1)))
    x = normal(2, 5, D)
    expected = x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight
    close(norm(x), expected)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_a_zero_centered_norm_multiplies_by_one_plus_its_weight() -> None:
    """x / √(mean x² + ε) ⊙ (1 + w), with w = 0 at first; norms of heads too."""
    options = {"norm_type": "zero-centered-rms-norm", "norm_eps": 0.1, "qk_norm": True}
    fresh = make_norm(layer_config(**options))
    assert not fresh.weight.any()
    norm, x = sharp(fresh), normal(2, 5, D)
    expected = x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt() * (1 + norm.weight)
    close(norm(x), expected)
    assert isinstance(SelfAttention(layer_config(**options), 0).q_norm, type(norm))


@pytest.fixture
def _all_warnings() -> Iterator[None]:
    """Warnings of torch's C++ code each time, not once."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("_all_warnings")
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


@pytest.mark.parametrize("options", [{}, {"norm_type": "rms-norm"}], ids=str)
def test_parallel_branches_read_the_same_input(options: dict[str, Any]) -> None:
    """x + attention(norm(x)) + feed_forward(norm'(x))."""
    layer = sharp(Layer(layer_config(parallel_residual=True, **options), 0))
    x, mask = normal(2, 5, D), Mask.causal()
    attended = layer.self_attention(layer.norm_attention(x), None, None, mask)
    fed = layer.feed_forward(layer.norm_feed_forward(x))
    close(layer(x, None, None, mask), x + attended + fed)


def normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    assert norm is not None
    normalized: Tensor = norm(x)
    return normalized


def test_a_sandwich_has_norms_before_and_after_each_branch() -> None:
    """x + norm'(f(norm(x))), in parallel too, and of attention to a source."""
    config = structs.replace(TARGET, norm="sandwich")
    layer = sharp(Layer(config, 0, D))
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


def plain_attention(attention: SelfAttention, x: Tensor, window: int | None) -> Tensor:
    """Σ_j softmax_j(q·k/√d) v_j, head by head; queries and keys normalized if the layer does."""
    weight, bias = attention.qkv_proj.weight, attention.qkv_proj.bias
    projected = x @ weight.T + (0 if bias is None else bias)
    heads = [
        part.squeeze(-2) for part in projected.unflatten(-1, (-1, attention.d_head)).split(1, -2)
    ]
    n, kv, _ = attention.heads
    queries, keys, values = heads[:n], heads[n : n + kv], heads[n + kv :]
    i, j = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[1])
    seen = (j <= i) & (i - j < (window or x.shape[1]))  # the query itself counts
    outs = []
    for head in range(n):
        query, key = queries[head], keys[head * kv // n]
        if attention.q_norm is not None and attention.k_norm is not None:
            query, key = (
                part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
                for part, norm in ((query, attention.q_norm), (key, attention.k_norm))
            )
        scores = (query @ key.mT / math.sqrt(attention.d_head)).masked_fill(~seen, -torch.inf)
        outs.append(scores.softmax(-1) @ values[head * kv // n])
    joined: Tensor = torch.cat(outs, -1) @ attention.o_proj.weight.T
    return joined if attention.o_proj.bias is None else joined + attention.o_proj.bias


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"qkv_bias": False},
        {"o_bias": False},
        {"head_dim": 6},
        {"head_dim": 2, "n_heads": 4, "n_kv_heads": 2},
        {"n_kv_heads": 1, "qkv_bias": False, "o_bias": False},
        {"qk_norm": True},
        {"qk_norm": True, "head_dim": 6, "n_kv_heads": 1},
        {"window": 3},
        {"window": 1, "n_kv_heads": 1},
    ],
    ids=str,
)
def test_options_of_attention_are_the_plain_formula(options: dict[str, Any]) -> None:
    config = layer_config(**options)
    attention = sharp(SelfAttention(config, 0))
    x, window = normal(2, N, D), config.window or None
    close(attention(x, None, None, Mask.causal()), plain_attention(attention, x, window))
    assert (attention.qkv_proj.bias is not None) == config.qkv_bias
    assert (attention.o_proj.bias is not None) == config.o_bias


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


@pytest.mark.parametrize(
    "options",
    [
        {"pattern": windows(3, 0)},
        {"pattern": windows(2, 5), "n_kv_heads": 1},
        {"pattern": windows(1, 1), "positions": RotaryConfig()},
        {"pattern": windows(3, 3), "positions": T5BiasConfig()},
        {"qk_norm": True, "positions": RotaryConfig(dim=2)},
        {"parallel_residual": True, "gated": True, "head_dim": 6},
        {"positions": LearnedConfig(offset=2), "scale_embeddings": True},
        GEMMA,
    ],
    ids=str,
)
@pytest.mark.parametrize("sizes", [(1,) * N, (4, 1, 4)], ids=str)
@torch.no_grad()
def test_tokens_one_by_one_give_what_whole_rows_give(
    options: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    model = sharp(Decoder(decoder(**options), VOCABULARY)).eval()
    whole, states, parts = model(IDS), model.init_state(len(IDS), N), []
    for part in IDS.split(list(sizes), 1):
        hidden, states = model.extend(part, states)
        parts.append(hidden)
    close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("kind", [EluConfig(), SlidingWindowConfig()])
def test_a_mechanism_without_windows_refuses_them_when_the_model_is_built(kind: Any) -> None:
    with pytest.raises(UnsupportedError, match="does not support window masks"):
        Decoder(decoder(window=3, attention=kind), VOCABULARY)


# Rotary positions


@pytest.mark.parametrize("dim", [2, 4, 6])
def test_the_rest_of_a_head_is_not_rotated(dim: int) -> None:
    rotary, x = Rotary(frequencies(dim, 100.0), length=N), normal(2, 3, N, 6)
    turn = rotary(torch.arange(N)[None], torch.float64)
    out = rotate(x, turn)
    close(out[..., :dim], rotate(x[..., :dim].contiguous(), turn))
    assert torch.equal(out[..., dim:], x[..., dim:])


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


def angles(scaling: RotaryScalingConfig | None, n: int, dim: int | None = None) -> Tensor:
    """Cosines of the first half of the rotated coordinates."""
    config = decoder(head_dim=8, positions=RotaryConfig(base=100.0, dim=dim, scaling=scaling))
    (rotary,) = Decoder(config, VOCABULARY).rotary
    cos, signed_sin = rotary(torch.arange(n)[None], torch.float64)
    half = cos.shape[-1] // 2
    close(cos.square() + signed_sin.square(), torch.ones_like(cos))
    first: Tensor = cos[0, 0, :, :half]
    return first


def expected_angles(n: int, each: list[float]) -> Tensor:
    rows = [[math.cos(position * frequency) for frequency in each] for position in range(n)]
    return torch.tensor(rows, dtype=torch.float64)


PLAIN = [100.0 ** (-i / 4) for i in range(4)]


def test_linear_scaling_divides_positions() -> None:
    expected = expected_angles(N, [frequency / 4 for frequency in PLAIN])
    close(angles(LinearScalingConfig(factor=4), N), expected)
    partial = expected_angles(N, [1.0, 0.1])
    close(angles(None, N, dim=4), partial)


def test_dynamic_scaling_raises_the_base_beyond_the_original_length() -> None:
    scaling = DynamicScalingConfig(factor=2, original_context_length=6)
    close(angles(scaling, 6), expected_angles(6, PLAIN))
    base = 100.0 * (2 * 9 / 6 - 1) ** (8 / 6)
    close(angles(scaling, 9), expected_angles(9, [base ** (-i / 4) for i in range(4)]))
    with pytest.raises(ValueError, match="even d of at least 4"):
        DynamicRotary(d=2, base=10.0, factor=2.0, original_length=8)


def test_llama_3_scales_long_wavelengths() -> None:
    scaling = Llama3ScalingConfig(
        factor=8, low_freq_factor=1, high_freq_factor=4, original_context_length=32
    )
    each = []
    for frequency in PLAIN:
        wavelength = 2 * math.pi / frequency
        if wavelength < 32 / 4:
            each.append(frequency)
        elif wavelength > 32 / 1:
            each.append(frequency / 8)
        else:
            smooth = (32 / wavelength - 1) / (4 - 1)
            each.append((1 - smooth) * frequency / 8 + smooth * frequency)
    assert each[0] == PLAIN[0]
    assert each[-1] == PLAIN[-1] / 8
    close(angles(scaling, N), expected_angles(N, each))
    values = frequencies(8, 100.0)
    options: dict[str, Any] = {"low_freq_factor": 1, "high_freq_factor": 4, "original_length": 32}
    close(llama3_frequencies(values, factor=1, **options), values)


# Embeddings and heads


def test_embeddings_are_scaled_before_positions_are_added() -> None:
    config = decoder(scale_embeddings=True, positions=LearnedConfig(offset=2))
    model = sharp(Decoder(config, VOCABULARY)).eval()
    absolute = model.absolute
    assert absolute is not None
    x, _ = model._embed(IDS, torch.arange(N)[None])
    close(x, model.embedding(IDS) * math.sqrt(D) + absolute.vectors[2 : 2 + N])
    assert absolute.vectors.shape == (18, D)


def test_a_sequence_to_sequence_model_may_share_embeddings_and_scale_its_head() -> None:
    stack = layer_config(positions=T5BiasConfig())
    parts = {name: getattr(stack, name) for name in ("context_length", "n_layers", "n_heads")}
    side: dict[str, Any] = {**parts, "d_model": D, "dropout": 0.0, "positions": T5BiasConfig()}
    options = {"share_embeddings": True, "tie_head": True, "scale_head": True, "head_bias": True}
    config = EncoderDecoderConfig(
        encoder=TransformerConfig(**side), decoder=TargetConfig(**side), **options
    )
    model = SequenceToSequence(config, VOCABULARY)
    embedding = model.body.decoder.embedding.weight
    assert model.body.encoder.embedding.weight is embedding
    assert model.head.weight is embedding
    model = sharp(model).eval()
    lengths = torch.full((2,), N)
    hidden = model.body(IDS, lengths, IDS)
    expected = hidden @ model.head.weight.T / math.sqrt(D) + model.head.bias
    close(model(IDS, lengths, IDS), expected)


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


def test_options_that_do_not_fit_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"pattern": (LayerConfig(repeat=3),)}, "pattern has 3 layers, and n_layers = 2"),
        ({"parallel_residual": True, "norm": "post"}, "parallel_residual = true needs norm = pre"),
        ({"positions": RotaryConfig(dim=3)}, "positions.dim = 3"),
        ({"positions": RotaryConfig(dim=6)}, "positions.dim = 6"),
        ({"positions": RotaryConfig(), "head_dim": 3}, "even head width, not 3"),
        ({"positions": RotaryConfig(dim=2, scaling=DynamicScalingConfig())}, "at least four"),
        ({"d_model": 13}, "or set head_dim"),
    ]
    for options, says in cases:
        with pytest.raises(ValueError, match=says):
            decoder(**options)


def test_parts_of_a_sequence_to_sequence_model_must_fit() -> None:
    wide = TransformerConfig(d_model=64)
    with pytest.raises(ValueError, match="share_embeddings = true needs embeddings of one width"):
        EncoderDecoderConfig(encoder=wide, share_embeddings=True)
    parallel = TargetConfig(parallel_residual=True)
    with pytest.raises(ValueError, match=r"decoder\.parallel_residual"):
        EncoderDecoderConfig(decoder=parallel)
    concatenated = TargetConfig(positions=LearnedConfig(combine="concatenate"))
    with pytest.raises(ValueError, match="tie_head = true needs embeddings of width d_model"):
        EncoderDecoderConfig(decoder=concatenated, tie_head=True)
    with pytest.raises(ValueError, match=r"high_freq_factor = 1\.0 must be greater"):
        Llama3ScalingConfig(high_freq_factor=1.0)
    with pytest.raises(ValueError, match="can't be halved"):
        T5BiasConfig(buckets=5, bidirectional=True)
