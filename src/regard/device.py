"""Kernels, sizes and compiled code that depend on the processor; memory."""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError

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
    """Return whether attention on a CPU is faster without the fused kernel.

    In bfloat16 it is for short rows, because the fused backward pass is slow. For a single query
    it is when compiled to loops, and in float32 also for a large cache, which plain products read
    faster; in bfloat16 they copy the parts of a cache that they multiply.
    """
    narrow = query.dtype == torch.bfloat16
    if query.size(2) != 1:
        return narrow and value.size(2) <= SHORT_ROW
    if torch.compiler.is_compiling():
        return True
    # Products copy values if those of consecutive tokens aren't adjacent in memory.
    return not narrow and value.numel() >= LARGE_CACHE and value.stride(2) == value.size(3)


# Memory


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Return the peak resident memory in MB; NaN on Windows, which doesn't report it.

    For a GPU, return the peak memory of its tensors.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:
        return float("nan")
    if sys.platform == "linux":
        # Not ru_maxrss: it survives exec, so a child would report the peak of its parent.
        with suppress(OSError):
            status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
            if high_water := re.search(r"VmHWM:\s+(\d+) kB", status):
                return int(high_water[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def require_memory(n_bytes: float, what: str) -> None:
    """Raise if this machine has less than `n_bytes` of memory; an unknown size counts as enough.

    Raises:
        UserError: names `what` and both sizes.
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


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return `torch.compile(function, **options)`, whose code is cached by instruction set.

    The cache of torch 2.13 ignores the instruction set: code compiled for AVX-512 gives wrong
    results or crashes where torch uses AVX2, and the other way round.
    """
    config = torch.compiler.config
    capability = torch.backends.cpu.get_cpu_capability()
    if not config.cache_key_tag.endswith(capability):
        config.cache_key_tag = f"{config.cache_key_tag} {capability}"
    return torch.compile(function, **options)
