"""Choices of regard.device and of decoding, each against its plain path. Two minutes.

    python benchmarks/choices.py [--threads 2] [--rounds 9]

Prints a table in Markdown: the time of each choice over that of the plain path, at several sizes,
median and quartiles over rounds. Below 1 the choice is faster; device.py states where it is made.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import NamedTuple

import measure
import torch
import torch.nn.functional as F
from torch import Tensor

import training
from regard import device
from regard.attention import Mask
from regard.attention.backends import eager, sdpa
from regard.environment import bfloat16_gain, processor_name
from regard.models.config import DecoderConfig
from regard.training.optimizers import _iterate, _iterate_gram

CPU, SCALE = torch.device("cpu"), 32**-0.5


class Pair(NamedTuple):
    """A choice, the plain path, and the size at which both are timed."""

    name: str
    size: str
    choice: measure.Call
    plain: measure.Call


def activations() -> Iterator[Pair]:
    """GELU of few activations by torch's own kernel, which takes tensors that aren't contiguous."""
    for n in (1 << 10, 1 << 12, 1 << 14, 1 << 16):
        x = torch.randn(n)
        apart = x.as_strided((n // 2, 2), (1, n // 2))
        yield Pair("torch's GELU", f"{n:,}", partial(F.gelu, apart), partial(F.gelu, x))


def caches() -> Iterator[Pair]:
    """A query per row that reads a cache, by products."""
    for rows, keys in ((1, 64), (1, 1024), (16, 128), (64, 128), (1, 16384)):
        query, key, value = (torch.randn(rows, 8, n, 32) for n in (1, keys, keys))
        yield Pair(
            "cache read by products",
            f"{value.numel():,} values, {rows} rows",
            partial(eager, query, key, value, None, scale=SCALE),
            partial(sdpa, query, key, value, scale=SCALE),
        )


def short_rows(dtype: torch.dtype) -> Iterator[Pair]:
    """Causal attention by products, forward and backward."""
    for rows, keys in ((64, 16), (64, 64), (32, 128), (16, 256)):
        packed = torch.randn(rows, keys, 3, 8, 32, dtype=dtype, requires_grad=True)
        bars = torch.zeros(keys, keys, dtype=dtype)
        bars = bars.masked_fill(~Mask.causal().to_dense(keys, keys, CPU)[0, 0], float("-inf"))

        by_products = partial(eager, add=bars[None, None], scale=SCALE)
        fused = partial(sdpa, causal=True, scale=SCALE)
        name = str(dtype).removeprefix("torch.")
        calls = (partial(_gradient, attend, packed) for attend in (by_products, fused))
        yield Pair(f"attention by products, {name}", f"{keys} keys", *calls)


def _gradient(attend: Callable[..., Tensor], packed: Tensor) -> Tensor:
    out = attend(*packed.permute(2, 0, 3, 1, 4))
    return torch.autograd.grad(out, packed, out.detach())[0]


def orthogonalization() -> Iterator[Pair]:
    """Newton-Schulz on Gram matrices."""
    for m, n in ((128, 128), (128, 384), (256, 512), (256, 1024)):
        x = torch.randn(m, n)
        x /= x.norm()
        yield Pair(
            "Newton-Schulz on the Gram matrix",
            f"{m} × {n}",
            partial(_iterate_gram, x),
            partial(_iterate, x),
        )


def parts() -> Iterator[Pair]:
    """A training step in parts of 2,048 tokens, over parts of other sizes."""
    for tokens in (1024, 4096, 8192):
        for padded in (False, True):
            rows = "rows of 20 to 128 tokens" if padded else "rows of 128 tokens"
            yield Pair(
                "step in parts of 2,048 tokens",
                f"over {tokens:,}, {rows}",
                training_step(device.PART_BYTES, padded=padded),
                training_step(4 * tokens, padded=padded),
            )


def training_step(part_bytes: int, *, padded: bool = False, dropout: float = 0.0) -> measure.Call:
    """Return a step of the model of benchmarks/training.py with 64 rows, in such parts."""
    chosen, device.PART_BYTES = device.PART_BYTES, part_bytes
    case = training.Case(precision="float32", padded=padded, dropout=dropout)
    config = DecoderConfig(n_layers=4, n_heads=8, d_model=256, dropout=dropout)
    model = training.ours(case, config, CPU)
    step = training.our_step(model, case.batch(config.context_length, 64), case.environment(CPU))
    device.PART_BYTES = chosen
    return step


def kept_memory(rounds: int, threads: int) -> measure.Ratio:
    """Return the time of a step with freed memory kept over that without, by turns of processes."""
    times: dict[str, list[float]] = {"kept": [], "returned": []}
    for _ in range(rounds):
        for name, found in times.items():
            command = [sys.executable, __file__, "--threads", str(threads), "--memory", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout))
    return measure.Ratio.of(times["kept"], times["returned"])


def memory_step(*, kept: bool) -> float:
    """Return the time of a step with dropout in this process."""
    with device.freed_memory_reused() if kept else nullcontext():
        step = training_step(device.PART_BYTES, dropout=0.1)
        step()
        return measure.seconds(step, CPU, 5)


def main() -> None:
    """Measure all, and print the table."""
    parser = measure.options(__doc__, rounds=9)
    parser.add_argument("--memory", choices=("kept", "returned"), help="a step in this process")
    given = measure.parse(parser)
    if given.memory:
        print(memory_step(kept=given.memory == "kept"))
        return
    print(f"| {processor_name(CPU)}, {given.threads} threads | size | time over plain |")
    print("|---|---|---|")
    narrow = short_rows(torch.bfloat16)
    for pair in chain(
        activations(),
        caches(),
        short_rows(torch.float32),
        narrow if bfloat16_gain(CPU) > 1 else (),
        orthogonalization(),
        parts(),
    ):
        times = measure.interleaved({"choice": pair.choice, "plain": pair.plain}, given.rounds, CPU)
        print(row(pair.name, pair.size, measure.Ratio.of(times["choice"], times["plain"])))
    kept = kept_memory(given.rounds, given.threads)
    print(row("freed memory kept", "step with dropout", kept))


def row(name: str, size: str, ratio: measure.Ratio) -> str:
    """Return a line of the table."""
    return f"| {name} | {size} | {ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f}) |"


if __name__ == "__main__":
    main()
