"""Time that a checkpoint adds to a training of some 50 million weights.

    python benchmarks/checkpoint.py [--steps 24] [--every 8]

prints the figures of `docs/processes.md`.
"""

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regard.config import override
from regard.runs.recipes import RECIPES
from regard.runs.run import ExecutionEnvironment
from regard.text.corpus import Document
from regard.training import loop
from regard.training.plan import plan_pretraining

LARGE = (
    "model.d_model=768",
    "model.n_layers=7",
    "model.n_heads=12",
    "model.dropout=0",
    "data.validation=0",
    "pretraining.batch=4",
    "pretraining.log_every=1000",
    "objective.questions=0",
    "objective.next_token=1",
    "objective.span_corruption=0",
)


def time_steps(steps: int, every: int, out: Path) -> list[float]:
    """Train, and return the seconds from each step's clipping to that of the next."""
    settings = (*LARGE, f"pretraining.steps={steps}", f"pretraining.checkpoint_every={every}")
    texts = [
        Document(f"{i} times {j} is {i * j}. " * 20, f"{i},{j}")
        for i in range(20)
        for j in range(20)
    ]
    plan = plan_pretraining(texts, out, override(RECIPES["demo"], settings))
    print(f"{plan.run.n_parameters / 1e6:.1f} million weights")
    moments: list[float] = []
    clip = loop.clip_gradients

    def clip_and_note(*args: Any) -> float:
        moments.append(time.perf_counter())
        return clip(*args)

    loop.clip_gradients = clip_and_note
    environment = ExecutionEnvironment(torch.device("cpu"), torch.float32)
    plan.execute(loop.ExecutionOptions(environment=environment, quiet=True, tensorboard=False))
    return [after - before for before, after in pairwise(moments)]


def main() -> None:
    """Print the seconds that a checkpoint adds to its own step, and to all steps together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = time_steps(options.steps, options.every, Path(folder) / "run")
    saving = seconds[options.every - 1 :: options.every]
    step = median(seconds)
    print(f"a step takes {step:.2f} s")
    print(f"a step with a checkpoint takes {median(saving) - step:.2f} s more")
    print(f"each checkpoint adds {(sum(seconds) - step * len(seconds)) / len(saving):.2f} s in all")


if __name__ == "__main__":
    main()
