"""Which weights decay, how the learning rate runs, and Muon.

Muon orthogonalizes in the precision that it is given, and otherwise is torch's.
"""

from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from products import seen_products
from regard.data.batch import Sampler
from regard.models.builders import LanguageModel, Model
from regard.models.config import DecoderConfig
from regard.models.recurrent import RecurrentDecoder
from regard.runs.recipe import (
    AdamWConfig,
    CosineConfig,
    MinGPTConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainingConfig,
)
from regard.training.optimizers import (
    COEFFICIENTS,
    ITERATIONS,
    AdamW,
    Muon,
    Schedule,
    make_optimizers,
    orthogonalized,
    set_rate,
)
from tiny_attentions import ATTENTIONS
from tiny_families import COVERING, MODELS, tiny, tiny_batch
from tiny_models import tiny_model
from tiny_recurrent import CELLS


def make_model(*, tie_head: bool = False) -> LanguageModel:
    config = DecoderConfig(context_length=8, n_layers=2, n_heads=2, d_model=8, tie_head=tie_head)
    return LanguageModel(config, 11)


@pytest.mark.parametrize("second", [AdamW, torch.optim.AdamW])
def test_adamw_is_torchs_and_either_goes_on_from_the_other(
    second: type[torch.optim.AdamW],
) -> None:
    trained = []
    for first, then in (AdamW, second), (torch.optim.AdamW, torch.optim.AdamW):
        torch.manual_seed(0)
        model, state = make_model(), None
        for kind in first, then:
            optimizer = kind(model.parameters(), lr=0.01, betas=(0.9, 0.95), fused=True)
            if state is not None:
                optimizer.load_state_dict(state)
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.arange(8)[None]).square().mean().backward()
                optimizer.step()
            state = optimizer.state_dict()
        trained.append([*model.parameters()])
    assert all(map(torch.equal, *trained))


@pytest.mark.parametrize("optimizer", [AdamWConfig(), MuonConfig()], ids=["adamw", "muon"])
def test_in_every_family_every_parameter_is_trained_once(optimizer: OptimizerConfig) -> None:
    for family in COVERING:
        model = tiny(*MODELS[family])
        made = make_optimizers(model, TrainingConfig(steps=1, optimizer=optimizer))
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        trained = [id(p) for o in made for group in o.param_groups for p in group["params"]]
        assert sorted(trained) == sorted(id(p) for p in model.parameters())
        model.loss(tiny_batch(model)).backward()
        for one in made:
            one.step()
        for name, parameter in model.named_parameters():
            assert not torch.equal(parameter, before[name]), name


def decays_of(model: Model) -> dict[int, float]:
    """The weight decay of each parameter, by its id."""
    (adamw,) = make_optimizers(model, TrainingConfig(steps=1))
    return {id(p): g["weight_decay"] for g in adamw.param_groups for p in g["params"]}


@pytest.mark.parametrize("cell", CELLS)
def test_matrices_of_recurrent_layers_decay(cell: str) -> None:
    model = tiny(*MODELS[f"rnn, {cell}: lm"])
    decays = decays_of(model)
    assert isinstance(model.body, RecurrentDecoder)
    for parameter in model.body.recurrence.parameters():
        assert decays[id(parameter)] == (0.1 if parameter.ndim == 2 else 0.0)


@pytest.mark.parametrize("kind", sorted(ATTENTIONS.keys() - {"linformer"}))
def test_only_matrices_of_linear_layers_decay(kind: str) -> None:
    model = tiny_model(attention=ATTENTIONS[kind])
    decays = decays_of(model)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            matrix = isinstance(module, nn.Linear) and name == "weight"
            assert decays[id(parameter)] == (0.1 if matrix else 0.0)


def test_a_tied_head_does_not_decay_the_embedding() -> None:
    model = make_model(tie_head=True)
    assert decays_of(model)[id(model.head.weight)] == 0.0


def schedule_of(config: ScheduleConfig, steps: int, *, rows: int = 0) -> Schedule:
    """Return a schedule of steps before each of which so many rows of one target were seen."""
    sampler = SimpleNamespace(steps=steps, rows_before=lambda _: rows)
    return Schedule(config, cast("Sampler", sampler), context_length=2)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1))
