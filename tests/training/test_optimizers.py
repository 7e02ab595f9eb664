"""Who decays, and how the learning rate runs."""

from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.data.batch import Sampler
from regard.models.builders import LanguageModel
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
from regard.training.optimizers import Schedule, make_optimizers, set_rate
from tiny_families import COVERING, MODELS, tiny, tiny_batch
from tiny_recurrent import CELLS


def make_model(*, tie_head: bool = False) -> LanguageModel:
    config = DecoderConfig(context_length=8, n_layers=2, n_heads=2, d_model=8, tie_head=tie_head)
    return LanguageModel(config, 11)


@pytest.mark.parametrize("tie_head", [False, True])
@pytest.mark.parametrize("optimizer", [AdamWConfig(), MuonConfig()])
def test_every_parameter_is_trained_once(optimizer: OptimizerConfig, tie_head: bool) -> None:
    model = make_model(tie_head=tie_head)
    made = make_optimizers(model, TrainingConfig(steps=1, optimizer=optimizer))
    trained = [id(p) for o in made for group in o.param_groups for p in group["params"]]
    assert sorted(trained) == sorted(id(p) for p in model.parameters())


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


@pytest.mark.parametrize("cell", CELLS)
def test_matrices_of_recurrent_layers_decay(cell: str) -> None:
    model = tiny(*MODELS[f"rnn, {cell}: lm"])
    (adamw,) = make_optimizers(model, TrainingConfig(steps=1))
    decays = {id(p): g["weight_decay"] for g in adamw.param_groups for p in g["params"]}
    assert isinstance(model.body, RecurrentDecoder)
    for parameter in model.body.recurrence.parameters():
        assert decays[id(parameter)] == (0.1 if parameter.ndim == 2 else 0.0)


def test_only_matrices_of_linear_layers_decay() -> None:
    model = make_model()
    (adamw,) = make_optimizers(model, TrainingConfig(steps=1))
    decays = {id(p): g["weight_decay"] for g in adamw.param_groups for p in g["params"]}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            matrix = isinstance(module, nn.Linear) and name == "weight"
            assert decays[id(parameter)] == (0.1 if matrix else 0.0)


def test_a_tied_head_does_not_decay_the_embedding() -> None:
    model = make_model(tie_head=True)
    (adamw,) = make_optimizers(model, TrainingConfig(steps=1))
    decays = {id(p): g["weight_decay"] for g in adamw.param_groups for p in g["params"]}
    assert decays[id(model.head.weight)] == 0.0


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


def test_rates_survive_saving() -> None:
    config = TrainingConfig(steps=1, lr=0.5)
    (one,), (other,) = (make_optimizers(make_model(), config) for _ in range(2))
    set_rate([one], 0.1)
    state = one.state_dict()
    other.load_state_dict(other.state_dict() | {"state": state["state"]})
    set_rate([other], 1.0)
    assert other.param_groups[0]["lr"] == 0.5
    assert isinstance(other, torch.optim.AdamW)
