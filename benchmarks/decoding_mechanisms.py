"""Time of one decoded token of a whole model, by attention mechanism. Run by `make bench`.

Models of 4 layers, 8 heads and width 256, one row, float32, after 128 tokens. All that decode are
timed, interleaved, in Python and by compiled packages (`regard compile`), and compared with
softmax. The floating-point operations of the token are counted.

    python benchmarks/decoding_mechanisms.py [--rounds 15] [--threads 1] [--only KIND …] [--out DIR]

Prints a table, and writes decoding_mechanisms.json, or decoding_mechanisms-KIND.json with --only,
into docs/figures. The packages take some minutes to compile.
"""

import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measure
import msgspec
import torch
from peers import SIZE, VOCABULARY
from rich.console import Console
from rich.table import Table

from regard.attention.config import config_type
from regard.attention.gated import RecurrentAttention
from regard.attention.kernel import KernelAttention
from regard.attention.registry import mechanisms
from regard.decoding.package import PACKAGE, build
from regard.decoding.prepare import prepare
from regard.decoding.step import PackagedModel
from regard.errors import UnsupportedError
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.operations import OperationCounter

BEFORE, NEW = 128, 64
SOFTMAX = "softmax"
GOAL, GOAL_OF_STATES = 1.3, 1.5
"""Largest time over softmax's: with a cache, and with a state of constant size."""
PYTHON, COMPILED = "in Python", "compiled"
Times = dict[str, list[float]]
"""Seconds per token of each mechanism, one a round."""


def kinds() -> dict[str, float]:
    """Mechanisms that decode, and the goal of each."""
    constant = KernelAttention, RecurrentAttention
    return {
        kind: GOAL_OF_STATES if issubclass(one.type, constant) else GOAL
        for kind, one in mechanisms().items()
        if one.type.supports.decoding
    }


def sized(kind: str) -> DecoderConfig:
    """A decoder with a mechanism."""
    attention: Any = config_type(kind)()
    return msgspec.structs.replace(SIZE, context_length=BEFORE + NEW, attention=attention)


def untrained(size: DecoderConfig, device: torch.device) -> LanguageModel:
    """A model of a size."""
    return LanguageModel(size, VOCABULARY).to(device).eval()


@torch.inference_mode()
def decoding(model: LanguageModel | PackagedModel, device: torch.device) -> measure.Call:
    """To decode `NEW` tokens after `BEFORE`, the pass over those not included."""
    prompt = torch.randint(VOCABULARY, (1, BEFORE), device=device)
    _, before = model.extend(prompt, model.init_state(1, BEFORE + NEW))
    token = prompt[:, :1]

    @torch.inference_mode()
    def call() -> None:
        # Kernel attention adds to its sums in place: these are copied. A cache is written again.
        states = before.reorder(torch.zeros(1, dtype=torch.long, device=device))
        for _ in range(NEW):
            _, states = model.extend(token, states)

    return call


def operations(kind: str) -> float:
    """Floating-point operations of a token."""
    device = torch.device("cpu")
    call = decoding(untrained(sized(kind), device), device)
    with OperationCounter() as counter:
        call()
    return counter.total / NEW


def compiled(model: LanguageModel) -> PackagedModel | None:
    """The model with a package for one row; None if its mechanism can't be compiled."""
    with TemporaryDirectory() as folder:
        try:
            package = build(model, 1, Path(folder) / PACKAGE)
        except UnsupportedError as error:
            print(error, file=sys.stderr)
            return None
    return PackagedModel(prepare(model), {1: package})


def measured(names: Collection[str], rounds: int, device: torch.device) -> dict[str, Times]:
    """The times of mechanisms in Python, and by packages."""
    models = {kind: untrained(sized(kind), device) for kind in names}
    ways: dict[str, Mapping[str, LanguageModel | PackagedModel]] = {
        PYTHON: {kind: prepare(one) for kind, one in models.items()},
        COMPILED: {kind: made for kind, one in models.items() if (made := compiled(one))},
    }
    calls = {
        f"{kind}, {way}": decoding(one, device)
        for way, ones in ways.items()
        for kind, one in ones.items()
    }
    times = measure.interleaved(calls, rounds, device)
    return {
        way: {kind: [seconds / NEW for seconds in times[f"{kind}, {way}"]] for kind in ones}
        for way, ones in ways.items()
    }


def time_table(times: dict[str, Times], counted: dict[str, float]) -> Table:
    """A row a mechanism, the fastest in Python first."""
    made = measure.table(
        f"one token after {BEFORE}, 4 layers of width 256, float32",
        *("mechanism", "operations / softmax's"),
        *(column for way in times for column in (f"µs, {way}", "time / softmax's")),
        words=2,
    )
    order = sorted(times[PYTHON], key=lambda kind: statistics.median(times[PYTHON][kind]))
    for kind in order:
        cells = [cell for taken in times.values() for cell in time_cells(kind, taken)]
        made.add_row(kind, f"{counted[kind] / counted[SOFTMAX]:.2f}", *cells)
    return made


def time_cells(kind: str, taken: Times) -> Sequence[str]:
    """The time of a token, and that over softmax's."""
    if kind not in taken:
        return "", ""
    ratio = measure.Ratio.of(taken[kind], taken[SOFTMAX])
    of_token = f"{statistics.median(taken[kind]) * 1e6:.0f}"
    return of_token, f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def claims(times: dict[str, Times], counted: dict[str, float]) -> dict[str, dict[str, float]]:
    """Time over softmax's by way, of the mechanisms whose operations allow to reach their goal."""
    goals, one = kinds(), counted[SOFTMAX]
    able = [k for k, count in counted.items() if k != SOFTMAX and count <= goals[k] * one]
    return {
        way: {k: measure.Ratio.of(taken[k], taken[SOFTMAX]).median for k in able if k in taken}
        for way, taken in times.items()
    }


def main() -> None:
    """Measure, print, write."""
    goals = kinds()
    parser = measure.options(__doc__, rounds=15)
    parser.add_argument("--only", nargs="+", choices=goals, default=list(goals), metavar="KIND")
    arguments = measure.parse(parser)
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    counted = {kind: operations(kind) for kind in {SOFTMAX: None, **dict.fromkeys(arguments.only)}}
    times = measured(counted, arguments.rounds, device)
    console = Console(width=120)
    console.print(time_table(times, counted))
    found = claims(times, counted)
    for way, figures in found.items():
        missed = [f"{k} {figure:.2f}" for k, figure in figures.items() if figure > goals[k]]
        console.print(f"{way}: over the goal: {', '.join(missed) or 'none'}")
    document = {
        "machine": measure.describe(device) | {"threads": arguments.threads},
        "setting": {"rounds": arguments.rounds, "before": BEFORE, "new": NEW},
        "operations": counted,
        "seconds": times,
        "claims": {
            f"{kind}, {way}": {
                "figure": figure,
                "at_most": goals[kind],
                "holds": figure <= goals[kind],
            }
            for way, figures in found.items()
            for kind, figure in figures.items()
        },
    }
    part = "" if set(arguments.only) == set(goals) else "-" + "-".join(arguments.only)
    measure.save(arguments.out, f"decoding_mechanisms{part}", document)


if __name__ == "__main__":
    main()
