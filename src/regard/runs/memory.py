"""Memory of this process: its peak, or that of its tensors on a GPU, and reuse of freed memory."""

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


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
