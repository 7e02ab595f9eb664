"""Self-attention with keys and values from a latent, against its formulas."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from refusals import refusal
from regard.attention import Latent, Softmax
from regard.attention.cost import Shape
from regard.attention.latent import LatentCache
from regard.attention.score_config import LatentConfig
from regard.attention.state import StateShape
from regard.errors import UnsupportedError
from regard.models.builders import LanguageModel
from regard.models.latent_attention import LatentSelfAttention
from regard.models.transformer import Decoder
from regard.positions import Rotary, rotate
from regard.positions.config import (
    AlibiConfig,
    NoPositionsConfig,
    PositionsConfig,
    RotaryConfig,
    ShawVectorsConfig,
)
from regard.positions.rotary import frequencies
from tiny_models import BLOCK, VOCABULARY, tiny_config, tiny_model

IDS = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))
POSITIONS = [RotaryConfig(), RotaryConfig(dim=2), NoPositionsConfig(), AlibiConfig()]


def latent_model(positions: PositionsConfig, options: Any, **fields: Any) -> LanguageModel:
    return tiny_model(attention=LatentConfig(**options), positions=positions, **fields)


def layer_of(model: LanguageModel) -> LatentSelfAttention:
    (first, *_) = (m for m in model.modules() if isinstance(m, LatentSelfAttention))
    return first


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    st.sampled_from(POSITIONS),
    st.fixed_dictionaries(
        {
            "d_latent": st.sampled_from([None, 1, 5]),
            "d_rope": st.sampled_from([2, 4]),
            "d_query_latent": st.sampled_from([None, 3]),
        }
    ),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([(1,) * BLOCK, (5, 1, 10), (BLOCK - 1, 1), (BLOCK,)]),
)
@torch.no_grad()
def test_steps_to_the_latents_are_whole_rows(
    positions: PositionsConfig, options: dict[str, Any], window: int, sizes: tuple[int, ...]
) -> None:
    model = latent_model(positions, options, window=window)
    body = model.body
    assert isinstance(body, Decoder)
    states, parts = body.init_state(2, BLOCK), []
    for part in IDS.split(list(sizes), 1):
        hidden, states = body.extend(part, states)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), body(IDS), rtol=0, atol=1e-10)


def by_head(layer: LatentSelfAttention, x: Tensor, head: int, rotary: Rotary) -> Tensor:
    """The output of a head for one row, by 2405.04434, eq. 9-11, 14-17 (without a query latent)."""
    d, r, n = layer.d_head, layer.d_rope, len(x)
    assert isinstance(layer.q_proj, nn.Linear)
    rows = slice(head * (r + d), (head + 1) * (r + d))
    query = x @ layer.q_proj.weight[rows].T + layer.q_proj.bias[rows]
    down = x @ layer.kv_down_proj.weight.T + layer.kv_down_proj.bias
    latent = layer.kv_norm(down[:, r:])
    key_up, value_up = layer.kv_up_proj.weight.view(-1, 2, d, layer.d_latent)[head]
    turns = rotary(torch.arange(n)[None], x.dtype)
    rotated = [rotate(part[None, None], turns)[0, 0] for part in (query[:, :r], down[:, :r])]
    out = []
    for i in range(n):
        scores = torch.stack(
            [
                rotated[0][i] @ rotated[1][j] + query[i, r:] @ (key_up @ latent[j])
                for j in range(i + 1)
            ]
        )
        weights = (scores / math.sqrt(d + r)).softmax(0)
        out.append(sum(weights[j] * (value_up @ latent[j]) for j in range(i + 1)))
    return torch.stack(out)


@torch.no_grad()
def test_whole_rows_are_the_formulas_of_the_paper() -> None:
    model = latent_model(RotaryConfig(), {"d_latent": 5, "d_rope": 2}, n_layers=1)
    layer, seen = layer_of(model), []
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layer.o_proj.weight.copy_(torch.eye(16))
    layer.o_proj.bias.zero_()
    layer.register_forward_hook(lambda _, inputs, out: seen.append(out))
    model(IDS)
    x, out = seen
    rotary = Rotary(frequencies(2, 10_000.0), length=BLOCK)
    for head in range(4):
        expected = by_head(layer, x[0], head, rotary)
        torch.testing.assert_close(out[0, :, 4 * head : 4 * head + 4], expected)


@pytest.mark.parametrize(("d_latent", "d_rope"), [(None, None), (6, 2), (3, 0)])
def test_the_cache_is_one_latent_and_one_rotary_key_a_token(
    d_latent: int | None, d_rope: int | None
) -> None:
    options = {"d_latent": d_latent, "d_rope": d_rope}
    layer = layer_of(latent_model(NoPositionsConfig(), options))
    width = (d_latent or 4 * 4) + (2 if d_rope is None else d_rope)
    state = layer.init_state(3, capacity=10)
    slot = 3 * width * 8
    assert isinstance(state, LatentCache)
    assert state.bytes == 10 * slot + slot + 3 * 8  # a slot for padding, and a length a row
    shape = Shape(
        batch=3, heads=4, kv_heads=4, queries=1, keys=10, d=4 + layer.d_rope, e=4,
        dtype=torch.float64, mode="step",
    )  # fmt: skip
    assert layer.attention.cost(shape).state_bytes == 10 * slot


def test_rows_are_moved_once() -> None:
    """Keys and values are one tensor: moving both would move them back."""
    vectors = torch.randn(3, 1, 4, 6).double()
    cpu = torch.device("cpu")
    sizes = StateShape(batch=3, kv_heads=1, d=6, e=0, capacity=9, device=cpu, dtype=torch.float64)
    order = torch.tensor([1, 2, 0])
    state = LatentCache.empty(sizes).append(vectors, vectors, None).reorder(order)
    for found in state.filled():
        assert torch.equal(found, vectors[order])
    more = state.reorder(torch.tensor([0, 0, 1, 2]))
    assert isinstance(more, LatentCache)
    assert torch.equal(more.filled()[1], vectors[order][[0, 0, 1, 2]])


def test_a_step_reads_latents_and_whole_rows_their_heads() -> None:
    shape = Shape(batch=2, heads=8, kv_heads=8, queries=16, keys=16, d=6, e=4, causal=True)
    whole, plain = Latent(d_latent=4, d_rope=2).cost(shape), Softmax().cost(shape)
    assert whole.operations == plain.operations
    assert whole.state_bytes == 2 * 16 * 6 * 4 < plain.state_bytes
    step = Latent(d_latent=4, d_rope=2).cost(replace(shape, queries=1, mode="step"))
    assert step.operations == 2 * 2 * 8 * 16 * (6 + 6)
    assert step.bytes == 2 * (16 * 6 + 2 * 8 * 6) * 4
    assert step.state_bytes == whole.state_bytes


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "shared heads": ({"n_kv_heads": 2}, "fewer key/value heads than query heads"),
    "value heads": ({"n_kv_heads": 2, "n_value_heads": 4}, "more value heads than key heads"),
    "a norm": ({"qk_norm": True}, "a norm of queries and keys"),
    "a convolution": ({"short_conv": 4}, "a short convolution"),
    "vectors": ({"positions": ShawVectorsConfig()}, "relative-position vectors"),
}


def test_what_makes_no_sense_is_refused_by_name() -> None:
    for name in REFUSED:
        fields, says = REFUSED[name]
        with pytest.raises(UnsupportedError, match=f"latent attention does not support {says}"):
            tiny_model(attention=LatentConfig(), **fields)


def test_rotary_positions_fit_the_rotary_key() -> None:
    for d_rope, dim, says in (
        (0, None, "rotary positions need attention.d_rope ≥ 2, not 0"),
        (3, None, "need an even width of the rotated part of a head, not 3"),
        (2, 4, "choose an even number up to the width of the rotated part of a head 2"),
    ):
        with refusal(ValueError, says):
            tiny_config(attention=LatentConfig(d_rope=d_rope), positions=RotaryConfig(dim=dim))


def test_every_parameter_has_a_gradient() -> None:
    model = latent_model(RotaryConfig(), {"d_query_latent": 3}).train()
    model(IDS).square().sum().backward()
    layer = layer_of(model)
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
