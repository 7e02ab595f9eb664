"""Time that a training of some 50 million weights waits for a checkpoint.

    python benchmarks/checkpoint.py [--steps 24] [--every 4]

prints the figure of `docs/processes.md`.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regard.environment import ExecutionEnvironment
from regard.text.corpus import Document
from regard.training.checkpoint import CheckpointWriter
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource

LARGE = (
    "model.d_model=768",
    "model.n_layers=7",
    "model.n_heads=12",
    "model.dropout=0",
    "data.validation=0",
    "training.batch=4",
    "training.log_every=1000",
    *("objective.questions=0", "objective.clozes=0", "objective.cloze_relevance=0"),
    "objective.next_token=1",
    "objective.span_corruption=0",
)


def time_checkpoints(steps: int, every: int, out: Path) -> list[float]:
    """Train, and return the seconds that training waits for each checkpoint, the last excepted."""
    settings = (*LARGE, f"training.steps={steps}", f"training.checkpoint_every={every}")
    sums = [(i, j) for i in range(20) for j in range(20)]
    texts = [Document(f"{i} times {j} is {i * j}. " * 20, f"{i},{j}") for i, j in sums]
    plan = plan_training(DocumentSource(texts), "demo", out, settings=settings)
    print(f"{plan.run.n_parameters / 1e6:.1f} million weights")
    seconds: list[float] = []
    save = CheckpointWriter.save

    def timed(*args: Any) -> None:
        started = time.perf_counter()
        save(*args)
        seconds.append(time.perf_counter() - started)

    CheckpointWriter.save = timed  # type: ignore[assignment, method-assign]
    environment = ExecutionEnvironment(torch.device("cpu"), torch.float32)
    plan.execute(ExecutionOptions(environment=environment, quiet=True, tensorboard=False))
    return seconds[:-1]


def main() -> None:
    """Print the seconds that training waits for a checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = time_checkpoints(options.steps, options.every, Path(folder) / "run")
    print(f"training waits {median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
