"""What a training takes, by timing a few of its steps."""

import time

import torch

from regard.runs.environment import ExecutionEnvironment
from regard.runs.memory import peak_memory_mb
from regard.training.loop import accumulate_gradients, best_parts
from regard.training.optimizers import make_optimizers
from regard.training.plan import Plan

TIMED = 2
"""Steps that are timed, after one that isn't: memory is allocated there."""


def estimate_training(plan: Plan, environment: ExecutionEnvironment) -> dict[str, float]:
    """Return seconds per step, hours without validation, and peak memory in MB.

    On a GPU, the memory is its own. The steps change the plan's model: don't execute it afterwards.
    """
    model, steps = plan.run.model.to(environment.device), min(TIMED + 1, plan.sampler.steps)
    optimizers, on_gpu = make_optimizers(model, plan.config), environment.device.type == "cuda"
    model.train()
    started = time.perf_counter()
    for step in range(steps):
        if step == 1:
            started = time.perf_counter()
        batch = plan.sampler.batch(step)
        parts = best_parts(batch, environment, plan.config.accumulation)
        accumulate_gradients(model, batch, environment, parts=parts)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize(environment.device)
    seconds = (time.perf_counter() - started) / max(steps - 1, 1)
    peak = torch.cuda.max_memory_allocated(environment.device) / 2**20 if on_gpu else None
    return {
        "seconds_per_step": seconds,
        "hours": seconds * plan.sampler.steps / 3600,
        "memory_mb": peak_memory_mb() if peak is None else peak,
    }
