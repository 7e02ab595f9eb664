"""Time of models with layers of different kinds, against that of their layers. Run by `make bench`.

Models of 4 layers, 8 heads and width 256 in float32: a hybrid, and one of each of its kinds. Timed
are a training step of 4 rows of 512 tokens, and a decoded token after 128, all interleaved. A
hybrid should take what its layers take in the models of one kind.

    python benchmarks/hybrids.py [--rounds 9] [--threads 1] [--out DIR]

Prints a table, and writes hybrids.json into docs/figures.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import cast

import measure
import msgspec
import torch
from decoding_mechanisms import BEFORE, NEW, decoding, untrained
from peers import SIZE, VOCABULARY
from rich.console import Console
from rich.table import Table

from regard.config import Config, convert
from regard.decoding.prepare import prepare
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.models.pattern import LayerConfig, from_text
from regard.positions.config import RotaryConfig

HYBRIDS = (
    "gated-deltanet*3+softmax",
    "mamba2*3+softmax",
    "sliding-window*3+softmax",
    "elu+softmax",
)
ROWS, TOKENS = 4, 512
GOAL = 1.1
"""Time of a hybrid over the mean of its layers'."""


def pattern_of(text: str) -> tuple[LayerConfig, ...]:
    """The entries of a text."""
    return tuple(convert(entry, LayerConfig, where=text) for entry in from_text(text))


def sized(text: str, context_length: int) -> DecoderConfig:
    """A decoder with a pattern."""
    changes = {"context_length": context_length, "positions": RotaryConfig()}
    return msgspec.structs.replace(SIZE, pattern=pattern_of(text), **changes)


def kinds(text: str) -> list[str]:
    """The kind of each layer."""
    layers = sized(text, TOKENS).layers
    return [str(cast(Config, one.attention).__struct_config__.tag) for one in layers]


def training(text: str, device: torch.device) -> measure.Call:
    """A forward and a backward pass."""
    model = LanguageModel(sized(text, TOKENS), VOCABULARY).to(device).train()
    ids = torch.randint(VOCABULARY, (ROWS, TOKENS), device=device)

    def call() -> None:
        model.zero_grad()
        model(ids).float().logsumexp(-1).sum().backward()

    return call


def expected(text: str, times: Mapping[str, Sequence[float]]) -> list[float]:
    """What the layers take, a number a round: the mean of the models of one kind."""
    rounds = zip(*(times[kind] for kind in kinds(text)), strict=True)
    return [statistics.fmean(taken) for taken in rounds]


def measured(rounds: int, device: torch.device) -> dict[str, dict[str, list[float]]]:
    """Seconds of each model, by what it does."""
    texts = dict.fromkeys([*HYBRIDS, *(kind for text in HYBRIDS for kind in kinds(text))])
    steps = {text: training(text, device) for text in texts}
    models = {text: untrained(sized(text, BEFORE + NEW), device) for text in texts}
    tokens = {text: decoding(prepare(model), device) for text, model in models.items()}
    return {
        "training step": measure.interleaved(steps, rounds, device),
        "decoded token": {
            text: [seconds / NEW for seconds in taken]
            for text, taken in measure.interleaved(tokens, rounds, device).items()
        },
    }


def time_table(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """A row a hybrid and what it does."""
    title = f"4 layers of width 256, float32: {ROWS} rows of {TOKENS}; one row"
    made = Table("pattern", "", "ms", "time / its layers'", title=title)
    for text in HYBRIDS:
        for name, times in found.items():
            ratio = measure.Ratio.of(times[text], expected(text, times))
            median = statistics.median(times[text]) * 1000
            spread = f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
            made.add_row(text, name, f"{median:.2f}", spread)
    return made


def main() -> None:
    """Measure, print, write."""
    arguments = measure.parse(measure.options(__doc__, rounds=9))
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    found = measured(arguments.rounds, device)
    Console(width=100).print(time_table(found))
    figures = {
        f"{text}, {name}": measure.Ratio.of(times[text], expected(text, times)).median
        for text in HYBRIDS
        for name, times in found.items()
    }
    document = {
        "machine": measure.describe(device) | {"threads": arguments.threads},
        "setting": {"rounds": arguments.rounds, "rows": ROWS, "tokens": TOKENS},
        "seconds": found,
        "claims": {
            name: {"figure": figure, "at_most": GOAL, "holds": figure <= GOAL}
            for name, figure in figures.items()
        },
    }
    measure.save(arguments.out, "hybrids", document)


if __name__ == "__main__":
    main()
