"""Generation with a compiled package, beside the plain path and Hugging Face's `generate`.

Prompts of 32 and of 512 tokens are continued by 64, greedily in float32, by a model of 4 layers, 8
heads and width 256, by the same with a package for the batch size (`regard compile`), and by
Hugging Face's GPT-2 with the same weights. 64 rows are also decoded in bfloat16, and compared with
Hugging Face in float32. Tokens are checked to be the same in float64, and the package's logits when
it is compiled, which takes 15 seconds on an idle core.

    python benchmarks/decoding_package.py [--rounds 7] [--out DIR]

Prints a table, and writes decoding_package.json into docs/figures. Hugging Face's model comes with
`pip install 'regard[bench]'`.
"""

import statistics
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measure
import msgspec
import torch
from measure import MASK
from peers import HUGGING_FACE, SIZE, VOCABULARY, load_ours, scatter
from rich.console import Console
from rich.table import Table

from decoding import NEW, OURS, check_same_work, continued, continued_by_peer
from regard.decoding.package import PACKAGE, build
from regard.decoding.prepare import prepare
from regard.decoding.step import PackagedModel
from regard.environment import ExecutionEnvironment, Precision
from regard.models.builders import LanguageModel

CASES: tuple[tuple[int, int, Precision], ...] = (
    (1, 32, "float32"),
    (1, 512, "float32"),
    (64, 32, "float32"),
    (64, 32, "bfloat16"),
)
"""Rows, tokens of their prompts, and precision of Regard's products."""
COMPILED = "Regard, compiled"
GOALS = {(1, "float32"): 4.0, (64, "float32"): 1.5, (64, "bfloat16"): 2.5}
"""Speed over Hugging Face's in float32, by number of rows and precision."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The times of generating for so many rows after so many tokens."""

    rows: int
    prompt: int
    precision: Precision
    times: dict[str, list[float]]
    """Seconds for all new tokens, by name."""

    @property
    def title(self) -> str:
        case = f"batch {self.rows}, prompt of {self.prompt}, {self.precision}"
        return f"{case}: compiled speed / {HUGGING_FACE.name}'s"

    def gain(self, name: str) -> measure.Ratio:
        """The compiled package's speed over another's."""
        return measure.Ratio.of(self.times[name], self.times[COMPILED])


def measured(rows: int, prompt: int, precision: Precision, rounds: int, folder: Path) -> Case:
    """All with the same weights, doing the same work."""
    device = torch.device("cpu")
    config = msgspec.structs.replace(SIZE, context_length=max(SIZE.context_length, prompt + NEW))
    model = LanguageModel(config, VOCABULARY)
    scatter(model)
    model.eval()
    with ExecutionEnvironment(device, getattr(torch, precision)).autocast():
        steps: Any = {rows: build(model, rows, folder / PACKAGE)}
        packaged: Any = PackagedModel(prepare(model), steps)
    theirs = HUGGING_FACE.make(config, VOCABULARY).eval()
    load_ours(theirs, model)
    prompts = torch.randint(MASK + 1, VOCABULARY, (rows, prompt))
    check_same_work(model, theirs, prompts, continued(packaged, prompts, precision), 1)
    calls: dict[str, measure.Call] = {
        OURS: partial(continued, model, prompts, precision),
        COMPILED: partial(continued, packaged, prompts, precision),
        HUGGING_FACE.name: partial(continued_by_peer, theirs, prompts),
    }
    times = measure.interleaved(calls, rounds, device)
    return Case(rows=rows, prompt=prompt, precision=precision, times=times)


def table(cases: list[Case]) -> Table:
    """A row a case and way."""
    columns = "batch", "prompt", "precision", "ms a step", "time / compiled", "quartiles"
    made = measure.table(f"{NEW} new tokens", "way", *columns)
    for case in cases:
        for name, times in case.times.items():
            ratio = case.gain(name)
            made.add_row(
                name,
                str(case.rows),
                str(case.prompt),
                "float32" if name == HUGGING_FACE.name else case.precision,
                f"{statistics.median(times) / NEW * 1e3:.2f}",
                f"{ratio.median:.2f}",
                f"{ratio.low:.2f}–{ratio.high:.2f}",
            )
    return made


def main() -> None:
    """Measure, print, write."""
    arguments = measure.parse(measure.options(__doc__, rounds=7))
    if not HUGGING_FACE.installed:
        raise SystemExit("Hugging Face's model is missing: pip install 'regard[bench]'")
    cases = []
    for rows, prompt, precision in CASES:
        with TemporaryDirectory() as folder:
            cases.append(measured(rows, prompt, precision, arguments.rounds, Path(folder)))
    Console(width=120).print(table(cases))
    claims = {
        c.title: (c.gain(HUGGING_FACE.name).median, GOALS[c.rows, c.precision]) for c in cases
    }
    for claim, (found, goal) in claims.items():
        print(f"{claim}: {measure.verdict(found, goal)}")
    document = {
        "machine": measure.describe(torch.device("cpu")),
        "setting": {"rounds": arguments.rounds, "new": NEW, "model": msgspec.to_builtins(SIZE)},
        "cases": [
            asdict(case) | {"gain": {name: asdict(case.gain(name)) for name in case.times}}
            for case in cases
        ],
        "claims": {
            claim: {"figure": found, "at_least": goal, "holds": found >= goal}
            for claim, (found, goal) in claims.items()
        },
    }
    measure.save(arguments.out, "decoding_package", document)


if __name__ == "__main__":
    main()
