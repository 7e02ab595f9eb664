"""Intercept hidden states of recurrent layers, token by token.

The state after the next token is computed from the edited state.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.edits.tokens import Hook, Hooks, Reader, Tokens
from regard.explorer.calls import replaced
from regard.models.recurrent import BothDirections, Recurrence, reverse


def state_places(name: str, recurrence: Recurrence) -> Iterator[tuple[str, nn.Module, bool]]:
    """Yield the place of each direction of each layer, its module, and whether it is backward."""
    for i, layer in enumerate(recurrence.layers):
        if isinstance(layer, BothDirections):
            yield f"{name}.{i}.ahead", layer.ahead, False
            yield f"{name}.{i}.back", layer.back, True
        else:
            yield f"{name}.{i}", layer, False


@contextmanager
def intercept_recurrence(
    name: str, recurrence: Recurrence, reader: Reader, hooks: Hooks
) -> Iterator[None]:
    """Call the hooks of hidden states and cells in the with block."""
    with ExitStack() as changed:
        for place, layer, back in state_places(name, recurrence):
            parts = [hooks.get(f"{place}.{part}") for part in ("hidden", "cell")]
            if any(parts):
                changed.enter_context(_stepped(layer, reader, parts, back))
        yield


def _stepped(
    layer: Any, reader: Reader, parts: Sequence[Hook | None], back: bool
) -> AbstractContextManager[None]:
    """Run a layer token by token, with hooks on the parts of its state."""
    run = layer.forward

    def forward(x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        tokens = reader.now
        places = tokens.positions.expand(len(x), -1)
        if back:
            places = reverse(places[..., None], lengths)[..., 0]
        outputs = []
        for t in range(x.shape[1]):
            real = None if lengths is None else (lengths > t).long()
            _, after = run(x[:, t : t + 1], state, real)
            step = Tokens(tokens.prompt, places[:, t : t + 1])
            edited = [
                part if hook is None else hook(part[:, None], step, step)[:, 0]
                for part, hook in zip(after.unbind(0), parts, strict=False)
            ]
            after = torch.stack(edited)
            state = after if real is None else torch.where(real[:, None] > 0, after, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    return replaced(layer, forward=forward)
