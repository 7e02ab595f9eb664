"""Operations are those of the formulas, forward and backward."""

import pytest
import torch

from regard.data.batch import Batch, PaddedIds
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.models.layers import Layer
from regard.operations import OperationCounter
from regard.training.optimizers import orthogonalized
from regard.training.throughput import TrainingCost

SIZE = DecoderConfig(context_length=16, n_layers=2, n_heads=3, d_model=12, dropout=0.0, d_ff=20)


def test_products_and_convolutions_count_twice_per_multiplication() -> None:
    x, y = torch.ones(3, 5), torch.ones(5, 7)
    with OperationCounter() as counter:
        x @ y
        torch.nn.functional.conv1d(torch.ones(1, 2, 9), torch.ones(4, 2, 3))
        x.exp().sum()
    assert counter.total == 2 * 3 * 5 * 7 + 2 * 4 * 2 * 3 * 7


def test_fused_recurrences_count_their_products() -> None:
    """On a CPU, one operator of oneDNN computes a whole layer of an LSTM."""
    lstm, x = torch.nn.LSTM(3, 4, batch_first=True), torch.ones(2, 5, 3, requires_grad=True)
    forward = 2 * 2 * 5 * 16 * (3 + 4)
    with OperationCounter() as counter:
        out, _ = lstm(x)
    assert counter.total == forward
    with OperationCounter() as counter:
        out.sum().backward()
    initial = 2 * 2 * 16 * 4  # the gradient of the initial state, which oneDNN computes too
    assert 2 * forward - initial <= counter.total <= 2 * forward
    with torch.inference_mode(), OperationCounter() as counter:
        lstm(x)
    assert counter.total == forward


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_training_step_costs_its_formula(recomputed: bool) -> None:
    """In the backward pass, the fused kernel computes its scores again.

    A checkpointed layer computes all again but its last product.
    """
    model = LanguageModel(SIZE, 11)
    for layer in model.body.modules():
        if recomputed and isinstance(layer, Layer):
            layer.gradient_checkpointing = True
    ids = torch.randint(11, (4, 16))
    batch = Batch({"input_ids": PaddedIds(ids, torch.full((4,), 16), 0)}, ids.clone())
    cost = TrainingCost.of(model, SIZE)
    assert cost is not None
    with OperationCounter() as counter:
        model.loss(batch).backward()
    scores = 2 * cost.attention * batch.pairs
    last = SIZE.n_layers * 20 * SIZE.d_model
    again = recomputed * (2 * (cost.body - last) * batch.positions + 2 * scores)
    assert counter.total == cost.operations(batch) + scores + again


def test_orthogonalization_counts() -> None:
    with OperationCounter() as counter:
        orthogonalized(torch.randn(8, 8))
    assert counter.total == 5 * 3 * 2 * 8**3