def test_the_rate_rises_once_and_never_again(steps: int, warmup: float, final: float) -> None:
    schedule = CosineConfig(warmup=warmup, final=final)
    rates = [schedule_of(schedule, steps).factor(step) for step in range(steps + 50)]
    top = rates.index(max(rates))
    assert all(a <= b for a, b in pairwise(rates[: top + 1]))
    assert all(a >= b - 1e-12 for a, b in pairwise(rates[top:]))
    assert 0 < rates[0] <= 1
    assert max(rates) <= 1 + 1e-12


def test_the_cosine_passes_through_its_known_points() -> None:
    schedule = CosineConfig(warmup=10 / 110, final=0.2)
    factor = schedule_of(schedule, 110).factor
    assert factor(9) == 1
    assert factor(60) == pytest.approx(0.6)
    assert factor(110) == pytest.approx(0.2)


def test_mingpt_s_rate_falls_to_its_floor_and_rises_again() -> None:
    schedule = MinGPTConfig(positions=1000, final=0.1)
    points = {0: 1.0, 250: 0.5 + 0.5**1.5, 500: 0.5, 900: 0.1, 1000: 0.1, 1500: 0.5, 2000: 1.0}
    for seen, expected in points.items():
        assert schedule_of(schedule, 10, rows=seen).factor(7) == pytest.approx(expected)


def test_rates_are_scaled_from_the_highest() -> None:
    config = TrainingConfig(steps=1, lr=0.5, optimizer=MuonConfig(muon_lr=0.25))
    made = make_optimizers(make_model(), config)
    for factor in (0.5, 0.1):
        set_rate(made, factor)
        assert [o.param_groups[0]["lr"] for o in made] == [0.25 * factor, 0.5 * factor]


# Muon

SHAPES = [(5, 5), (4, 6), (3, 8), (8, 3), (1, 4)]
"""Square, and wide or tall by less or more than a factor of two."""


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def muon(weights: nn.Parameter, dtype: torch.dtype) -> Muon:
    return Muon([weights], lr=0.1, momentum=0.9, weight_decay=0.2, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_muon_of_torch_in_bfloat16(shape: tuple[int, int]) -> None:
    ours, peers = (nn.Parameter(matrix(*shape)) for _ in range(2))
    peer = torch.optim.Muon([peers], lr=0.1, momentum=0.9, weight_decay=0.2)
    own = muon(ours, torch.bfloat16)
    for step in range(3):
        ours.grad, peers.grad = (matrix(*shape, seed=step + 1) for _ in range(2))
        own.step()
        peer.step()
        # Exact: the same operations on the same shapes.
        assert torch.equal(ours, peers)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_pass_through_the_polynomial(shape: tuple[int, int]) -> None:
    left, values, right = torch.linalg.svd(matrix(*shape).double(), full_matrices=False)
    expected, (a, b, c) = values / values.norm(), COEFFICIENTS
    for _ in range(ITERATIONS):
        expected = a * expected + b * expected**3 + c * expected**5
    exact = orthogonalized(matrix(*shape).double())
    torch.testing.assert_close(exact, left * expected @ right)
    # A rounding of G, whose eigenvalues near 0 are multiplied by a² from one iteration to the next.
    roundings = max(shape) * a ** (2 * ITERATIONS - 2) * torch.finfo(torch.float32).eps
    assert (orthogonalized(matrix(*shape)) - exact).abs().max() <= roundings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_all_products_are_in_its_precision(dtype: torch.dtype) -> None:
    weights = nn.Parameter(matrix(4, 6))
    weights.grad = matrix(4, 6)
    optimizer = muon(weights, dtype)
    with seen_products() as seen:
        optimizer.step()
    assert seen == {dtype}
    assert weights.dtype == torch.float32


def test_a_zero_gradient_only_decays() -> None:
    weights = nn.Parameter(torch.ones(2, 3))
    weights.grad = torch.zeros(2, 3)
    muon(weights, torch.float32).step()
    torch.testing.assert_close(weights.detach(), torch.full((2, 3), 0.98))


def test_matrices_without_gradients_stay() -> None:
    weights = nn.Parameter(torch.ones(2, 3))
    muon(weights, torch.float32).step()
    assert torch.equal(weights, torch.ones(2, 3))
