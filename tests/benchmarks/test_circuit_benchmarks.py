"""That the studies of circuits measure what they say, on numbers that are known."""

import pytest
import torch
from benchmark_files import (
    indirect_object,
    induction,
    probe_runs,
    prune_translation,
    relu_attention,
    trigger_sinks,
)

from regard.attention.mask import Mask
from regard.tasks.circuit_probes import BigramBackcopyConfig
from tiny_edited import family_run


def test_relu_weights_are_those_of_their_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 5, 4, generator=draw, dtype=torch.float64)
    mask, relu = Mask.causal(), relu_attention.Relu()
    weights = relu.weights(query, key, mask=mask)
    torch.testing.assert_close(weights, relu.reference(query, key, mask, None))
    assert weights[0, 0, 3, 0] == pytest.approx(max(float(query[0, 0, 3] @ key[0, 0, 0]), 0) / 8)


def test_the_excess_loss_of_the_chain_itself_is_zero() -> None:
    task = BigramBackcopyConfig(vocabulary=6, triggers=2)
    p = torch.from_numpy(task.transitions)
    ids = torch.tensor([[3, 4, 5]])
    expected_loss = -(p * torch.where(p > 0, p, 1).log()).sum(1)[ids]
    chosen = torch.ones_like(ids, dtype=torch.bool)
    assert trigger_sinks.excess_loss(task, ids, expected_loss, chosen) == pytest.approx(0)
    assert trigger_sinks.excess_loss(task, ids, expected_loss + 1, chosen) == pytest.approx(1)


def test_half_way_is_the_first_step_nearer_to_the_end() -> None:
    losses, scores = (3.0, 2.6, 1.4, 1.0), (0.0, 0.1, 0.3, 0.8)
    points = [
        induction.Point(20 * i, loss, 0.0, score, 0.0)
        for i, (loss, score) in enumerate(zip(losses, scores, strict=True))
    ]
    assert induction.half_way(points, "loss") == 40
    assert induction.half_way(points, "induction") == 60


def test_attention_to_names_is_by_role() -> None:
    """The answer is first in one row, second in the other."""
    tokens = torch.tensor([[0, 5, 6, 6, 1], [0, 5, 6, 5, 1]])
    labels = torch.full_like(tokens, -100)
    labels[:, -1] = torch.tensor([5, 6])
    weights = torch.zeros(2, 5, 5)
    weights[:, -1] = torch.tensor([[0.0, 0.5, 0.1, 0.4, 0.0], [0.0, 0.2, 0.7, 0.1, 0.0]])
    rows = probe_runs.Rows(tokens, labels)
    assert indirect_object.to_names(weights, rows) == pytest.approx([0.6, 0.15, 0.25])


def test_a_random_order_has_each_unit_once_and_keeps_one_of_each_layer() -> None:
    run = family_run("encoder-decoder")
    orders = [prune_translation.random_order(run, seed) for seed in range(5)]
    groups = [sorted(group for unit in units for group in unit.groups) for units in orders]
    assert all(found == groups[0] for found in groups)
    assert len(set(groups[0])) == len(groups[0])
    assert len({tuple(unit.groups for unit in units) for units in orders}) > 1
    for units in orders:
        last = [unit.is_last for unit in units]
        assert any(last)
        assert last == sorted(last), "the last of each layer comes at the end"
