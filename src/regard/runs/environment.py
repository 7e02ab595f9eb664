"""Execution environment: the device that a model runs on, and its precision."""

import os
import platform
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import regard
from regard.errors import UserError

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class ExecutionEnvironment:
    """A device and the precision of its matrix products; weights are always float32."""

    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def choose(
        device: str = "auto", precision: Precision = "float32", threads: int | None = None
    ) -> "ExecutionEnvironment":
        """Return a device and precision; "auto" is a GPU, and bfloat16, where available.

        `threads` sets the number of CPU threads of this process.

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
            torch.set_num_threads(threads)
        bfloat16 = precision == "bfloat16" or (precision == "auto" and _has_bfloat16(chosen))
        return ExecutionEnvironment(chosen, torch.bfloat16 if bfloat16 else torch.float32)

    def autocast(self) -> AbstractContextManager[None]:
        """Matrix products in this environment's precision."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def describe(self) -> dict[str, str | int]:
        """Return everything that exact repetition depends on."""
        return {
            "regard": regard.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "machine": f"{platform.machine()} {platform.system()}",
            "processor": _processor(self.device),
            "device": str(self.device),
            "precision": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count() or 1,
        }


def _has_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            names = (line.split(":", 1)[1] for line in lines if line.startswith("model name"))
            return " ".join(next(names, "unknown").split())
    except OSError:
        return platform.processor() or "unknown"
