"""Peak memory of this process."""

import re
import sys
from pathlib import Path


def peak_memory_mb() -> float:
    """Return the peak resident memory in MB; NaN on Windows, which doesn't report it."""
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
