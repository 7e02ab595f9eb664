"""Batches made ahead, and that nothing in a step mixes devices or waits for the GPU."""

import threading
from typing import Any

import numpy as np
import pytest
import torch

from regard.data.batch import Batch, RowFormat, Sampler, WeightedDataset, move
from regard.data.causal import CausalExample, Documents
from regard.dropout import Dropout, dropouts, set_row_keys
from regard.environment import ExecutionEnvironment
from regard.training.processes import Processes
from regard.training.step import PrefetchedBatches, StepBatch, StepBatches, batches_kind, best_parts
from tiny_families import COVERING, MODELS, tiny, tiny_batch
from tiny_models import tiny_model

CPU = ExecutionEnvironment(torch.device("cpu"), torch.float32)
META = torch.device("meta")
WAITING = (
    "decoder, tied",  # kernel attention checks its sums, unless it is compiled
    "encoder-decoder: lm",
    "encoder-decoder, post: lm",
    "rnn, lstm, both ways",  # torch's packed sequences take lengths from the CPU
    "rnn-encoder-decoder, attention",
)
"""Models of which a step waits for the GPU."""


DROPOUTS = (Dropout(0.1), Dropout(0.1))


class Recorded(Documents):
    """Documents that note the threads that make examples, and fail on request."""

    threads: set[str]
    failing = False

    def example(self, index: int, rng: Any) -> CausalExample:
        self.threads.add(threading.current_thread().name)
        if self.failing:
            raise OSError("the disk is gone")
        return super().example(index, rng)


def batches(kind: type[StepBatches], rank: int = 0, size: int = 1) -> tuple[StepBatches, Recorded]:
    texts = [[(i * j) % 7 + 2 for j in range(i + 3)] for i in range(10)]
    dataset = Recorded(texts, RowFormat(8, 0))
    dataset.threads = set()
    sampler = Sampler([WeightedDataset(dataset)], batch_size=4, seed=3, steps=9)
    made = kind(sampler, Processes(rank, size), CPU, accumulation=2, seed=3, dropouts=DROPOUTS)
    return made, dataset


def content(batch: StepBatch) -> list[torch.Tensor]:
    parts = [batch.whole, *batch.parts]
    ids = [x for part in parts for x in (part.input_ids, part.labels, part.row_numbers)]
    return [*ids, *batch.row_keys]


def assert_equal(one: StepBatch, other: StepBatch) -> None:
    assert len(content(one)) == len(content(other))
    assert all(map(torch.equal, content(one), content(other)))


@pytest.mark.parametrize(
    ("dtype", "parts"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float64, 8)], ids=str
)
def test_parts_have_as_many_bytes_in_each_precision(dtype: torch.dtype, parts: int) -> None:
    dataset = Documents([[2] * 1025] * 8, RowFormat(1024, 0))
    batch = dataset.collate([dataset.example(i, np.random.default_rng(0)) for i in range(8)])
    assert best_parts(batch, ExecutionEnvironment(torch.device("cpu"), dtype)) == parts


@pytest.mark.parametrize("size", [1, 3])
def test_batches_made_ahead_are_the_same(size: int) -> None:
    for rank in range(size):
        plain, _ = batches(StepBatches, rank, size)
        ahead, dataset = batches(PrefetchedBatches, rank, size)
        ahead.prepare(2)  # as after resuming: what was prepared needn't be used
        for step in (5, *range(9)):
            assert_equal(ahead.get(step), plain.get(step))
            ahead.prepare(step + 1)  # beyond the end too
        ahead.close()
        assert dataset.threads == {"batches_0"}


def test_what_goes_wrong_in_the_thread_is_raised() -> None:
    ahead, dataset = batches(PrefetchedBatches)
    dataset.failing = True
    ahead.prepare(0)
    with pytest.raises(OSError, match="the disk is gone"):
        ahead.get(0)
    ahead.close()


def test_a_cpu_makes_no_batch_ahead() -> None:
    assert batches_kind(CPU) is StepBatches
    gpu = ExecutionEnvironment(torch.device("cuda"), torch.bfloat16)
    assert batches_kind(gpu) is PrefetchedBatches


@pytest.fixture
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without data have none."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)


@pytest.mark.usefixtures("_no_autocast")
@pytest.mark.parametrize("name", [name for name in COVERING if not name.startswith(WAITING)])
def test_a_step_waits_for_nothing_and_mixes_no_devices(name: str) -> None:
    """Tensors without data stand for those of a GPU: asking for a value of one raises."""
    model = tiny(*MODELS[name])
    batch = tiny_batch(model).to(META)
    model.to(META).train().loss(batch).backward()
    assert any(weight.grad is not None for weight in model.parameters())


@pytest.mark.usefixtures("_no_autocast")
def test_dropout_draws_where_the_model_is() -> None:
    plain, _ = batches(StepBatches)
    model = tiny_model(dropout=0.1).to(META).train()
    modules, batch = dropouts(model), plain.get(0)
    assert modules
    for part, keys in zip(batch.parts, batch.row_keys, strict=True):
        set_row_keys(modules[: len(keys)], move(keys, META))
        for module in modules[len(keys) :]:
            module.row_keys = move(keys[0], META)
        model.loss(part.to(META)).backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_targets_are_counted_before_a_batch_moves() -> None:
    plain, _ = batches(StepBatches)
    whole = plain.get(1).whole
    moved: Batch = whole.to(META)
    assert moved.n_targets == whole.n_targets > 0
    assert moved.without_loss().labels.device == META
