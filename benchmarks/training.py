"""Tokens a second of a training step, beside its peers and the machine's matrix products.

One process, models of one size: 4 layers, 8 heads, width 256, context 128, vocabulary 256. A step
is forward, cross entropy, backward, clipping and fused AdamW; ours as `regard.training` takes it.
In float32 and under bfloat16 autocast: plain, with dropout, and with padding, where rows of unequal
length are filled up to the longest and only real tokens count. Everyone is timed in rounds,
interleaved, and so are the bare matrix products of all linear layers, forward and both gradients:
no step can take less. All reuse freed memory, as training does. At last it is shown where the time
of our step goes.

    python benchmarks/training.py [--batch 64] [--rounds 7] [--device cpu] [--compile] [--out DIR]

Some 10 minutes on two cores. Prints tables, and writes training.json and training.png into
docs/figures. Peers come with `pip install 'regard[bench]'`; one that isn't there is left out, and
said so.
"""

import argparse
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import matplotlib as mpl
import measure
import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import MASK, PAD
from peers import PEERS, SIZE, VOCABULARY, Peer, not_installed
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from regard.data.batch import Batch, RowFormat
from regard.data.causal import CausalDataset, predict_all
from regard.device import freed_memory_reused
from regard.dropout import dropouts, make_row_keys, set_row_keys
from regard.environment import ExecutionEnvironment, Precision
from regard.models.builders import CompiledBody, LanguageModel
from regard.models.config import DecoderConfig
from regard.runs.recipe import TrainingConfig
from regard.training.optimizers import clip_gradients, make_optimizers
from regard.training.step import accumulate_gradients, best_parts

OURS, COMPILED, PRODUCTS = "Regard", "Regard, compiled", "products alone"
DROPOUT = 0.1
SHORTEST = 20
"""Of rows of unequal length."""
FASTER, OF_PRODUCTS = 1.3, 0.85
"""What is claimed, whichever is lower: tokens/s over the best peer's, and over the products'."""

KINDS = {
    "matrix products": r"mm|addmm",
    "attention": r".*attention.*|bmm|baddbmm|_softmax.*|where|masked_fill.*",
    "layer norm": r"native_layer_norm.*",
    "gelu": r"gelu.*",
    "dropout, scaling": r"bernoulli_|native_dropout.*|mul_?|div_|bitwise_.*|__rshift__|ge",
    "loss": r"_log_softmax.*|nll_loss.*",
    "gradients of biases": r"sum",
    "sums of branches": r"add|add_",
    "look-ups": r"_?index.*|nonzero|embedding.*",
    "copies and casts": r"copy_|_to_copy|clone|cat",
    "filling with zeros": r"fill_|zero_",
    "clipping": r"_foreach_norm|linalg_vector_norm|_foreach_mul_",
    "optimiser": r"_fused_adamw_|Optimizer\..*",
}
"""What torch's operations are for, by their names without «aten::»."""
OTHER = "everything else"


@dataclass(frozen=True, kw_only=True)
class Case:
    """How the models are trained."""

    precision: Precision
    dropout: float = 0.0
    padded: bool = False

    @property
    def name(self) -> str:
        parts: list[str] = [self.precision]
        if self.dropout:
            parts.append(f"dropout {self.dropout}")
        if self.padded:
            parts.append("padded")
        return ", ".join(parts)

    @property
    def plain(self) -> bool:
        """Whether the claim is about it."""
        return not self.padded and self.dropout == 0

    def environment(self, device: torch.device) -> ExecutionEnvironment:
        """The device, at this precision."""
        return ExecutionEnvironment.choose(str(device), self.precision)

    def batch(self, block: int, rows: int) -> Batch:
        """Random tokens, in rows of a block or of unequal length."""
        draw = np.random.default_rng(0)
        shortest = SHORTEST if self.padded else block
        lengths = draw.integers(shortest, block + 1, rows)
        texts = [draw.integers(MASK + 1, VOCABULARY, length + 1).tolist() for length in lengths]
        dataset = CausalDataset([], RowFormat(block, PAD))
        return dataset.collate([predict_all(text) for text in texts])


