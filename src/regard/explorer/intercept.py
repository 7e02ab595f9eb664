"""Intercept the attention of a model while it runs on its own kernels."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.attention import Attention, Mask, State
from regard.explorer.attention_record import AttentionRecord, make_record

Handler: TypeAlias = Callable[[AttentionRecord], Tensor]
"""Receives the record of each call and returns the output with which the model continues."""
Interceptor: TypeAlias = Callable[[Handler], AbstractContextManager[None]]
"""Calls a handler for each layer that attends in the with block."""


@torch.inference_mode()
def capture_attention(model: nn.Module, *inputs: Tensor) -> list[AttentionRecord]:
    """Run the model on its inputs and return the attention of each layer, first to last.

    Raises:
        MismatchError: weights · values isn't the output of a kernel.
    """
    with recorded(lambda handler: intercept(model, handler)) as records:
        model(*inputs)
    return records


@contextmanager
def recorded(interceptor: Interceptor) -> Iterator[list[AttentionRecord]]:
    """Collect the records of the with block, in the order of the calls."""
    records: list[AttentionRecord] = []

    def handle(record: AttentionRecord) -> Tensor:
        records.append(record)
        return record.out

    with interceptor(handle):
        yield records


@contextmanager
def intercept(model: nn.Module, handler: Handler) -> Iterator[None]:
    """Call the handler for each whole sequence and each read from a memory in the with block.

    Raises:
        MismatchError: weights · values isn't the output of a kernel.
    """
    with ExitStack() as intercepted:
        for name, module in mechanisms(model):
            intercepted.enter_context(_intercepted(name, module, handler))
        yield


def mechanisms(model: nn.Module) -> Iterator[tuple[str, Attention]]:
    """The mechanisms that the model calls itself, without those inside another mechanism."""
    found: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, Attention) and not any(name.startswith(f"{n}.") for n in found):
            found.append(name)
            yield name, module


@contextmanager
def _intercepted(name: str, module: Attention, handler: Handler) -> Iterator[None]:
    forward, encode, attend = module.forward, module.encode_memory, module.attend_memory
    memories: dict[int, tuple[State, Tensor, Tensor, Mask | None]] = {}

    def whole(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Tensor:
        with _attributes(module, {}):  # a forward may use a memory itself
            out = forward(query, key, value, **given)
            record = make_record(name, module, query, key, value, out, **given)
        return handler(record)

    def encode_memory(key: Tensor, value: Tensor, *, mask: Mask | None = None) -> State:
        memory = encode(key, value, mask=mask)
        memories[id(memory)] = memory, key, value, mask  # holding it keeps its id unique
        return memory

    def attend_memory(query: Tensor, memory: State) -> Tensor:
        out = attend(query, memory)
        _, key, value, mask = memories[id(memory)]
        return handler(make_record(name, module, query, key, value, out, mask=mask))

    methods: dict[str, Callable[..., Any]] = {
        "forward": whole,
        "encode_memory": encode_memory,
        "attend_memory": attend_memory,
    }
    with _attributes(module, methods):
        yield


@contextmanager
def _attributes(module: nn.Module, methods: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Let a module have exactly these methods of its own in the with block."""
    names = ("forward", "encode_memory", "attend_memory")
    before = {name: vars(module).pop(name) for name in names if name in vars(module)}
    vars(module).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(module)[name]
        vars(module).update(before)
