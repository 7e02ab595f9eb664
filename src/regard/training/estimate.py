"""Time and memory of a training, by timing parts of its steps."""

import time
from collections.abc import Callable
from math import isfinite

import torch

from regard.device import peak_memory_mb
from regard.environment import ExecutionEnvironment
from regard.training.optimizers import make_optimizers
from regard.training.plan import Plan
from regard.training.step import accumulate_gradients, best_parts

TIMED = 2
"""Number of timed calls, after an untimed one, which allocates memory."""


def estimate_training(plan: Plan, environment: ExecutionEnvironment) -> dict[str, float]:
    """Return seconds per step, hours without validation, and peak memory in MB, where it is known.

    The gradients of one micro-batch and the update of the weights are timed. On a GPU, the memory
    is that of the GPU. The updates change the plan's model: don't execute the plan afterwards.
    """
    config, dtype = plan.run.recipe.training, torch.float64 if environment.is_double else None
    model = plan.run.model.to(environment.device, dtype)
    optimizers = make_optimizers(model, config, environment.dtype)
    batch = plan.sampler.batch(0)
    parts = batch.split(best_parts(batch, environment, config.accumulation))

    def update() -> None:
        for optimizer in optimizers:
            optimizer.step()

    model.train()

    def add_gradients() -> None:
        last = parts[-1]
        accumulate_gradients(model.loss, [last], last.n_targets, environment)

    gradients = _seconds(add_gradients, environment)
    seconds = len(parts) * gradients + _seconds(update, environment)
    needs = {
        "seconds_per_step": seconds,
        "hours": seconds * plan.sampler.steps / 3600,
        "memory_mb": peak_memory_mb(environment.device),
    }
    return {name: value for name, value in needs.items() if isfinite(value)}


def _seconds(call: Callable[[], object], environment: ExecutionEnvironment) -> float:
    """Return the mean time of a call."""
    call()
    _wait(environment)
    started = time.perf_counter()
    for _ in range(TIMED):
        call()
    _wait(environment)
    return (time.perf_counter() - started) / TIMED


def _wait(environment: ExecutionEnvironment) -> None:
    if environment.device.type == "cuda":
        torch.cuda.synchronize(environment.device)
