"""Gates of heads: Hard Concrete variables, and the loss that they minimize.

The other measures of importance are tested with the pruning that uses them."""

from functools import partial

import pytest
import torch

from regard import edits
from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds
from regard.edits.apply import edited
from regard.edits.head_importance import (
    gate_importance,
    gated_loss,
    loss_of,
    mean_worth,
    open_probability,
    sampled_gates,
)
from tiny_edited import mechanism_run

BATCH = Batch(
    {"input_ids": PaddedIds.of([[3, 4, 5, 6], [4, 3, 6]], 0)},
    torch.tensor([[4, 5, 6, 7], [3, 6, 8, IGNORE]]),
)


def test_gates_are_zero_and_one_as_often_as_their_formula_says() -> None:
    log_alpha = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    gates = sampled_gates(log_alpha, 20_000, torch.Generator().manual_seed(0))
    assert gates.min() == 0
    assert gates.max() == 1
    bound = 4 * 0.5 / 20_000**0.5  # four standard deviations
    shares = (gates != 0).double().mean(0)
    torch.testing.assert_close(shares, open_probability(log_alpha), atol=bound, rtol=0)
    # The stretched interval is symmetric: a gate is 1 as often as one with −log α is 0.
    ones = (gates == 1).double().mean(0)
    torch.testing.assert_close(ones, 1 - open_probability(-log_alpha), atol=bound, rtol=0)


def test_gradients_reach_the_gates_of_every_layer() -> None:
    """Each slope is a central difference with the same draws; the penalty's part is its own."""
    run = mechanism_run("gated-softmax", n_heads=4, n_kv_heads=2)
    log_alphas = {
        place: torch.tensor([0.3, 1.0], dtype=torch.float64, requires_grad=True)
        for place in ("decoder.0", "decoder.1")
    }

    def loss(of: dict[str, torch.Tensor], penalty: float = 0.1) -> torch.Tensor:
        draw = torch.Generator().manual_seed(2)
        return gated_loss(run.model, BATCH, of, penalty, draw)

    @torch.no_grad()
    def value(place: str, shift: torch.Tensor) -> float:
        return float(loss(log_alphas | {place: log_alphas[place] + shift}))

    slopes = torch.autograd.grad(loss(log_alphas), list(log_alphas.values()))
    for place, slope in zip(log_alphas, slopes, strict=True):
        for group, step in enumerate(1e-5 * torch.eye(2, dtype=torch.float64)):
            expected = (value(place, step) - value(place, -step)) / 2e-5
            assert float(slope[group]) == pytest.approx(expected, abs=1e-7)
    price = sum(open_probability(one).sum() for one in log_alphas.values())
    added = loss(log_alphas, 0.5) - loss(log_alphas, 0.1)
    torch.testing.assert_close(added, 0.4 * price)
    assert all(parameter.grad is None for parameter in run.model.parameters())


@torch.no_grad()
def test_open_gates_leave_the_loss_as_it_is() -> None:
    run = mechanism_run("softmax", n_kv_heads=2)
    open_ = {f"decoder.{i}": torch.full((2,), 50.0, dtype=torch.float64) for i in (0, 1)}
    draw = torch.Generator().manual_seed(0)
    found = gated_loss(run.model, BATCH, open_, 0.0, draw)
    assert float(found) == loss_of(run.model, [BATCH])  # the same operations, and factors of 1


@pytest.mark.parametrize("sign", [1, -1])
def test_the_default_penalty_is_what_a_group_saves_on_average(sign: int) -> None:
    """Of labels that the model predicts; of those that it excludes, heads save nothing."""
    run = mechanism_run("softmax", n_kv_heads=2)
    with torch.no_grad():
        logits = run.language_model(BATCH.input_ids)
    labels = (sign * logits).argmax(-1).masked_fill(BATCH.labels == IGNORE, IGNORE)
    batch = Batch(BATCH.inputs, labels)
    own = loss_of(run.model, [batch])
    zeros = [edits.zero(f"decoder.{i}.heads.{head}") for i in (0, 1) for head in (0, 1)]
    with edited(run, edits.Edits(tuple(zeros))):
        saved = loss_of(run.model, [batch]) - own
    assert saved * sign > 0
    assert mean_worth(run.model, [batch]) == pytest.approx(max(saved / 4, 0), abs=1e-12)


def test_a_seed_reproduces_the_gates() -> None:
    run = mechanism_run("softmax", n_kv_heads=2)
    learn = partial(gate_importance, run.model, [BATCH, BATCH.without_loss()], steps=3)
    first, again, other = learn(seed=1), learn(seed=1), learn(seed=2)
    for place, values in first.items():
        assert torch.equal(values, again[place])
        assert not torch.equal(values, other[place])
        assert values.isfinite().all()