CASES = tuple(
    Case(precision=precision, dropout=dropout, padded=padded)
    for precision in ("float32", "bfloat16")
    for dropout, padded in ((0.0, False), (DROPOUT, False), (0.0, True))
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everyone's steps in one case."""

    case: Case
    tokens: int
    """Real ones in a step."""
    operations: int
    """Of the products of a step."""
    times: dict[str, list[float]]
    """Seconds a step, by name."""

    def seconds(self, name: str) -> float:
        return statistics.median(self.times[name])

    def gain(self, other: str) -> measure.Ratio:
        """Our tokens/s over another's."""
        return measure.Ratio.of(self.times[other], self.times[OURS])

    def share(self, name: str) -> float:
        """Tokens/s over those that the products alone would allow."""
        return measure.Ratio.of(self.times[PRODUCTS], self.times[name]).median

    @property
    def best_peer(self) -> str | None:
        peers = [peer.name for peer in PEERS if peer.name in self.times]
        return min(peers, key=lambda name: self.gain(name).median, default=None)


class Claim(NamedTuple):
    """What was found where something is claimed."""

    peer: str
    gain: float
    share: float

    @property
    def holds(self) -> bool:
        return self.gain >= FASTER or self.share >= OF_PRODUCTS


# Steps


def our_step(
    model: LanguageModel,
    batch: Batch,
    environment: ExecutionEnvironment,
    body: CompiledBody | None = None,
) -> measure.Call:
    """A step as training takes it."""
    config = TrainingConfig(steps=1)
    optimizers = make_optimizers(model, config, environment.dtype)
    parameters = dict(model.named_parameters())
    parts = best_parts(batch, environment)
    drops = dropouts(model)

    def each_part() -> Iterator[Batch]:
        for part in batch.split(parts):
            keys = make_row_keys(len(drops), seed=0, step=0, rows=part.row_numbers.cpu())
            set_row_keys(drops, keys.to(environment.device))
            yield part

    def step() -> None:
        loss = accumulate_gradients(
            partial(model.loss, body=body), each_part(), batch.n_targets, environment
        )
        clip_gradients(parameters, config.max_grad_norm, loss, step=0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def peer_step(
    peer: Peer, model: Any, batch: Batch, environment: ExecutionEnvironment
) -> measure.Call:
    """The same by torch's own means, which doesn't ask for the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with environment.autocast():
            logits = peer.score(model, batch.input_ids).float()
            loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def products(
    model: LanguageModel, batch: Batch, environment: ExecutionEnvironment
) -> tuple[measure.Call, int]:
    """The products of all linear layers in a step and nothing else, and their operations."""
    shapes = [
        (
            batch.n_targets if layer is model.head else batch.input_ids.numel(),
            layer.in_features,
            layer.out_features,
        )
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
    ]
    made = {shape: three_products(*shape, environment) for shape in shapes}

    def run() -> None:
        for shape in shapes:
            for left, right, out in made[shape]:
                torch.mm(left, right, out=out)  # without asking for memory

    return run, sum(3 * 2 * prod(shape) for shape in shapes)


def three_products(
    n: int, d_in: int, d_out: int, environment: ExecutionEnvironment
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of a linear layer for n tokens: forward, gradient of the input, gradient of the weight."""
    x, weight, gradient = (
        torch.randn(shape, device=environment.device, dtype=environment.dtype)
        for shape in ((n, d_in), (d_out, d_in), (n, d_out))
    )
    pairs = (x, weight.mT), (gradient, weight), (gradient.mT, x)
    return [(left, right, left @ right) for left, right in pairs]


def ours(case: Case, config: DecoderConfig, device: torch.device) -> LanguageModel:
    """A new model for a case."""
    torch.manual_seed(0)
    config = msgspec.structs.replace(config, dropout=case.dropout)
    return LanguageModel(config, VOCABULARY).to(device).train()


def measured(
    case: Case,
    config: DecoderConfig,
    *,
    rows: int,
    rounds: int,
    device: torch.device,
    compiled: bool = False,
) -> Measured:
    """Everyone in one case."""
    environment, batch = (
        case.environment(device),
        case.batch(config.context_length, rows).to(device),
    )
    model = ours(case, config, device)
    bare, operations = products(model, batch, environment)
    calls = {OURS: our_step(model, batch, environment)}
    if compiled:
        torch.compiler.reset()  # each case compiles again, and only so many are kept
        model = ours(case, config, device)
        body = torch.compile(model.body, dynamic=True)
        calls[COMPILED] = our_step(model, batch, environment, body)
    for peer in PEERS:
        if peer.installed:
            sizes = msgspec.structs.replace(config, dropout=case.dropout)
            theirs = peer.make(sizes, VOCABULARY).to(device).train()
            calls[peer.name] = peer_step(peer, theirs, batch, environment)
    with freed_memory_reused():
        times = measure.interleaved(calls | {PRODUCTS: bare}, rounds, device)
    return Measured(case=case, tokens=batch.n_targets, operations=operations, times=times)


def claims(found: Sequence[Measured]) -> dict[str, Claim]:
    """By the case that they are about; none where no peer is installed."""
    return {
        m.case.name: Claim(peer, m.gain(peer).median, m.share(OURS))
        for m in found
        if m.case.plain and (peer := m.best_peer)
    }


# Where the time goes


def profiled(
    case: Case, config: DecoderConfig, *, rows: int, device: torch.device, repeats: int = 3
) -> dict[str, float]:
    """Seconds of our step by kinds of operations."""
    batch, on_gpu = case.batch(config.context_length, rows).to(device), device.type == "cuda"
    step = our_step(ours(case, config, device), batch, case.environment(device))
    activities = [ProfilerActivity.CPU]
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    with freed_memory_reused():
        step()
        with profile(activities=activities) as recorded:
            for _ in range(repeats):
                step()
    found = dict.fromkeys((*KINDS, OTHER), 0.0)
    for event in recorded.key_averages():
        if event.device_type.name == "CPU":  # a GPU's kernels count with what started them
            taken = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            found[purpose(event.key)] += taken / 1e6 / repeats
    return found


def purpose(operation: str) -> str:
    """The kind of an operation, by its name."""
    name = operation.removeprefix("aten::")
    return next((kind for kind, names in KINDS.items() if re.fullmatch(names, name)), OTHER)


# Tables


def speed_table(m: Measured) -> Table:
    """Everyone in one case; GFLOP are those of the products."""
    columns = "ms a step", "tokens/s", "Regard's / its", "quartiles", "GFLOP/s", "of products"
    made = measure.table(f"{m.case.name}: {m.tokens} tokens a step", "model", *columns)
    for name in m.times:
        gain, seconds = m.gain(name), m.seconds(name)
        made.add_row(
            name,
            f"{seconds * 1e3:.1f}",
            f"{m.tokens / seconds:.0f}",
            f"{gain.median:.2f}",
            f"{gain.low:.2f}–{gain.high:.2f}",
            f"{m.operations / seconds / 1e9:.1f}",
            f"{m.share(name):.2f}",
        )
    return made


def profile_table(profiles: dict[str, dict[str, float]]) -> Table:
    """Milliseconds of our step and their share, by case."""
    title = "where the time of Regard's step goes: ms, and share"
    made = measure.table(title, "operations", *profiles)
    totals = {case: sum(found.values()) for case, found in profiles.items()}
    for kind in (*KINDS, OTHER):
        cells = (
            f"{found[kind] * 1e3:.1f} {found[kind] / totals[case]:6.1%}"
            for case, found in profiles.items()
        )
        made.add_row(kind, *cells)
    made.add_section()
    made.add_row("together", *(f"{total * 1e3:.1f} {1:6.1%}" for total in totals.values()))
    return made


def figure(found: Sequence[Measured], profiles: dict[str, dict[str, float]]) -> Figure:
    """Tokens/s of everyone, and where the time of our step goes."""
    drawn = Figure(figsize=(13, 5), layout="constrained")
    speeds, parts = drawn.subplots(1, 2)
    draw_speeds(speeds, found)
    draw_parts(parts, profiles)
    return drawn


def draw_speeds(panel: Axes, found: Sequence[Measured]) -> None:
    """A group of bars a case; a line above it is what the products would allow."""
    names = [name for name in found[0].times if name != PRODUCTS]
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        places = [group + (i + 0.5) * width - 0.4 for group in range(len(found))]
        panel.bar(places, [m.tokens / m.seconds(name) for m in found], width, label=name)
    bounds = [m.tokens / m.seconds(PRODUCTS) for m in found]
    groups = range(len(found))
    panel.hlines(
        bounds, [g - 0.4 for g in groups], [g + 0.4 for g in groups], colors="k", label=PRODUCTS
    )
    panel.set_xticks(groups, [m.case.name.replace(", ", "\n") for m in found])
    panel.set_title("tokens a second in training")
    panel.grid(axis="y", alpha=0.3)
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, fontsize="small")


def draw_parts(panel: Axes, profiles: dict[str, dict[str, float]]) -> None:
    """A bar a case, of pieces that add up to its whole time."""
    colors, left = mpl.colormaps["tab20"], [0.0] * len(profiles)
    names = [name.replace(", ", "\n") for name in profiles]
    for i, kind in enumerate((*KINDS, OTHER)):
        pieces = [found[kind] / sum(found.values()) for found in profiles.values()]
        panel.barh(names, pieces, left=left, color=colors(i), label=kind)
        left = [a + b for a, b in zip(left, pieces, strict=True)]
    panel.invert_yaxis()
    panel.set_xlim(0, 1)
    panel.set_title("where the time of Regard's step goes")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4, fontsize="small")


