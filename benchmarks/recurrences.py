"""Gated linear recurrences against the loop over time and SDPA. Run by `make bench`.

8 heads of width 64, one causal row, float32, keys of length 1. The loop applies each token's update
to the state, one after the other, on one thread: its matrices are too small for more. It is timed
at the first length only, and with backward once.

    python benchmarks/recurrences.py [--lengths 4096 8192 16384] [--rounds 5] [--device cpu]
                                     [--out DIR]

Prints a table, and writes recurrences.json into docs/figures.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

import measure
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from regard.attention import (
    RWKV7,
    DeltaNet,
    GatedDeltaNet,
    GatedDeltaNet2,
    GatedLinear,
    KimiDelta,
    Mamba2,
    Mask,
)
from regard.attention.gated import RecurrentAttention

HEADS, D = 8, 64
MECHANISMS = (Mamba2, GatedLinear, DeltaNet, GatedDeltaNet, KimiDelta, GatedDeltaNet2, RWKV7)
SDPA = "SDPA"


def inputs(
    attend: RecurrentAttention | None,
    n: int,
    device: torch.device,
    *,
    learned: bool,
    dtype: torch.dtype = torch.float32,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Queries, keys and values, and gates; decays of e^(−0.3) at most."""
    query, key, value = torch.randn(3, 1, HEADS, n, D, device=device)
    key, gates = F.normalize(key, dim=-1), {}
    for gate in attend.gates if attend else ():
        drawn = torch.rand(gate.shape(query, key, value), device=device)
        if gate.name == "log_decay":
            drawn = -0.3 * drawn
        gates[gate.name] = F.normalize(drawn - 0.5, dim=-1) if gate.low == -1 else drawn
    tensors = [x.to(dtype) for x in (query, key, value)]
    for x in (*tensors, *gates.values()):
        x.requires_grad_(learned)
    return tensors, gates


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in the with block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def loop(attend: RecurrentAttention, tensors: list[Tensor], gates: dict[str, Tensor]) -> Tensor:
    """The recurrence as it stands, token by token."""
    query, key, value = tensors
    update = attend.update(key, value, **gates)
    state, outputs = value.new_zeros(1, HEADS, D, D), []
    for t in range(key.shape[2]):
        token = update.each(itemgetter((..., slice(t, t + 1), slice(None))))
        out, state = token.step(query[:, :, t : t + 1] * D**-0.5, state)
        outputs.append(out)
    return torch.cat(outputs, 2)


def call(forward: Callable[[], Tensor], *, backward: bool) -> measure.Call:
    """A call of a function, or of it and its backward pass."""

    def run() -> None:
        if backward:
            forward().sum().backward()
            return
        with torch.no_grad():
            forward()

    return run


def calls(
    n: int, device: torch.device, *, backward: bool, dtype: torch.dtype = torch.float32
) -> dict[str, measure.Call]:
    """SDPA and all mechanisms at a length; gates are in float32."""
    (query, key, value), _ = inputs(None, n, device, learned=backward, dtype=dtype)
    exact = partial(F.scaled_dot_product_attention, query, key, value, is_causal=True)
    made = {SDPA: call(exact, backward=backward)}
    for mechanism in MECHANISMS:
        attend = mechanism()
        tensors, gates = inputs(attend, n, device, learned=backward, dtype=dtype)
        whole = partial(attend, *tensors, mask=Mask.causal(), gates=gates)
        made[attend.name] = call(whole, backward=backward)
    return made


def loops(n: int, device: torch.device, *, backward: bool) -> dict[str, float]:
    """Seconds of the loop, the better of two forward, or of one with backward."""
    found = {}
    for mechanism in (Mamba2, GatedLinear, GatedDeltaNet):
        attend = mechanism()
        tensors, gates = inputs(attend, n, device, learned=backward)
        one = call(partial(loop, attend, tensors, gates), backward=backward)
        rounds = 1 if backward else 3
        with one_thread():
            found[attend.name] = min(measure.seconds(one, device) for _ in range(rounds))
    return found


def main() -> None:
    """Measure, print, write."""
    options = measure.options(__doc__, lengths=(4096, 8192, 16384), rounds=5)
    arguments = measure.parse(options)
    device, rows = torch.device(arguments.device), []
    columns = "tokens", "pass", "mechanism", "ms", "of SDPA", "MiB", "the loop, times as long"
    title = "ms, and ratio to SDPA; 8 heads of width 64, float32, causal"
    table = Table(*columns, title=title)
    for backward in (False, True):
        name = "with backward" if backward else "forward"
        slow = loops(arguments.lengths[0], device, backward=backward)
        for n in arguments.lengths:
            at = calls(n, device, backward=backward)
            times = measure.interleaved(at, arguments.rounds, device)
            for mechanism, taken in times.items():
                ratio = measure.Ratio.of(taken, times[SDPA]).median
                row: dict[str, Any] = {
                    "tokens": n,
                    "pass": name,
                    "mechanism": mechanism,
                    "ms": 1000 * statistics.median(taken),
                    "of_sdpa": ratio,
                    "mib": measure.peak_bytes(at[mechanism], device) / 2**20,
                }
                if n == arguments.lengths[0] and mechanism in slow:
                    row["loop"] = slow[mechanism] / statistics.median(taken)
                rows.append(row)
                shown = f"{row['loop']:.1f}" if "loop" in row else ""
                figures = f"{row['ms']:.0f}", f"{ratio:.2f}", f"{row['mib']:.0f}"
                table.add_row(str(n), name, mechanism, *figures, shown)
    Console(width=120).print(table)
    measure.save(
        arguments.out,
        "recurrences",
        {
            "machine": measure.describe(device),
            "setting": {"rounds": arguments.rounds, "heads": HEADS, "d": D},
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
