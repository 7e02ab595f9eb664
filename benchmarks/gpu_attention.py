"""Attention on an NVIDIA GPU: how much of what the machine can do is used. Run by `make bench`.

16 heads of width 128, one row, bfloat16. The yardsticks are measured in the same process: a
product of 8192 × 8192 matrices and a copy of 1 GiB. Exact attention and FAVOR+ should come near
the first, elu+1 near the second; operations and bytes are those of each mechanism's own `cost`.
Kernel attention works in float32, hence the product in float32 besides. BigBird, which is
FlexAttention with a block mask here, should gain what its sparsity leaves out.

    python benchmarks/gpu_attention.py [--lengths 8192 16384 …] [--rounds 10] [--out DIR]

Prints tables, and writes gpu_attention.json into docs/figures. Without a GPU it says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from statistics import median
from typing import Any

import measure
import torch
import torch.nn.functional as F
from contestants import MODES, TITLES, Work
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.attention import Attention, BigBird, KernelAttention, Mask, Shape, Softmax, flex
from regard.attention.cost import Mode
from regard.attention.feature_maps import Elu, FavorPositive

HEADS, D, FEATURES = 16, 128, 256
DTYPE = torch.bfloat16
LENGTHS = (8192, 16384)
BACKENDS = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way to attend, and the mechanism whose account says what it should cost."""

    attend: Attend
    costs: Attention
    causal: bool = False

    @property
    def rival(self) -> str:
        """What the names begin with of those that it is compared with."""
        return "SDPA causal" if self.causal else "SDPA full"


