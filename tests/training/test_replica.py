"""Each process's share of a batch."""

from copy import deepcopy
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.score_config import TopKConfig
from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds, RowFormat
from regard.data.causal import CausalDataset, predict_all
from regard.models.builders import LanguageModel
from regard.training.processes import Processes
from regard.training.replica import Replica, share
from tiny_models import VOCABULARY, tiny_model


def batch_of(lengths: list[int]) -> Batch:
    """Rows whose first id is their number."""
    rows = [[number, *[99] * (n - 1)] for number, n in enumerate(lengths)]
    return CausalDataset([], RowFormat(20, 98)).collate([predict_all(row) for row in rows])


def shares(batch: Batch, parts: int, size: int) -> list[list[Batch]]:
    return [share(batch, parts, Processes(rank, size)) for rank in range(size)]


LENGTHS = st.lists(st.integers(2, 20), min_size=1, max_size=9)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(LENGTHS, st.integers(1, 4), st.integers(1, 5))
def test_each_row_is_trained_on_once(lengths: list[int], parts: int, size: int) -> None:
    batch = batch_of(lengths)
    made = [part for own in shares(batch, parts, size) for part in own]
    trained = [part for part in made if part.n_targets]
    numbers = [n for part in trained for n in part.row_numbers.tolist()]
    assert sorted(numbers) == list(range(len(lengths)))
    assert sum(part.n_targets for part in made) == batch.n_targets
    for part in trained:
        assert torch.equal(part.input_ids[:, 0], batch.input_ids[part.row_numbers, 0])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(LENGTHS, st.integers(1, 4), st.integers(1, 5))
def test_processes_have_as_many_parts_of_about_one_size(
    lengths: list[int], parts: int, size: int
) -> None:
    """They communicate in each part, so one without rows repeats some without loss."""
    made = shares(batch_of(lengths), parts, size)
    assert len({len(own) for own in made}) == 1
    for together in zip(*made, strict=True):
        rows = [len(part.labels) for part in together]
        assert max(rows) - min(rows) <= 1
        assert all(part.positions > 0 for part in together)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 5))
def test_rows_that_are_each_other_s_negatives_keep_their_order(n: int, size: int) -> None:
    ids = torch.arange(n)[:, None].expand(n, 3)
    field = PaddedIds(ids, torch.full((n,), 3), 0)
    batch = Batch({"questions": field, "documents": field}, torch.arange(n), True)
    owns = [own[0] for own in shares(batch, 1, size)]
    together = torch.stack([own.inputs["documents"].ids for own in owns], 1).flatten(0, 1)
    assert torch.equal(together[:n], ids)
    assert all(torch.equal(own.labels, batch.labels) for own in owns)


def test_a_batch_without_loss_has_no_targets() -> None:
    batch = batch_of([3, 5]).without_loss()
    assert batch.n_targets == 0
    assert set(batch.labels.flatten().tolist()) == {IGNORE}


def test_one_process_sums_its_own_values() -> None:
    alone, calls = Processes(), []
    assert alone.sum(1.5, True) == [1.5, True]
    alone.alone(lambda: calls.append(1))
    assert alone.in_turn(lambda: 7) == 7
    alone.require_equal(recipe="a")
    assert calls == [1]
    with pytest.raises(ValueError, match="x"):
        alone.alone(lambda: int("x"))


def gradients(model: LanguageModel, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    named = model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def indexed_model(vocabulary: int = VOCABULARY) -> LanguageModel:
    return tiny_model(attention=TopKConfig(k=3, indexer_heads=2), vocabulary=vocabulary).train()


def rows_of(*rows: list[int]) -> Batch:
    return CausalDataset([], RowFormat(VOCABULARY, 0)).collate(list(map(predict_all, rows)))


@pytest.mark.parametrize("recomputed", [False, True], ids=["kept", "recomputed"])
def test_an_indexer_is_trained_by_its_own_loss(recomputed: bool) -> None:
    """The value and all other gradients are those of the model's loss."""
    model, one = indexed_model(), Processes(0, 1)
    for layer in model.body.layers:  # type: ignore[union-attr]
        layer.gradient_checkpointing = recomputed
    batch = rows_of([1, 2, 3, 4, 5], [5, 3, 1, 2, 4])
    with torch.no_grad():
        expected = model.loss(batch)
    plain = gradients(model, model.loss(batch))
    step = Replica(model, one).loss
    for _ in range(2):
        loss = step(batch)
        torch.testing.assert_close(loss.detach(), expected)
        found = gradients(model, loss)
    indexer = {name for name in found if ".gating." in name}
    assert len(indexer) == 2
    assert not indexer & plain.keys()
    assert all(bool(found[name].any()) for name in indexer)
    for name in plain:
        torch.testing.assert_close(found[name], plain[name])


def indexer_gradients(model: LanguageModel, batch: Batch) -> dict[str, torch.Tensor]:
    found = gradients(model, Replica(model, Processes(0, 1)).loss(batch))
    return {name: gradient for name, gradient in found.items() if ".gating." in name}


def test_padding_trains_no_indexer() -> None:
    """The gradients of rows of unequal length are the sums of those of each row alone."""
    model, rows = indexed_model(), ([5, 3, 1, 2, 4, 1, 3, 2, 1], [1, 2, 3, 4])
    together = indexer_gradients(model, rows_of(*rows))
    alone = [indexer_gradients(model, rows_of(row)) for row in rows]
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, alone[0][name] + alone[1][name])


def test_a_batch_without_targets_trains_no_indexer() -> None:
    model, batch = indexed_model(100), batch_of([5, 4]).without_loss()
    assert not any(gradient.any() for gradient in indexer_gradients(model, batch).values())


def test_auxiliary_losses_never_linger() -> None:
    """Neither after a backward pass that recomputes them, nor after an interrupted step."""
    model, batch = indexed_model(), rows_of([1, 2, 3, 4, 5])
    layers: Any = model.get_submodule("body.layers")
    for layer in layers:
        layer.gradient_checkpointing = True
    indexer_gradients(model, batch)
    mechanisms = [layer.self_attention.attention for layer in layers]
    assert all(mechanism.auxiliary_losses is None for mechanism in mechanisms)
    hook = model.head.register_forward_pre_hook(Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Replica(model, Processes(0, 1)).loss(batch)
    hook.remove()
    assert all(mechanism.auxiliary_losses is None for mechanism in mechanisms)
    deepcopy(model)
