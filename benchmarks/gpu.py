"""All figures of one NVIDIA GPU: training, exact attention, recurrences, decoding.

- course: pretraining by the course's recipe, 14 950 steps of 128 rows, plain and with --compile;
  seconds of everything, checkpoints and compilation included.
- gpt: training of a GPT of 124M weights (GPT-2's sizes) in bfloat16 with --compile, in rows of 1024
  random tokens; model FLOPs utilization as `regard.training.throughput` defines it, of the data
  sheet's peak where that is known, and of a measured product of 8192 × 8192 matrices.
- attention: exact attention, 16 heads of width 128, as a part of that product, forward and backward
  (gpu_attention.py measures all mechanisms).
- recurrences: gated linear recurrences beside SDPA (recurrences.py), in float32, and in bfloat16 by
  flash-linear-attention where the extra `fla` is installed.
- decoding: 64 greedy tokens after 32, plain, with a compiled step, and as one CUDA graph.

    python benchmarks/gpu.py [--only PART …] [--rounds 10] [--out DIR]
    python benchmarks/gpu.py --device cpu --tiny        every part on a CPU, whose times say nothing

Prints what it found, and writes gpu.json into docs/figures after each part; gpu-tiny.json with
--tiny. A part that fails is reported, and the others go on. Without a GPU it says so; exit code 2.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import gpu_attention
import measure
import numpy as np
import peers
import recurrences
import torch
from contestants import MODES
from gpu_attention import Yardsticks

import decoding
from regard.config import override
from regard.data.batch import WeightedDataset
from regard.data.causal import Documents
from regard.decoding.generate import Decoding
from regard.environment import ExecutionEnvironment
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.runs.recipe import Recipe, TrainingConfig
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.tasks.probes import number_tokenizer
from regard.tasks.world import WorldConfig, make_world
from regard.training.loggers import read_metrics
from regard.training.loop import ExecutionOptions
from regard.training.plan import Plan, plan_run, plan_training
from regard.training.sources.base import Datasets
from regard.training.sources.documents import DocumentSource
from regard.training.throughput import TrainingCost, peak_of

COURSE_SECONDS, MFU, FORWARD, BACKWARD = 60.0, 0.45, 0.85, 0.70
"""What is claimed: the course's pretraining, and parts of what the GPU does at most."""


GPT = DecoderConfig(
    context_length=1024, n_layers=12, n_heads=12, d_model=768, dropout=0.0, tie_head=True
)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured at."""

    texts: int = 2938
    course_steps: int = 14_950
    course: tuple[str, ...] = ()
    """More settings of the course's recipe."""
    gpt: DecoderConfig = GPT
    vocabulary: int = 50_304
    rows: tuple[int, ...] = (8, 32)
    gpt_steps: int = 60
    log_every: int = 10
    lengths: tuple[int, ...] = (8192, 16384)
    decoder: DecoderConfig = peers.SIZE
    decoded_rows: tuple[int, ...] = (1, 64)
    product: int = 8192
    copied: int = 1 << 30


