"""Where positions come in, in a model of Hugging Face, as seen while it reads a row.

Vectors are consecutive rows of a table of positions. Turns are cosines and sines, believed only
where they make a layer's queries of what one of its modules gave, and by rotation alone. Biases on
scores are part of what is captured. What is unlike these isn't shown.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from regard.explorer.capture import Captured
from regard.explorer.encoding import Encoding
from regard.positions import rotate

Turn: TypeAlias = tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]
"""Cosines and signed sines, as `regard.positions.rotate` takes them."""
_TABLE = re.compile(r"(^|\.)(wpe|[^.]*pos[^.]*)$")
"""What transformers calls a table of positions: wpe, position_embeddings, embed_positions."""


@dataclass
class Positions:
    """What was seen of positions."""

    captured: list[Captured]
    vectors: dict[str, Float[Tensor, "n d"]] = field(default_factory=dict)
    """By the path of their table."""
    turns: list[Turn] = field(default_factory=list)
    turned: dict[Captured, Turn] = field(default_factory=dict)
    """What the queries of a layer went through."""
    given: list[Tensor] = field(default_factory=list)
    """What modules gave since a layer attended, while there are turns."""
    looked_at: int = 0
    """How much of what is captured was compared with them."""

    def of(self, layers: Collection[Captured], tables: Collection[str]) -> Encoding:
        """The positions of a text that these layers read, of which only these tables may tell."""
        vectors = [rows for path, rows in self.vectors.items() if path in tables]
        first, *others = [self.turned.get(layer) for layer in layers]
        return Encoding(
            vectors[0] if len(vectors) == 1 else None,
            first if all(other is first for other in others) else None,
        )

    def compare(self) -> None:
        """Ask of the layer that attended last whether its queries were turned."""
        for one in self.captured[self.looked_at :]:
            for turn in self.turns:
                if any(_turns(turn, x, one.query) for x in self.given):
                    self.turned[one] = turn
            self.given.clear()
        self.looked_at = len(self.captured)


@contextmanager
def positions_seen(model: PreTrainedModel, captured: list[Captured]) -> Iterator[Positions]:
    """What a model does about positions in the with block, while its attention is captured."""
    seen = Positions(captured)
    tokens: Any = model.get_input_embeddings()
    width = tokens.weight.shape[1]

    def hook(name: str, module: nn.Module, _: tuple[Any, ...], out: Any) -> None:
        seen.compare()
        if isinstance(module, nn.Embedding) and _TABLE.search(name):
            rows = out.detach().reshape(-1, out.shape[-1])
            if rows.shape[1] == width and _consecutive(rows, module.weight):
                seen.vectors[name] = rows
        elif "rotary" in type(module).__name__.lower() and isinstance(out, tuple):
            turn = _turn(*out)
            known = any(turn is not None and _equal(turn, other) for other in seen.turns)
            seen.turns += [] if turn is None or known else [turn]
        elif seen.turns and isinstance(out, Tensor):
            seen.given.append(out)

    hooks = [
        module.register_forward_hook(partial(hook, name)) for name, module in model.named_modules()
    ]
    try:
        yield seen
        seen.compare()
    finally:
        for one in hooks:
            one.remove()


def _consecutive(rows: Float[Tensor, "n d"], table: Float[Tensor, "most d"]) -> bool:
    """Whether rows stand in a table one after another. It may begin with some that are unused."""
    starts = (table == rows[0]).all(-1).nonzero().flatten().tolist()
    return any(table[start : start + len(rows)].equal(rows) for start in starts)


def _turn(*parts: Any) -> Turn | None:
    """The cosines and sines of a row's angles, which some models multiply by a number.

    The first half of a head's dimensions goes with the second; `_turns` finds out where it doesn't.
    """
    if len(parts) != 2 or any(not isinstance(x, Tensor) or x.ndim != 3 for x in parts):
        return None
    cos, sin = (part[0].detach() for part in parts)
    rounding = 8 * torch.finfo(cos.dtype).eps
    if not (cos.double().square() + sin.double().square() - 1).abs().max() <= rounding:
        return None
    half = cos.shape[1] // 2
    return cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)


def _equal(one: Turn, other: Turn) -> bool:
    return all(map(torch.equal, one, other))


def _turns(turn: Turn, x: Tensor, query: Float[Tensor, "1 heads n d"]) -> bool:
    """Whether a turn makes queries of what a module gave, or of the first part of it."""
    _, heads, n, d = query.shape
    if turn[0].shape != (n, d) or x.ndim < 3 or x.shape[:2] != (1, n):
        return False
    before = x.detach().flatten(2)[..., : heads * d].double()
    if before.shape[2] < heads * d:
        return False
    before = before.unflatten(2, (heads, d)).transpose(1, 2)
    cos, signed_sin = (part.double()[None, None] for part in turn)
    error = (rotate(before, (cos, signed_sin)) - query.double()).abs().max()
    return bool(error <= 4 * torch.finfo(query.dtype).eps * before.abs().max())
