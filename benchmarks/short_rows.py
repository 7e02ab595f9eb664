"""Short rows on a CPU: attention composed of products and softmax against the fused kernel.

What `regard.attention.softmax._eager_is_faster` decides by. Forward and backward, interleaved;
the ratio is the median over rounds of composed time over fused time, below 1 where composing wins.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from regard.attention import Mask, Softmax
from regard.attention.softmax import softmax

SHAPES = ((64, 4, 16, 32), (64, 4, 30, 32), (64, 4, 64, 32), (64, 8, 128, 32), (16, 8, 256, 32))
ROUNDS = 15


def composed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Products and softmax one by one."""
    n = query.shape[2]
    allowed = Mask.causal().to_dense(n, n, query.device)
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    gathered: Tensor = softmax(scores, allowed) @ value
    return gathered


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """torch's kernel."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def seconds(attend: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor) -> float:
    """Time of one forward and backward."""
    query, key, value = x.permute(2, 0, 3, 1, 4)
    started = time.perf_counter()
    out = attend(query, key, value)
    torch.autograd.grad(out, x, out.detach())
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    chosen = partial(Softmax().train().forward, mask=Mask.causal())
    table = Table(title="time over that of the fused kernel, forward and backward")
    for column in ("batch × heads × tokens × d", "precision", "composed", "regard's choice"):
        table.add_column(column, justify="right")
    for batch, heads, tokens, d in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(batch, tokens, 3, heads, d, dtype=dtype, requires_grad=True)
            ratios: list[tuple[float, float]] = []
            for _ in range(ROUNDS):
                base = seconds(fused, x)
                ratios.append((seconds(composed, x) / base, seconds(chosen, x) / base))
            medians = [statistics.median(column) for column in zip(*ratios[3:], strict=True)]
            shape = f"{batch} × {heads} × {tokens} × {d}"
            table.add_row(shape, str(dtype)[6:], *[f"{ratio:.2f}" for ratio in medians])
    Console().print(table)


if __name__ == "__main__":
    main()