@dataclass(frozen=True, kw_only=True)
class Yardsticks:
    """What the machine does a second."""

    products: float
    """Operations, in bfloat16."""
    float32_products: float
    copy: float
    """Bytes, read and written."""

    @staticmethod
    def of(device: torch.device, n: int = 8192, size: int = 1 << 30) -> "Yardsticks":
        def products(dtype: torch.dtype) -> float:
            product, operations = measure.square_product(n, device, dtype)
            return measure.rate(product, operations, device)

        copy, moved = measure.copying(size, device)
        return Yardsticks(
            products=products(DTYPE),
            float32_products=products(torch.float32),
            copy=measure.rate(copy, moved, device),
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case measured."""

    name: str
    n: int
    mode: Mode
    seconds: float
    peak_bytes: int
    operations: int
    bytes: int
    of_products: float
    """Its operations a second, as a part of the product's in bfloat16."""
    of_float32_products: float
    of_copy: float
    """Its bytes a second, as a part of the copy's."""
    gain: float | None
    """The time of the fastest SDPA under the same mask over its own."""
    possible: float
    """What the gain would be if time went by operations."""


def exact_cases() -> dict[str, Case]:
    """Exact attention: ours, and torch's by each backend."""
    made = {}
    for causal, word in ((False, "full"), (True, "causal")):
        made[f"softmax {word}"] = of(Softmax(), causal=causal)
        for backend in BACKENDS:
            name = f"SDPA {word}, {backend.name.removesuffix('_ATTENTION').lower()}"
            attend = partial(sdpa, backend=backend, causal=causal)
            made[name] = Case(attend=attend, costs=Softmax(), causal=causal)
    return made


def cases(n: int, device: torch.device) -> dict[str, Case]:
    """All that is measured at one length."""
    made = exact_cases()
    for name, features in (("elu+1", Elu()), ("FAVOR+", FavorPositive(d=D, features=FEATURES))):
        kernel = KernelAttention(features).to(device)
        for causal, word in ((False, "full"), (True, "causal")):
            plain = of(kernel, causal=causal)
            compiled = torch.compile(plain.attend, dynamic=False)
            made[f"{name} {word}"] = plain
            made[f"{name} {word}, compiled"] = Case(attend=compiled, costs=kernel, causal=causal)
    sparse = BigBird(max_keys=n).to(device)
    made["BigBird"] = of(sparse, causal=False)
    made["BigBird, block mask at hand"] = Case(
        attend=with_block_mask(sparse, n, device), costs=sparse
    )
    return made


def of(mechanism: Attention, *, causal: bool) -> Case:
    """A mechanism as it is."""
    mask = Mask.causal() if causal else None

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return mechanism.forward(query, key, value, mask=mask)

    return Case(attend=attend, costs=mechanism, causal=causal)


def sdpa(query: Tensor, key: Tensor, value: Tensor, *, backend: SDPBackend, causal: bool) -> Tensor:
    """torch's kernel by one backend."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)


def with_block_mask(mechanism: BigBird, n: int, device: torch.device) -> Attend:
    """FlexAttention alone: the block mask is made by the first call and kept."""
    kernel: Any = torch.compile(flex_attention, dynamic=False)

    @cache
    def block_mask() -> BlockMask:
        pattern = mechanism.pattern(HEADS, n, causal=False, device=device)
        example = torch.empty(1, HEADS, n, D, device=device, dtype=DTYPE)
        return flex.block_mask(pattern, example, example)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out: Tensor = kernel(query, key, value, block_mask=block_mask())
        return out

    return attend


def usable(calls: Mapping[str, measure.Call]) -> tuple[dict[str, measure.Call], dict[str, str]]:
    """Those that run, and why the others don't."""
    running, refusals = {}, {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # a backend that refuses, a compiler that fails, no memory
            first = (str(error).strip().splitlines() or [""])[0]
            refusals[name] = f"{type(error).__name__}: {first}"
        else:
            running[name] = call
    return running, refusals


def at_length(
    n: int,
    mode: Mode,
    rounds: int,
    yardsticks: Yardsticks,
    device: torch.device,
    chosen: Mapping[str, Case],
) -> tuple[list[Row], dict[str, str]]:
    """Cases at one length, and those that didn't run."""
    torch.compiler.reset()  # one compilation for each length and mode is wanted, not a general one
    query, key, value = (
        torch.randn(1, HEADS, n, D, device=device, dtype=DTYPE, requires_grad=True)
        for _ in range(3)
    )
    inputs = query, key, value
    works = {name: Work(partial(case.attend, *inputs), inputs) for name, case in chosen.items()}
    calls, refusals = usable({name: getattr(work, mode) for name, work in works.items()})
    times = measure.interleaved(calls, rounds, device)
    seconds = {name: median(taken) for name, taken in times.items()}
    peaks = {name: measure.peak_bytes(call, device) for name, call in calls.items()}
    rows = [row(name, chosen[name], n, mode, seconds, peaks[name], yardsticks) for name in calls]
    return rows, refusals


def row(
    name: str,
    case: Case,
    n: int,
    mode: Mode,
    seconds: Mapping[str, float],
    peak: int,
    yardsticks: Yardsticks,
) -> Row:
    """The time of a case beside the yardsticks and the fastest rival."""
    shape = Shape(
        batch=1,
        heads=HEADS,
        kv_heads=HEADS,
        queries=n,
        keys=n,
        d=D,
        e=D,
        dtype=DTYPE,
        causal=case.causal,
        mode=mode,
    )
    cost, taken = case.costs.cost(shape), seconds[name]
    rivals = [time for rival, time in seconds.items() if rival.startswith(case.rival)]
    return Row(
        name=name,
        n=n,
        mode=mode,
        seconds=taken,
        peak_bytes=peak,
        operations=cost.operations,
        bytes=cost.bytes,
        of_products=cost.operations / taken / yardsticks.products,
        of_float32_products=cost.operations / taken / yardsticks.float32_products,
        of_copy=cost.bytes / taken / yardsticks.copy,
        gain=min(rivals) / taken if rivals else None,
        possible=Softmax().cost(shape).operations / cost.operations,
    )


def row_table(rows: Sequence[Row], n: int, mode: Mode) -> Table:
    """A row a case."""
    made = measure.table(
        f"{n} tokens, {TITLES[mode]}",
        *("case", "ms", "TFLOP/s", "of bf16 products", "of float32 products", "GB/s", "of copy"),
        *("× SDPA's best", "by operations ×", "peak MiB"),
    )
    for r in rows:
        made.add_row(
            r.name,
            f"{r.seconds * 1e3:.3f}",
            f"{r.operations / r.seconds / 1e12:.1f}",
            f"{r.of_products:.2f}",
            f"{r.of_float32_products:.2f}",
            f"{r.bytes / r.seconds / 1e9:.0f}",
            f"{r.of_copy:.2f}",
            "" if r.gain is None else f"{r.gain:.2f}",
            f"{r.possible:.2f}",
            f"{r.peak_bytes / 2**20:.0f}",
        )
    return made


def run(
    lengths: Sequence[int], rounds: int, yardsticks: Yardsticks, device: torch.device
) -> dict[str, Any]:
    """Measure and print; all numbers, for gpu_attention.json."""
    console = Console(width=160)
    console.print(
        f"products: {yardsticks.products / 1e12:.1f} TFLOP/s in bfloat16, "
        f"{yardsticks.float32_products / 1e12:.1f} in float32; "
        f"copy: {yardsticks.copy / 1e9:.0f} GB/s"
    )
    rows: list[Row] = []
    refused: dict[str, str] = {}
    for n in lengths:
        for mode in MODES:
            here, refusals = at_length(n, mode, rounds, yardsticks, device, cases(n, device))
            console.print(row_table(here, n, mode))
            for name, reason in refusals.items():
                console.print(f"- {name} doesn't run: {reason}", markup=False)
            rows += here
            refused |= {f"{name}, {n}, {mode}": reason for name, reason in refusals.items()}
    return {
        "machine": measure.describe(device),
        "setting": {"rounds": rounds, "heads": HEADS, "d": D, "features": FEATURES},
        "yardsticks": asdict(yardsticks),
        "rows": [asdict(row) for row in rows],
        "refused": refused,
    }


def main() -> None:
    """Measure where there is a GPU."""
    arguments = measure.parse(measure.options(__doc__, lengths=LENGTHS, rounds=10))
    if not torch.cuda.is_available() or torch.version.cuda is None:
        print("gpu_attention: needs an NVIDIA GPU: nothing measured")
        return
    device = torch.device("cuda")
    numbers = run(arguments.lengths, arguments.rounds, Yardsticks.of(device), device)
    measure.save(arguments.out, "gpu_attention", numbers)


if __name__ == "__main__":
    main()
