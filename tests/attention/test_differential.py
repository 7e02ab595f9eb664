"""The difference of two softmax maps."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from refusals import refusal
from regard.attention import Differential, DifferentialV1, Mask, Softmax
from regard.attention.config import CHECKED_SHAPE
from regard.attention.contract_cases import TableBias
from regard.attention.cost import Shape
from regard.attention.differential import BothMaps
from regard.attention.gating import DifferentialGating, DifferentialNorm
from regard.attention.score_config import DifferentialConfig
from regard.models.attention_layers import SelfAttention
from regard.positions import Rotary, rotate
from regard.positions.config import RotaryConfig
from regard.positions.rotary import frequencies
from tiny_models import tiny_config, tiny_model

DRAW = torch.Generator().manual_seed(0)
Q, K, V = torch.randn(3, 2, 4, 9, 8, generator=DRAW).double()
BOTH = torch.randn(2, 8, 9, 8, generator=DRAW).double()
"""Queries of both maps of each head."""
SHARE = torch.rand(2, 4, 9, generator=DRAW).double()
CAUSAL = Mask.causal()


def first_version(lambda_init: float = 0.2, d: int = 8) -> DifferentialV1:
    return DifferentialV1(d=d, lambda_init=lambda_init).double()


def test_weights_sum_to_one_minus_lambda_and_may_be_negative() -> None:
    weights = Differential().weights(BOTH, K, mask=CAUSAL, gates={"share": SHARE})
    torch.testing.assert_close(weights.sum(-1), 1 - SHARE)
    assert float(weights.min()) < -0.1
    attend = first_version(0.7)
    products = (attend.lambda_query * attend.lambda_key).sum(-1).exp()
    expected = 1 - (products[0] - products[1] + 0.7)
    sums = attend.weights(Q, K, mask=CAUSAL).sum(-1)
    torch.testing.assert_close(sums, expected.expand_as(sums))


def test_lambda_starts_near_its_value_for_the_layer() -> None:
    """0.8 − 0.6 e^(−0.3 l): 0.2, 0.356, … (2410.05258, eq. 3)."""
    for layer, expected in ((0, 0.2), (1, 0.35551), (27, 0.79982)):
        made = DifferentialConfig(version=1).build(replace(CHECKED_SHAPE, layer=layer))
        assert isinstance(made, DifferentialV1)
        assert made.lambda_init == pytest.approx(expected, abs=1e-5)


def test_lambda_is_learned() -> None:
    attend = first_version()
    attend(Q, K, V, mask=CAUSAL).square().sum().backward()
    for parameter in attend.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.all())


@pytest.mark.parametrize("version", [1, 2])
def test_both_maps_are_computed_by_the_fused_kernel(version: int) -> None:
    """One call, with no other kernel allowed."""
    attend = Differential() if version == 2 else first_version()
    query, gates = (BOTH, {"share": SHARE}) if version == 2 else (Q, {})
    calls = 0

    def count(*args: Tensor, **options: object) -> Tensor:
        nonlocal calls
        calls += 1
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return original(*args, **options)  # type: ignore[arg-type]

    original = torch.nn.functional.scaled_dot_product_attention
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.functional.scaled_dot_product_attention", count)
        attend(query, K, V, mask=CAUSAL, gates=gates)
    assert calls == 1


def test_a_bias_is_that_of_the_head_in_both_maps() -> None:
    bias = BothMaps(TableBias(torch.randn(4, 6, 6, generator=DRAW)))
    dense = bias.dense(torch.arange(6), torch.arange(6))
    grid = torch.meshgrid(*map(torch.arange, (1, 8, 6, 6)), indexing="ij")
    found = bias.score_mod()(torch.zeros(1, 8, 6, 6), *grid)
    assert torch.equal(found[0], dense)
    assert torch.equal(dense[0::2], dense[1::2])


@pytest.mark.parametrize("heads", [1, 2])
def test_a_mask_by_head_is_that_of_both_maps(heads: int) -> None:
    blocks = torch.rand(heads, 2, 2, generator=DRAW) < 0.5
    pairs = torch.rand(1, heads, 6, 6, generator=DRAW) < 0.5
    mask = Mask.block_pairs(blocks, size=3) & Mask.dense(pairs)
    dense = mask.to_dense(6, 6, torch.device("cpu"))
    found = mask.repeat_heads(2).to_dense(6, 6, torch.device("cpu"))
    assert torch.equal(found, dense.repeat_interleave(2, 1) if heads > 1 else dense)
    assert CAUSAL.repeat_heads(2) is CAUSAL


def test_a_layer_projects_two_queries_for_each_head() -> None:
    config = DifferentialConfig()
    small, large = tiny_model(), tiny_model(attention=config)
    added = sum(p.numel() for p in large.parameters()) - sum(p.numel() for p in small.parameters())
    assert added == 2 * (16 * 16 + 16 + 16 * 4)  # queries with their bias, and λ, in two layers
    names = [name for name, _ in large.named_modules() if name.endswith("gating")]
    assert all(isinstance(large.get_submodule(name), DifferentialGating) for name in names)
    assert len(names) == 2


def test_consecutive_queries_are_the_maps_of_a_head() -> None:
    shape = replace(CHECKED_SHAPE, n_heads=2)
    gating = DifferentialGating(Differential.gates, 6, shape)
    x, query = torch.randn(1, 3, 6, generator=DRAW), torch.randn(1, 4, 3, 4, generator=DRAW)
    key = torch.randn(1, 2, 3, 4, generator=DRAW)
    given, _, _, gates = gating.inputs(x, query, key, key)
    torch.testing.assert_close(gates["share"], gating.proj(x).sigmoid().mT)
    first, second = (Softmax().weights(given[:, i::2], key) for i in range(2))
    weights = Differential().weights(given, key, gates=gates)
    torch.testing.assert_close(weights, first - gates["share"][..., None] * second)


def test_two_queries_are_required_for_each_head() -> None:
    query, key = torch.zeros(1, 6, 3, 4), torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="a multiple of 2 times the key heads"):
        Differential()(query, key, key, gates={"share": torch.zeros(1, 3, 3)})


def test_version_1_normalizes_each_head() -> None:
    norm = DifferentialNorm(16, CHECKED_SHAPE, lambda_init=0.2)
    out = 3 * torch.randn(2, 4, 5, 4, generator=DRAW)
    squares = norm.finish(out, out).square().mean(-1)
    torch.testing.assert_close(squares, torch.full_like(squares, 0.8**2), atol=1e-4, rtol=0)


def test_version_1_rotates_each_half_of_a_head() -> None:
    model = tiny_model(
        attention=DifferentialConfig(version=1), positions=RotaryConfig(), n_layers=1
    )
    seen: list[tuple[Tensor, Tensor]] = []
    (layer,) = (module for module in model.modules() if isinstance(module, SelfAttention))
    layer.attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[:2]))
    ids = torch.zeros(1, 5, dtype=torch.long)
    with torch.no_grad():
        model(ids)
    rotary = Rotary(frequencies(2, 10_000.0), length=5)
    cos, signed_sin = rotary(torch.arange(5)[None], Q.dtype)
    assert layer.rotary_parts == 2
    for x in seen[0]:  # the tokens are equal, and so are their queries before the rotation
        for half in x.chunk(2, -1):
            before = rotate(half, (cos, -signed_sin))
            torch.testing.assert_close(before, before[:, :, :1].expand_as(before))


def test_widths_of_heads_and_rotary_positions_fit_a_half() -> None:
    rotated = "width of the rotated part of a head"
    for options, says in (
        ({"positions": RotaryConfig(dim=4)}, f"choose an even number up to the {rotated} 2"),
        ({"positions": RotaryConfig(dim=3)}, f"choose an even number up to the {rotated} 2"),
        ({"head_dim": 5}, "halves heads, and their width is 5: choose an even head"),
        ({"positions": RotaryConfig(), "head_dim": 6}, f"need an even {rotated}, not 3"),
    ):
        with refusal(ValueError, says, str(options)):
            tiny_config(attention=DifferentialConfig(version=1), **options)


def test_it_costs_two_maps_and_the_state_of_one() -> None:
    shape = Shape(batch=2, heads=4, kv_heads=2, queries=8, keys=8, d=8, e=8, causal=True)
    plain = Softmax().cost(shape)
    for attend, parameters in ((Differential(), 0), (first_version(), 16)):
        cost = attend.cost(shape)
        assert cost.operations == 2 * plain.operations
        assert cost.state_bytes == plain.state_bytes
        assert cost.parameters == parameters
