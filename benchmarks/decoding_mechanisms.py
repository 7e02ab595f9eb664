"""Time of one decoded token of a whole model, by attention mechanism. Run by `make bench`.

Models of 4 layers, 8 heads and width 256, one row, float32, after 128 tokens. All that decode are
timed, interleaved. What kernel attention and the gated recurrences take is compared with softmax's.

    python benchmarks/decoding_mechanisms.py [--rounds 15] [--threads 1] [--out DIR]

Prints a table, and writes decoding_mechanisms.json into docs/figures.
"""

import statistics
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
from regard.decoding.prepare import prepare
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig

BEFORE, NEW = 128, 64
SOFTMAX = "softmax"
GOAL = 1.5
"""Time over softmax's, of mechanisms with a state of constant size."""


def kinds() -> dict[str, bool]:
    """Mechanisms that decode, and whether the goal is theirs."""
    constant = KernelAttention, RecurrentAttention
    return {
        kind: issubclass(one.type, constant)
        for kind, one in mechanisms().items()
        if one.type.supports.decoding
    }


def sized(kind: str) -> DecoderConfig:
    """A decoder with a mechanism."""
    attention: Any = config_type(kind)()
    return msgspec.structs.replace(SIZE, context_length=BEFORE + NEW, attention=attention)


@torch.inference_mode()
def decoding(size: DecoderConfig, device: torch.device) -> measure.Call:
    """To decode `NEW` tokens after `BEFORE`, the pass over those not included."""
    model = prepare(LanguageModel(size, VOCABULARY).to(device).eval())
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


def measured(rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds per token of each mechanism, one a round."""
    calls = {kind: decoding(sized(kind), device) for kind in kinds()}
    times = measure.interleaved(calls, rounds, device)
    return {kind: [seconds / NEW for seconds in taken] for kind, taken in times.items()}


def time_table(times: dict[str, list[float]]) -> Table:
    """A row a mechanism, the fastest first."""
    made = Table(title=f"one token after {BEFORE}, 4 layers of width 256, float32")
    made.add_column("mechanism")
    for column in ("µs a token", "time / softmax's"):
        made.add_column(column, justify="right")
    for kind, taken in sorted(times.items(), key=lambda item: statistics.median(item[1])):
        ratio = measure.Ratio.of(taken, times[SOFTMAX])
        made.add_row(
            kind,
            f"{statistics.median(taken) * 1e6:.0f}",
            f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})",
        )
    return made


def claims(times: dict[str, list[float]]) -> dict[str, float]:
    """Time over softmax's, of the mechanisms that have the goal."""
    return {
        kind: measure.Ratio.of(times[kind], times[SOFTMAX]).median
        for kind, has_goal in kinds().items()
        if has_goal
    }


def main() -> None:
    """Measure, print, write."""
    arguments = measure.parse(measure.options(__doc__, rounds=15))
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    times = measured(arguments.rounds, device)
    console = Console(width=100)
    console.print(time_table(times))
    for kind, found in claims(times).items():
        reached = "reached" if found <= GOAL else "NOT REACHED"
        console.print(f"{kind}: {found:.2f}, goal ≤ {GOAL}: {reached}")
    document = {
        "machine": measure.describe(device) | {"threads": arguments.threads},
        "setting": {"rounds": arguments.rounds, "before": BEFORE, "new": NEW},
        "seconds": times,
        "claims": {
            kind: {"figure": found, "at_most": GOAL, "holds": found <= GOAL}
            for kind, found in claims(times).items()
        },
    }
    measure.save(arguments.out, "decoding_mechanisms", document)


if __name__ == "__main__":
    main()
