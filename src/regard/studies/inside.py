"""What a study gives to the explorer, so that a reader can look inside its heads."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, Mask
from regard.explorer.alone import look_at_attention
from regard.runs.run import Run

SHOWN = 64
"""Keys that a reader may want to look at one by one."""


def heads_inside(
    title: str,
    mechanism: Attention,
    query: Float[Tensor, "1 heads queries d"],
    key: Float[Tensor, "1 heads keys d"],
    value: Float[Tensor, "1 heads keys e"],
    *,
    queries: Sequence[str] = (),
    keys: Sequence[str] = (),
    mask: Mask | None = None,
) -> dict[str, Any] | None:
    """Attention by hand, step by step; None where there are too many keys to look at."""
    if key.shape[2] > SHOWN:
        return None
    return look_at_attention(
        mechanism, query, key, value, title=title, queries=queries, keys=keys, mask=mask
    ).data


def named(run: Run, name: str) -> Run:
    """A run by what it is, where a page would show the name of its folder."""
    return replace(run, path=Path(name))
