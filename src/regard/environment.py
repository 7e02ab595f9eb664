"""The environment of a run: its device, and the precision of its matrix products."""

import os
import platform
import re
import subprocess
import sys
import time
import warnings
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import torch

import regard
from regard.errors import UserError, alternatives

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
        """Return a device and precision; "auto" is a GPU if there is one, and bfloat16 if faster.

        `threads` sets the number of CPU threads of this process. If bfloat16 is requested and the
        hardware only emulates it, a warning says how much slower it is than float32.

        Raises:
            UserError: the device isn't available, or there is no such precision.
        """
        if precision not in (known := get_args(TrainingPrecision)):
            raise UserError(f"--precision {precision}: {alternatives(precision, known)}")
        chosen = find_device(device)
        if threads is not None and threads < 1:
            raise UserError(f"--threads {threads}: expected 1 or more")
        if threads is not None and threads > MOST_THREADS:
            raise UserError(f"--threads {threads:,}: choose at most {MOST_THREADS:,}")
        if precision == "auto":
            precision = "bfloat16" if bfloat16_gain(chosen) >= WORTHWHILE_GAIN else "float32"
        elif precision == "bfloat16" and (gain := bfloat16_gain(chosen)) < 1 / WORTHWHILE_GAIN:
            warnings.warn(
                f"--precision bfloat16: the hardware emulates it; products take {1 / gain:.0f} "
                "times as long as in float32",
                stacklevel=2,
            )
        if threads is not None:  # after the measurement, which more threads than cores disturb
            torch.set_num_threads(threads)
        return ExecutionEnvironment(chosen, getattr(torch, precision))

    @property
    def is_double(self) -> bool:
        """Whether weights and products are float64."""
        return self.dtype == torch.float64

    @property
    def precision(self) -> str:
        """The name of the precision, such as bfloat16."""
        return str(self.dtype).removeprefix("torch.")

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context of matrix products in this environment's precision."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype == torch.bfloat16)

    def describe(self) -> dict[str, str | int]:
        """Return everything that exact reproducibility depends on."""
        return {
            "regard": regard.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "machine": f"{platform.machine()} {platform.system()}",
            "processor": processor_name(self.device),
            "device": str(self.device),
            "precision": self.precision,
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count() or 1,
        }


def find_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is a GPU if there is one.

    GPUs are only counted, so that this process holds no memory of one.

    Raises:
        UserError: it isn't available.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    unusable = f"--device {name}: can't be used here: "
    if not re.fullmatch(r"(cpu|cuda)(:\d{1,2})?", name):
        raise UserError(f"{unusable}choose auto, cpu, cuda or a numbered GPU such as cuda:1")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= (n := torch.cuda.device_count()):
        raise UserError(f"{unusable}number of available GPUs: {n}")
    return device


def processor_name(device: torch.device) -> str:
    """Return the name of a device's GPU or processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.CalledProcessError):
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.check_output(command, text=True).strip()
    facts: dict[str, str] = {}
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for name, _, value in (line.partition(":") for line in lines):
            facts.setdefault(name.strip(), " ".join(value.split()))
    arm = [facts[name] for name in ("CPU implementer", "CPU part") if name in facts]
    return facts.get("model name") or " ".join(arm) or platform.processor() or "unknown"


MOST_THREADS = 4096
"""Largest number of threads; more can end the process, by limits of memory or of the system."""

# Precision

WORTHWHILE_GAIN = 1.25
"""Gain of bfloat16 from which it is chosen automatically.

Far from every measured gain, so that two processes on one machine choose alike: 0.03 on an AMD EPYC
without bfloat16 (Zen 3), 1.9 on one with it (Zen 4), 8 on an Intel Xeon with AMX.
"""
MEASURED = 0.05
"""Seconds of measured products: under other load, four of them alone give gains of 1.4 to 4.2."""


@cache
def bfloat16_gain(device: torch.device) -> float:
    """Return how many times as fast as float32 a bfloat16 product is, measured once per process.

    On a CPU, by the processor time of this thread (but not on Windows), so that other work changes
    little; each thread has 256 rows. The number of threads stays as it is: after a change and back,
    torch's kernels are slower (64 rows decoded on two threads of an AMD EPYC, Zen 4, by 6 to 10 %).
    """
    if device.type == "cuda":
        return _gain(device, 2048, 2048)
    return _gain(device, 256 * torch.get_num_threads(), 256)


def _gain(device: torch.device, rows: int, size: int) -> float:
    """Return the ratio of the shortest times of products in float32 and in bfloat16."""
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    while len(times[torch.float32]) < 4 or sum(map(sum, times.values())) < MEASURED:
        for dtype, its in times.items():
            x = torch.ones(rows, size, dtype=dtype, device=device)
            weight = torch.ones(size, size, dtype=dtype, device=device)
            started = _seconds(device)
            _ = x @ weight
            its.append(_seconds(device) - started)
    return min(times[torch.float32]) / min(times[torch.bfloat16])


def _seconds(device: torch.device) -> float:
    """Return the time of a clock, after a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return thread_seconds()


def thread_seconds() -> float:
    """Return the processor time of this thread, which other work on the machine hardly changes.

    On Windows, return wall-clock time: thread clocks tick every 16 ms there.
    """
    return time.perf_counter() if sys.platform == "win32" else time.thread_time()
