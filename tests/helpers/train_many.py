"""Train small models of all families; several processes run this script under torchrun.

train_many.py OUT KIND [NAME…]      each run is OUT/NAME, and OUT/NAME.RANK.rows what a process read
"""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from plans import plan_task
from regard.data import IGNORE
from regard.data.batch import Batch, Sampler
from regard.environment import ExecutionEnvironment
from regard.training.loop import ExecutionOptions
from regard.training.processes import Processes, join_processes
from regard.training.replica import ParallelKind
from regard.training.step import StepBatch, StepBatches
from tiny_tasks import task_recipe

DROPOUT = ("model.dropout=0.2",)
SIDES = ("model.encoder.dropout=0.2", "model.decoder.dropout=0.2")
HYBRID = "model.pattern=gated-deltanet+softmax"
BESIDE = (
    "model.canon=ABCD",
    "model.value_residual=true",
    "model.value_embedding=true",
    "model.ngrams.slots=50",
)
CASES = {
    "decoder": ("summaries", "decoder", *DROPOUT),
    "accumulation": ("casing", "decoder", *DROPOUT, "training.accumulation=3"),
    "a process without rows": ("casing", "decoder", *DROPOUT, "training.batch=1"),
    "muon": ("casing", "decoder", *DROPOUT, "training.optimizer.kind=muon"),
    "checkpointed": ("casing", "decoder", *DROPOUT, "training.gradient_checkpointing=true"),
    "encoder": ("classification", "encoder, classification", *DROPOUT),
    "tags": ("tagging", "encoder, tags", *DROPOUT),
    "contrastive": ("retrieval", "encoder, embedding"),
    "encoder-decoder": ("casing", "encoder-decoder", *SIDES),
    "gru": ("casing", "rnn", *DROPOUT, "model.n_layers=2"),
    "fixed window": ("casing", "fixed-window", *DROPOUT),
    "gru to gru": ("casing", "rnn-encoder-decoder", *DROPOUT),
    "hybrid": ("casing", "decoder", *DROPOUT, "model.n_layers=2", HYBRID),
    "beside attention": ("casing", "decoder", *DROPOUT, "model.n_layers=3", *BESIDE),
}
"""Task, family and settings."""
SETTINGS = ("training.steps=6", "training.batch=7", "training.checkpoint_every=3")


class RecordedBatches(StepBatches):
    """Batches whose rows with loss are also written to a file, in a line each."""

    def __init__(
        self, path: Path, sampler: Sampler, processes: Processes, *args: Any, **choices: Any
    ) -> None:
        super().__init__(sampler, processes, *args, **choices)
        self._path = path.with_name(f"{path.name}.{processes.rank}.rows")

    def get(self, step: int) -> StepBatch:
        made = super().get(step)
        with self._path.open("a") as file:
            file.writelines(f"{step} {row}\n" for part in made.parts for row in rows_of(part))
        return made


def rows_of(batch: Batch) -> Iterator[tuple[int, dict[str, list[int]], Any]]:
    """Yield the number, the ids and the labels of each row with loss, without padding."""
    for row, number in enumerate(batch.row_numbers.tolist()):
        labels = batch.labels[number if batch.in_batch_negatives else row]
        if labels.ndim:
            labels = labels[: 1 + max((labels != IGNORE).nonzero().flatten().tolist(), default=-1)]
        if labels.ndim == 0 or len(labels):
            ids = {
                name: field.ids[row, : field.lengths[row]].tolist()
                for name, field in batch.inputs.items()
            }
            yield number, ids, labels.tolist()


def train_many(out: Path, kind: ParallelKind, names: list[str]) -> None:
    """Train models one after another, in float64."""
    environment = ExecutionEnvironment(torch.device("cpu"), torch.float64)
    options = ExecutionOptions(
        environment=environment, quiet=True, parallel=kind, tensorboard=False
    )
    for name in names:
        task, family, *own = CASES[name]
        plan = plan_task(out / name, task_recipe(task, family, *SETTINGS, *own))
        recorded = partial(RecordedBatches, out / name)
        with patch("regard.training.loop.batches_kind", lambda _, recorded=recorded: recorded):
            plan.execute(options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    join_processes()
    train_many(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or list(CASES))  # type: ignore[arg-type]
