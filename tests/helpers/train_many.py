"""Train small models of all families; several processes run this script under torchrun.

train_many.py OUT KIND [NAME…]      each run is OUT/NAME
"""

import sys
from pathlib import Path

import torch

from regard.runs.run import ExecutionEnvironment
from regard.training.loop import ExecutionOptions
from regard.training.plan_task import plan_task
from regard.training.processes import join_processes
from regard.training.replica import ParallelKind
from tiny_tasks import task_recipe

DROPOUT = ("model.dropout=0.2",)
SIDES = ("model.encoder.dropout=0.2", "model.decoder.dropout=0.2")
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
    "delta rule": ("casing", "decoder", *DROPOUT, "model.attention.kind=gated-deltanet"),
}
"""Task, family and settings."""
SETTINGS = ("training.steps=30", "training.batch=7", "training.checkpoint_every=15")


def train_many(out: Path, kind: ParallelKind, names: list[str]) -> None:
    """Train models one after another, in float64."""
    environment = ExecutionEnvironment(torch.device("cpu"), torch.float64)
    options = ExecutionOptions(
        environment=environment, quiet=True, parallel=kind, tensorboard=False
    )
    for name in names:
        task, family, *own = CASES[name]
        plan_task(out / name, task_recipe(task, family, *SETTINGS, *own)).execute(options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    join_processes()
    train_many(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or list(CASES))  # type: ignore[arg-type]