def notes() -> list[str]:
    """What was left out, and what has to be known of the peers."""
    return not_installed(PEERS) + [f"{p.name}: {p.note}" for p in PEERS if p.installed]


def document(
    arguments: argparse.Namespace,
    found: Sequence[Measured],
    profiles: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """All numbers, for training.json."""
    return {
        "machine": measure.describe(torch.device(arguments.device)),
        "setting": {
            "batch": arguments.batch,
            "rounds": arguments.rounds,
            "model": msgspec.to_builtins(SIZE),
            "vocabulary": VOCABULARY,
        },
        "notes": notes(),
        "cases": [
            asdict(m)
            | {
                "name": m.case.name,
                "tokens_per_second": {name: m.tokens / m.seconds(name) for name in m.times},
                "gains": {name: asdict(m.gain(name)) for name in m.times},
                "shares": {name: m.share(name) for name in m.times},
                "products_per_second": m.operations / m.seconds(PRODUCTS),
            }
            for m in found
        ],
        "claims": {
            case: claim._asdict() | {"at_least": [FASTER, OF_PRODUCTS], "holds": claim.holds}
            for case, claim in claims(found).items()
        },
        "profiles": profiles,
    }


def main() -> None:
    """Measure, print, write."""
    parser = measure.options(__doc__, rounds=7)
    parser.add_argument("--batch", type=int, default=64, help="rows of a step")
    parser.add_argument("--compile", action="store_true", help="ours compiled as well")
    arguments = measure.parse(parser)
    device, rows, console = torch.device(arguments.device), arguments.batch, Console(width=140)
    found = []
    for case in CASES:
        m = measured(
            case,
            SIZE,
            rows=rows,
            rounds=arguments.rounds,
            device=device,
            compiled=arguments.compile,
        )
        console.print(speed_table(m))
        found.append(m)
    profiles = {
        case.name: profiled(case, SIZE, rows=rows, device=device)
        for case in CASES
        if not case.padded
    }
    console.print(profile_table(profiles))
    for note in notes():
        console.print(f"- {note}")
    for name, claim in claims(found).items():
        verdict = "holds" if claim.holds else "DOES NOT HOLD"
        console.print(
            f"{name}: {claim.gain:.2f} × the tokens/s of {claim.peer} and {claim.share:.2f} of "
            f"those of the products, claimed ≥ {FASTER} or ≥ {OF_PRODUCTS}: {verdict}"
        )
    written = document(arguments, found, profiles)
    measure.save(arguments.out, "training", written, figure(found, profiles))


if __name__ == "__main__":
    main()