TINY = Sizes(
    texts=80,
    course_steps=4,
    course=("model.n_layers=1", "model.n_heads=2", "model.d_model=16", "training.batch=8"),
    gpt=DecoderConfig(
        context_length=32, n_layers=1, n_heads=2, d_model=16, dropout=0.0, tie_head=True
    ),
    vocabulary=50,
    rows=(2,),
    gpt_steps=4,
    log_every=1,
    lengths=(64,),
    decoder=DecoderConfig(context_length=128, n_layers=1, n_heads=2, d_model=16, dropout=0.0),
    decoded_rows=(1, 2),
    product=64,
    copied=1 << 16,
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where and how often to measure."""

    sizes: Sizes
    device: torch.device
    rounds: int
    yardsticks: Yardsticks


# Training


def trained(plan: Plan, environment: ExecutionEnvironment, *, compiled: bool) -> float:
    """Seconds of a training, with all that belongs to it."""
    options = ExecutionOptions(
        environment=environment, compile=compiled, quiet=True, tensorboard=False
    )
    started = time.perf_counter()
    plan.execute(options)
    return time.perf_counter() - started


def course(setting: Setting) -> dict[str, Any]:
    """Pretraining by the course's recipe, on texts of the fictional world."""
    sizes, environment = setting.sizes, bfloat16(setting.device)
    steps = ["training.epochs=null", f"training.steps={sizes.course_steps}"]
    recipe = override(RECIPES["course"], [*steps, *sizes.course])
    world = make_world(WorldConfig(people=sizes.texts, biographies=1))
    seconds = {}
    for compiled in (False, True):
        torch.compiler.reset()
        with tempfile.TemporaryDirectory() as folder:
            source = DocumentSource(world.documents, index=False)
            plan = plan_training(source, recipe, Path(folder) / "run")
            name = "with --compile" if compiled else "plain"
            seconds[name] = trained(plan, environment, compiled=compiled)
    return {"steps": sizes.course_steps, "seconds": seconds}


def gpt(setting: Setting) -> list[dict[str, Any]]:
    """Model FLOPs utilization; the first line of metrics, which compiles, is left out."""
    found, sizes = [], setting.sizes
    for rows in sizes.rows:
        torch.compiler.reset()
        with tempfile.TemporaryDirectory() as folder:
            plan = gpt_plan(Path(folder) / "run", sizes, rows)
            trained(plan, bfloat16(setting.device), compiled=True)
            lines = read_metrics(plan.run.path / "metrics.jsonl")[1:]
        speed = statistics.median(line["tokens_per_second"] for line in lines)
        cost, batch = TrainingCost.of(plan.run.model, sizes.gpt), plan.sampler.batch(0)
        assert cost is not None
        a_second = cost.operations(batch) * speed / batch.positions
        peak = peak_of(gpu_name(setting.device))
        found.append(
            {
                "rows": rows,
                "tokens": batch.positions,
                "parameters": plan.run.n_parameters,
                "tokens_per_second": speed,
                "operations_per_second": a_second,
                "peak": peak,
                "mfu": peak and a_second / peak,
                "of_products": a_second / setting.yardsticks.products,
                "memory_mb": max(line["memory_mb"] for line in lines),
            }
        )
    return found


def gpt_plan(path: Path, sizes: Sizes, rows: int) -> Plan:
    """Training on rows of random tokens that fill the context."""
    config = TrainingConfig(steps=sizes.gpt_steps, batch=rows, log_every=sizes.log_every)
    recipe = Recipe(model=sizes.gpt, training=config)
    run = Run.new(path, recipe, number_tokenizer(sizes.vocabulary), {"stage": "pretraining"})
    shape = 16 * rows, sizes.gpt.context_length + 1
    texts = np.random.default_rng(0).integers(sizes.vocabulary, size=shape).tolist()
    dataset = Documents(texts, run.row_format.whole_rows)
    return plan_run(run, Datasets(training=[WeightedDataset(dataset)]), "gpt")


def bfloat16(device: torch.device) -> ExecutionEnvironment:
    return ExecutionEnvironment.choose(str(device), "bfloat16")


def gpu_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


# Attention


def attention(setting: Setting) -> list[dict[str, Any]]:
    """Exact attention; its backward pass alone is the time of both less that of forward."""
    found = []
    for n in setting.sizes.lengths:
        by_mode = {}
        for mode in MODES:
            rows, refused = gpu_attention.at_length(
                *(n, mode, setting.rounds, setting.yardsticks, setting.device),
                gpu_attention.exact_cases(),
            )
            by_mode[mode] = {row.name: row for row in rows}
            for name, reason in refused.items():
                print(f"- {name}, {n}, {mode} doesn't run: {reason}")
        for name, forward in by_mode["forward"].items():
            if (both := by_mode["training"].get(name)) is None:
                continue
            backward = both.seconds - forward.seconds
            operations = both.operations - forward.operations
            found.append(
                {
                    "name": name,
                    "n": n,
                    "forward_seconds": forward.seconds,
                    "backward_seconds": backward,
                    "forward": forward.of_products,
                    "backward": operations / backward / setting.yardsticks.products,
                }
            )
    return found


def recurrent(setting: Setting) -> list[dict[str, Any]]:
    """Gated linear recurrences beside SDPA of the same precision."""
    found = []
    sizes = product((torch.float32, torch.bfloat16), (False, True), setting.sizes.lengths)
    for dtype, backward, n in sizes:
        calls = recurrences.calls(n, setting.device, backward=backward, dtype=dtype)
        times = measure.interleaved(calls, setting.rounds, setting.device)
        found += [
            {
                "mechanism": name,
                "n": n,
                "dtype": str(dtype).removeprefix("torch."),
                "pass": "with backward" if backward else "forward",
                "seconds": statistics.median(taken),
                "of_sdpa": measure.Ratio.of(taken, times[recurrences.SDPA]).median,
            }
            for name, taken in times.items()
        ]
    return found


# Decoding


def decoded(setting: Setting) -> list[dict[str, Any]]:
    """New tokens a second of each way to decode."""
    found = []
    for rows in setting.sizes.decoded_rows:
        torch.compiler.reset()
        calls = decoders(setting.sizes.decoder, rows, setting.device)
        times = measure.interleaved(calls, setting.rounds, setting.device)
        found += [
            {
                "name": name,
                "rows": rows,
                "tokens_per_second": rows * decoding.NEW / statistics.median(taken),
                "gain": measure.Ratio.of(times["plain"], taken).median,
            }
            for name, taken in times.items()
        ]
    return found


@torch.inference_mode()
def decoders(config: DecoderConfig, rows: int, device: torch.device) -> dict[str, measure.Call]:
    """Greedy decoding after a prompt that has been read, in ways that give the same tokens."""
    model = LanguageModel(config, peers.VOCABULARY).to(device).eval()
    prompts = torch.randint(peers.VOCABULARY, (rows, decoding.PROMPT)).tolist()
    begun = Decoding.start(model, prompts, decoding.NEW, device)
    states, first = begun.states, begun.logits.argmax(-1, keepdim=True)

    def continued(extend: Callable[..., Any]) -> torch.Tensor:
        token, after, tokens = first, states, [first]
        for _ in range(decoding.NEW - 1):
            scores, after = extend(token, after)
            token = scores.argmax(-1, keepdim=True)
            tokens.append(token)
        return torch.cat(tokens, 1)

    plain = in_inference(lambda: continued(begun.model.extend))
    compiled = torch.compile(model.extend, dynamic=True)
    calls: dict[str, measure.Call] = {
        "plain": plain,
        "compiled step": in_inference(lambda: continued(compiled)),
    }
    expected = plain()
    if device.type == "cuda":
        try:
            graph, tokens = captured(plain)
        except RuntimeError as error:  # something waits for the GPU
            print(f"- CUDA graph, {rows} rows, can't be captured: {str(error).splitlines()[0]}")
            return calls
        graph.replay()
        assert torch.equal(tokens, expected), "the graph decodes other tokens"
        calls["CUDA graph"] = graph.replay
    return calls


def captured(call: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of all kernels of a call, and the tensor that each replay writes its result to."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries begin here what can't be captured
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def in_inference(call: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    return torch.inference_mode()(call)


# All

PARTS: Mapping[str, Callable[[Setting], Any]] = {
    "course": course,
    "gpt": gpt,
    "attention": attention,
    "recurrences": recurrent,
    "decoding": decoded,
}


def run(setting: Setting, parts: Sequence[str]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """After each part, the figures of all so far, and why others have none."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in parts:
        try:
            found[name] = PARTS[name](setting)
        except Exception as error:  # no memory, a compiler that fails: the other parts are measured
            failed[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            print(f"{name}: FAILED: {failed[name]}")
        else:
            print(f"{name}:", *lines(found[name]), sep="\n  ")
        yield found, failed


def lines(found: Any) -> list[str]:
    """A line for each row of figures."""
    rows = found if isinstance(found, list) else [found]
    return [", ".join(f"{name} {_shown(x)}" for name, x in row.items()) for row in rows]


def _shown(x: Any) -> str:
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def claims(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is claimed, beside what was found; only of parts that were measured."""
    made: dict[str, dict[str, Any]] = {}
    if "course" in found:
        best = min(found["course"]["seconds"].values())
        made["course: seconds"] = {"figure": best, "at_most": COURSE_SECONDS}
        made["course: seconds"]["holds"] = best <= COURSE_SECONDS
    known = [row["mfu"] for row in found.get("gpt", []) if row["mfu"] is not None]
    at_least = {"gpt: MFU": (known, MFU)}
    for kind, bound in (("forward", FORWARD), ("backward", BACKWARD)):
        ours = [row[kind] for row in found.get("attention", []) if row["name"] == "softmax full"]
        at_least[f"attention: {kind}, of products"] = ours, bound
    for name, (figures, bound) in at_least.items():
        if figures:
            best = max(figures)
            made[name] = {"figure": best, "at_least": bound, "holds": best >= bound}
    return made


def main() -> int:
    """Measure where there is a GPU; return the exit code."""
    parser = measure.options(__doc__, rounds=10)
    parser.set_defaults(device="cuda")
    parser.add_argument("--tiny", action="store_true", help="every part at a tiny size")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), metavar="PART")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    if on_gpu and (not torch.cuda.is_available() or torch.version.cuda is None):
        print("gpu.py: needs an NVIDIA GPU; --device cpu --tiny runs its parts", file=sys.stderr)
        return 2
    if not on_gpu and not arguments.tiny:
        print("gpu.py: --device cpu takes days; add --tiny", file=sys.stderr)
        return 2
    arguments = measure.parse(parser)
    sizes, device = TINY if arguments.tiny else Sizes(), torch.device(arguments.device)
    # A compiler takes longer than all else that is tiny.
    stance: AbstractContextManager[Any] = nullcontext()
    if arguments.tiny:
        stance = torch.compiler.set_stance("force_eager")
    with stance:
        yardsticks = Yardsticks.of(device, sizes.product, sizes.copied)
        print("yardsticks:", *lines(asdict(yardsticks)), sep="\n  ")
        setting = Setting(
            sizes=sizes, device=device, rounds=arguments.rounds, yardsticks=yardsticks
        )
        facts = {
            "machine": measure.describe(device),
            "setting": {"rounds": arguments.rounds, "tiny": arguments.tiny},
            "yardsticks": asdict(yardsticks),
        }
        name = "gpu-tiny" if arguments.tiny else "gpu"
        for found, failed in run(setting, arguments.only):  # a GPU may be lent for minutes only
            claimed = {} if arguments.tiny else claims(found)
            document = {**facts, **found, "failed": failed, "claims": claimed}
            measure.save(arguments.out, name, document)
    for name, claim in claimed.items():
        print(f"{name}: {claim['figure']:.3g}: {'holds' if claim['holds'] else 'DOES NOT HOLD'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
