"""What this computer does: products, memory, and the demo's work. Takes about a minute.

    python benchmarks/computer.py [--threads 2] [--precision auto]

Needs nothing beside Regard. Prints a table in Markdown, to paste into docs/speed.md or an issue.
The work is that of the demo's model (two layers of width 128, tokens are words). Its share is the
rate of its matrix products over that of large products alone; the rest is memory, other operators
and Python.
"""

import statistics
from typing import NamedTuple

import measure
import torch
from msgspec.structs import replace
from torch.utils.flop_counter import FlopCounterMode

from regard.data.batch import Batch
from regard.decoding.generate import generate_ids
from regard.environment import ExecutionEnvironment, processor_name
from regard.runs.recipes import RECIPES
from regard.tasks.world import QUESTIONS, WorldConfig, make_world
from regard.training.optimizers import clip_gradients, make_optimizers
from regard.training.plan import Plan, plan_training
from regard.training.sources.documents import DocumentSource
from regard.training.step import accumulate_gradients, best_parts, sum_losses

SIZES = {"cpu": 512, "cuda": 8192}
"""Rows and columns of the large products. Emulated ones take a quarter of a second on a CPU."""
COPIED = 2**28
"""Bytes whose copy shows the rate of memory: more than caches hold."""
STEPS, PROMPT, NEW = 20, 8, 32


class Work(NamedTuple):
    """A part of the demo's work."""

    name: str
    call: measure.Call
    tokens: int
    """Read or written by a call, padding included."""


class Measured(NamedTuple):
    """What a computer does of some work."""

    name: str
    tokens_per_second: float
    operations_per_second: float
    """Of matrix products, two for a multiplication and addition."""


def demo_plan() -> Plan:
    """Plan the demo's training on text and questions, without its clozes."""
    world = make_world(WorldConfig())
    asked = world.questions("qa_train", QUESTIONS)
    recipe = replace(RECIPES["demo"], objective=RECIPES["world"].objective)
    return plan_training(DocumentSource(world.documents, asked, index=False), recipe, "unused")


def training(plan: Plan, environment: ExecutionEnvironment) -> Work:
    """Return some steps of the training: gradients, clipping, Muon and AdamW."""
    model, config = plan.run.model, plan.run.recipe.training
    optimizers = make_optimizers(model, config, environment.dtype)
    parameters = dict(model.named_parameters())
    batches = [plan.sampler.batch(step) for step in range(STEPS)]

    def step(batch: Batch) -> None:
        parts = batch.split(best_parts(batch, environment))
        loss = accumulate_gradients(model.loss, parts, batch.n_targets, environment)
        clip_gradients(parameters, config.max_grad_norm, loss, step=0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def steps() -> None:
        model.train()
        for batch in batches:
            step(batch)

    return Work("training", steps, sum(batch.positions for batch in batches))


def evaluation(plan: Plan, environment: ExecutionEnvironment) -> Work:
    """Return the loss of the held-out texts."""
    batches = plan.validation
    tokens = sum(batch.positions for batch in batches)
    return Work("evaluation", lambda: sum_losses(plan.run.model, batches, environment), tokens)


def decoding(plan: Plan, rows: int, environment: ExecutionEnvironment) -> Work:
    """Return the continuation of some prompts, all of one length."""
    model = plan.run.language_model
    prompts = [list(range(10 + row, 10 + row + PROMPT)) for row in range(rows)]

    def write() -> None:
        model.eval()
        with environment.autocast():
            generate_ids(model, prompts, max_new_tokens=NEW, device=environment.device)

    return Work(f"decoding, {rows} row{'s' * (rows > 1)}", write, rows * NEW)


def measured(work: Work, device: torch.device, rounds: int) -> Measured:
    """Time some work by the median of several rounds, and count its products."""
    with FlopCounterMode(display=False) as counter:
        work.call()
    seconds = statistics.median(measure.interleaved({"": work.call}, rounds, device)[""])
    return Measured(work.name, work.tokens / seconds, counter.get_total_flops() / seconds)


def product_rates(device: torch.device) -> dict[torch.dtype, float]:
    """Return the operations per second of large products, by type."""
    types = (torch.float32, torch.bfloat16, torch.float64)
    size = SIZES[device.type]
    return {
        dtype: measure.rate(*measure.square_product(size, device, dtype), device, rounds=3)
        for dtype in types
    }


def table(
    environment: ExecutionEnvironment, rates: dict[torch.dtype, float], done: list[Measured]
) -> str:
    """Return all figures in Markdown."""
    device, precision = environment.device, str(environment.dtype).removeprefix("torch.")
    copied = measure.rate(*measure.copying(COPIED, device), device)
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    lines = [
        f"| {processor_name(device)}{threads}, torch {torch.__version__} | speed | share |",
        "|---|---|---|",
    ]
    lines += [
        f"| products in {str(dtype).removeprefix('torch.')} | {rate / 1e9:,.1f} GFLOP/s | |"
        for dtype, rate in rates.items()
    ]
    lines += [f"| memory, read and written | {copied / 1e9:,.1f} GB/s | |"]
    lines += [
        f"| {one.name} in {precision} | {one.tokens_per_second:,.0f} tokens/s "
        f"| {one.operations_per_second / rates[environment.dtype]:.2f} of products |"
        for one in done
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure all, and print the table."""
    parser = measure.options(__doc__, rounds=5)
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    given = measure.parse(parser)
    environment = ExecutionEnvironment.choose(given.device, given.precision)
    plan = demo_plan()
    plan.run.model.to(environment.device)
    works = [
        training(plan, environment),
        evaluation(plan, environment),
        decoding(plan, 1, environment),
        decoding(plan, 64, environment),
    ]
    rates = product_rates(environment.device)
    done = [measured(work, environment.device, given.rounds) for work in works]
    print(table(environment, rates, done))


if __name__ == "__main__":
    main()
