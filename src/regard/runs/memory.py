"""How much memory this process has used at most."""

import sys


def peak_memory_mb() -> float:
    """Peak resident memory in MB; NaN where the system doesn't tell (Windows)."""
    try:
        import resource
    except ImportError:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
