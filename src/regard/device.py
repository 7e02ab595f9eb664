"""The device and precision of a run; choices of kernels and sizes by processor; and memory."""

import ctypes
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

import regard
from regard.errors import UserError

Precision = Literal["auto", "float32", "bfloat16"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float64"]


@dataclass(frozen=True)
class ExecutionEnvironment:
    """A device and the precision of its matrix products; weights are float32, or float64 too."""

    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def choose(
        device: str = "auto", precision: TrainingPrecision = "float32", threads: int | None = None
    ) -> "ExecutionEnvironment":
        """Return a device and precision; "auto" is a GPU, and bfloat16 where it is faster.

        `threads` sets the number of CPU threads of this process. A warning says how much slower
        bfloat16 is than float32 where it was requested and the hardware only emulates it.

        Raises:
            UserError: the device isn't there.
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            chosen = torch.device(device)
            if chosen.type not in ("cpu", "cuda"):
                raise RuntimeError("models don't run on it")
            torch.empty(0, device=chosen)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"--device {device}: can't be used here: {reason}") from None
        if threads is not None:
            if threads > MOST_THREADS:
                raise UserError(f"--threads {threads:,}: choose at most {MOST_THREADS:,}")
            torch.set_num_threads(threads)
        if precision == "auto":
            precision = "bfloat16" if bfloat16_gain(chosen) >= WORTHWHILE_GAIN else "float32"
        elif precision == "bfloat16" and (gain := bfloat16_gain(chosen)) < 1 / WORTHWHILE_GAIN:
            warnings.warn(
                f"--precision bfloat16: the hardware emulates it; products take {1 / gain:.0f} "
                "times as long as in float32",
                stacklevel=2,
            )
        return ExecutionEnvironment(chosen, getattr(torch, precision))

    @property
    def is_double(self) -> bool:
        """Whether weights and products are float64."""
        return self.dtype == torch.float64

    def autocast(self) -> AbstractContextManager[None]:
        """Matrix products in this environment's precision."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype == torch.bfloat16)

    def describe(self) -> dict[str, str | int]:
        """Return everything that exact repetition depends on."""
        return {
            "regard": regard.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "machine": f"{platform.machine()} {platform.system()}",
            "processor": processor_name(self.device),
            "device": str(self.device),
            "precision": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count() or 1,
        }


def processor_name(device: torch.device) -> str:
    """Return the name of a device's GPU or processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            names = (line.split(":", 1)[1] for line in lines if line.startswith("model name"))
            return " ".join(next(names, "unknown").split())
    except OSError:
        return platform.processor() or "unknown"


MOST_THREADS = 4096
"""Threads of a process; more end it, where memory or the system sets the limit."""

# Precision

WORTHWHILE_GAIN = 1.25
"""Gain of bfloat16 from which it is chosen automatically.

Far from every measured gain, so that two processes on one machine choose alike: 0.03 on an AMD EPYC
without bfloat16 (Zen 3), 8 on an Intel Xeon with AMX, 2.6 to 3.4 on one whose cores are shared.
"""
MEASURED = 0.05
"""Seconds of products that are measured: beside other work, the gain after four is 1.4 to 4.2."""


@cache
def bfloat16_gain(device: torch.device) -> float:
    """Return how many times as fast as float32 a bfloat16 product is, measured once per process.

    On a CPU, one thread is measured, by its processor time where the system counts it finely: what
    else the machine does changes nothing.
    """
    if device.type == "cuda":
        return _gain(device, 2048)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _gain(device, 256)
    finally:
        torch.set_num_threads(threads)


def _gain(device: torch.device, size: int) -> float:
    """Return the ratio of the shortest times of square products in float32 and in bfloat16."""
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    while len(times[torch.float32]) < 4 or sum(map(sum, times.values())) < MEASURED:
        for dtype, its in times.items():
            matrix = torch.ones(size, size, dtype=dtype, device=device)
            started = _seconds(device)
            _ = matrix @ matrix
            its.append(_seconds(device) - started)
    return min(times[torch.float32]) / min(times[torch.bfloat16])


def _seconds(device: torch.device) -> float:
    """Return the time of a clock, after a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif time.get_clock_info("thread_time").resolution < 1e-6:  # milliseconds on Windows
        return time.thread_time()
    return time.perf_counter()


# Choices that depend on the processor. benchmarks/choices.py measures each against its plain path;
# docs/speed.md has the figures.

PART_BYTES = 4 * 2048
"""Tokens of a part of a batch on a CPU, times the bytes of a number.

Larger parts take more memory, and rows of unequal length more padding. In smaller ones, products
are slower, and weights are read (in bfloat16 also converted) more often.
"""

FEW_ACTIVATIONS = 1 << 12
"""Largest number of activations for which torch's own GELU is faster than oneDNN's on a CPU."""

LARGE_CACHE = 1 << 19
"""Smallest number of values that plain products read faster than the fused attention kernel."""

SHORT_ROW = 128
"""Largest number of keys for which eager attention in bfloat16 is faster than the fused kernel."""


def prefers_eager(
    query: Float[Tensor, "batch heads queries d"], value: Float[Tensor, "batch heads keys e"]
) -> bool:
    """Return whether attention on a CPU is faster by products and softmax one by one.

    In bfloat16 it is for short rows, because the fused backward pass is slow. A single query of a
    large cache only reads it, which plain products do faster in float32, and compiled loops at any
    size. In bfloat16, products with parts of a cache copy them.
    """
    narrow = query.dtype == torch.bfloat16
    if query.size(2) == 1:
        return torch.compiler.is_compiling() or (is_large_cache(value) and not narrow)
    return narrow and value.size(2) <= SHORT_ROW


def is_large_cache(values: Float[Tensor, "batch heads tokens e"]) -> bool:
    """Return whether plain products read the values (or keys) of a cache faster than the kernel.

    Values of consecutive tokens must be adjacent in memory, since products copy others.
    """
    return values.numel() >= LARGE_CACHE and values.stride(2) == values.size(3)


# Memory


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Return the peak resident memory in MB; NaN on Windows, which doesn't report it.

    With a GPU as device, that of its tensors.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:
        return float("nan")
    if sys.platform == "linux":
        # Not ru_maxrss: it survives exec, so a child would report the peak of its parent.
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        if high_water := re.search(r"VmHWM:\s+(\d+) kB", status):
            return int(high_water[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def require_memory(n_bytes: float, what: str) -> None:
    """Raise unless this machine has so much memory; an unknown size counts as enough.

    Raises:
        UserError: names what needs it.
    """
    size = _memory_size()
    if size is not None and n_bytes > size:
        raise UserError(
            f"{what}: needs at least {n_bytes / 2**30:,.0f} GiB of memory, and this machine has "
            f"{size / 2**30:,.0f} GiB; choose less"
        )


def _memory_size() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""


@contextmanager
def freed_memory_reused() -> Iterator[None]:
    """Let glibc keep freed memory for the next allocations; return it to the system at the end.

    By default, glibc returns large blocks when they are freed, and a training step takes tens of
    thousands of page faults, which delay other threads too. The setting stays: two trainings may
    run side by side. Other C libraries are left alone.
    """
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)  # the largest that glibc accepts
    library.mallopt(_M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        library.malloc_trim(0)
