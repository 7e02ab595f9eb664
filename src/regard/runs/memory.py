"""Peak memory of this process, or of its tensors on a GPU."""

import re
import sys
from pathlib import Path

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
