"""The matrix that takes what heads gathered to the output, found by what it reads.

Its name differs from model to model (c_proj, dense, o_proj, out_proj, o). What it is given doesn't:
the outputs of all heads, side by side. Where they are scaled, normalised or gated before, or read
by more than one module, no single matrix does the job, and none is found.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from regard.explorer.capture import Captured

Projections = Mapping[Captured, list[Tensor]]
"""For what each layer did, the matrices that read it."""


@contextmanager
def output_readers(model: nn.Module, captured: list[Captured]) -> Iterator[Projections]:
    """Which matrices read, in the with block, what is captured there meanwhile."""
    readers: dict[Captured, list[Tensor]] = {}

    def hook(module: nn.Module, args: tuple[Any, ...], _: Any) -> None:
        matrix = _matrix(module)
        if captured and args and matrix is not None and _reads(args[0], captured[-1]):
            readers.setdefault(captured[-1], []).append(matrix)

    hooks = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        yield readers
    finally:
        for one in hooks:
            one.remove()


def projection(readers: Projections, captured: Captured) -> Float[Tensor, "d_model heads_e"] | None:
    """The one matrix that read what a layer's heads gathered, if there is one."""
    found = readers.get(captured, [])
    return found[0] if len(found) == 1 else None


def _matrix(module: nn.Module) -> Tensor | None:
    """What a module multiplies its input with, as a linear layer has it."""
    if type(module) is nn.Linear:
        return module.weight.detach()
    if type(module) is Conv1D:  # GPT-2's, which has it the other way round
        return module.weight.detach().mT
    return None


def _reads(x: object, captured: Captured) -> bool:
    """Whether an input is what all heads gathered, one after another."""
    if not isinstance(x, Tensor) or x.numel() != captured.out.numel():
        return False
    heads_e = captured.out.shape[1] * captured.out.shape[3]
    gathered = captured.out.transpose(1, 2).flatten(2)
    return x.shape[-1] == heads_e and x.reshape(gathered.shape).equal(gathered)
