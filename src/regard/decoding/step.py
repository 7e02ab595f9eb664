"""The step of one token: exported from a model, and run instead of it.

A step takes the token of each row, slots of a cache, and the tensors of the model's states. It
writes into the caches, as the model does, and returns the logits and the tensors that replace
others. The model itself runs inputs of more than one token per row, such as prompts.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.export import ExportedProgram

from regard.attention.base import product_dtype, without_autocast
from regard.attention.state import KeyValueCache, RowState
from regard.decoding.prepare import prepare
from regard.errors import UnsupportedError, first_line
from regard.models.builders import LanguageModel
from regard.models.perceiver import PerceiverDecoder

CompiledStep: TypeAlias = Callable[[list[Tensor]], list[Tensor]]
"""The token of each row, used slots and the state's tensors → logits and replaced tensors."""


# The step, as it is exported


class Step(nn.Module):
    """The logits after one token of each row, and the tensors of the state that were replaced."""

    def __init__(self, model: LanguageModel, states: Any, replaced: Sequence[int]) -> None:
        """For states of the given structure; `replaced` are indices of tensors that change."""
        super().__init__()
        self.model, self.states, self.replaced = model, states, replaced

    def forward(
        self, input_ids: Int[Tensor, "b 1"], slots: Int[Tensor, " used"], tensors: list[Tensor]
    ) -> list[Tensor]:
        """`slots` are the used slots of a cache, with this token's; only their number counts."""
        before = _filled(self.states, iter(tensors), slots.shape[0] - 1)
        logits, after = self.model.extend(input_ids, before)
        new = _tensors(after)
        return [logits, *(new[i] for i in self.replaced)]


class _CompiledLinear(nn.Linear):
    """A linear layer in the precision of its weights."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


def _for_compiler(model: LanguageModel) -> LanguageModel:
    """Return a copy that gives without autocast the results of the model with autocast."""
    tensors = named_tensors(model)
    model = deepcopy(model).requires_grad_(requires_grad=False)
    for path, module in model.named_modules():
        if type(module) is nn.Linear:
            module.__class__ = _CompiledLinear
            for name, _ in list(module.named_parameters()):
                converted = nn.Parameter(tensors[f"{path}.{name}"], requires_grad=False)
                setattr(module, name, converted)
    return model


def _parts(state: Any) -> Sequence[Any]:
    if isinstance(state, RowState):
        return list(vars(state).values())
    return state if isinstance(state, Sequence) else []


def _tensors(state: Any) -> list[Tensor]:
    """Return the tensors of a state, in the order of `_filled`."""
    if isinstance(state, Tensor):
        return [state]
    return [tensor for part in _parts(state) for tensor in _tensors(part)]


def _filled(state: Any, tensors: Iterator[Tensor], longest: int) -> Any:
    """Return a state of the same structure with other tensors and another longest row."""
    if isinstance(state, Tensor):
        return next(tensors)
    if isinstance(state, Sequence):
        return [_filled(part, tensors, longest) for part in state]
    if not isinstance(state, RowState):
        return state
    filled = {name: _filled(part, tensors, longest) for name, part in vars(state).items()}
    if isinstance(state, KeyValueCache):
        filled |= {"longest": longest, "shortest": state.shortest + (longest - state.longest)}
    return replace(state, **filled)


def _caches(state: Any) -> list[KeyValueCache]:
    if isinstance(state, KeyValueCache):
        return [state]
    return [cache for part in _parts(state) for cache in _caches(part)]


def _example(model: LanguageModel, batch: int) -> tuple[Tensor, Any]:
    """Return a token of each row, and example states before it.

    If there are several rows, their lengths are unequal.
    """
    device = next(model.parameters()).device
    length = min(4, model.body.context_length - 1)
    ids = torch.zeros(batch, length, dtype=torch.long, device=device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    if batch > 1:
        mask[0, -1] = False
    with torch.no_grad():
        _, states = model.extend(ids, model.init_state(batch, length + 2), mask)
    return ids[:, :1].contiguous(), states


def _growing(model: LanguageModel, batch: int) -> list[dict[int, Any]]:
    """Return the dimensions of a state's tensors that depend on its capacity."""
    least, most = (
        _tensors(model.init_state(batch, capacity)) for capacity in (1, model.body.context_length)
    )
    return [
        {i: torch.export.Dim.DYNAMIC for i in range(a.ndim) if a.shape[i] != b.shape[i]}
        for a, b in zip(least, most, strict=True)
    ]


@torch.inference_mode(False)  # in it, writes to buffers can't be counted
def export_step(model: LanguageModel, batch: int) -> tuple[ExportedProgram, list[int]]:
    """Return the exported step of one token, and the places of the tensors that it replaces.

    Raises:
        UnsupportedError: torch.export fails, or the exported step computes other logits.
    """
    if isinstance(model.body, PerceiverDecoder):
        raise unsupported("its cache of latents has fewer slots than the context has tokens")
    ids, states = _example(prepare(model), batch)
    tensors = [tensor.contiguous() for tensor in _tensors(states)]
    with torch.no_grad():
        states = _filled(states, iter(tensors), _longest(states))
        after = _tensors(model.extend(ids, states)[1])
    pairs = enumerate(zip(tensors, after, strict=True))
    replaced = [i for i, (old, new) in pairs if new is not old]
    slots = torch.arange(_longest(states) + 1, device=ids.device)
    shapes = None, {0: torch.export.Dim.DYNAMIC}, _growing(model, batch)
    try:
        converted = _for_compiler(model)
        with torch.no_grad(), without_autocast(ids), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(
                Step(converted, states, replaced),
                (ids, slots, tensors),
                dynamic_shapes=shapes,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
        module = exported.module()
        before = _versions(module)
        check_step(model, batch, lambda x: module(x[0], x[1], x[2:]), replaced)
    except Exception as error:  # torch.export raises errors of many kinds
        raise unsupported(first_line(error)) from error
    if _versions(module) != before:
        raise unsupported("its attention writes to a buffer at each token")
    if not {*exported.state_dict, *exported.constants} <= {
        f"model.{name}" for name in named_tensors(model)
    }:
        raise unsupported("some of its weights have no name")
    return exported, replaced


def _versions(module: nn.Module) -> list[int]:
    """Return the number of in-place writes to each buffer."""
    return [buffer._version for buffer in module.buffers()]


def unsupported(reason: str) -> UnsupportedError:
    """Return the error for a model whose decoding can't be compiled."""
    return UnsupportedError(
        f"compile: this model's decoding can't be compiled ({reason}); decode without a package"
    )


def _longest(states: Any) -> int:
    return max((cache.longest for cache in _caches(states)), default=1)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by all their names; linear layers' in autocast's dtype."""
    tensors: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    for path, module in model.named_modules(remove_duplicate=False):
        if type(module) is nn.Linear:
            names = (f"{path}.{name}" for name in module._parameters)
            tensors |= {n: tensors[n].to(product_dtype(tensors[n])) for n in names if n in tensors}
    return tensors | dict(model.named_buffers(remove_duplicate=False))


# The step, as it is run


@dataclass(frozen=True, eq=False)
class FlatStates:
    """A model's states as the list of tensors that a package takes."""

    states: Any
    tensors: list[Tensor]
    longest: int
    slots: Int[Tensor, " capacity"]
    growth: int
    """Number of slots that a token takes: 1, or 0 if states have a constant size."""

    @staticmethod
    def of(states: Any) -> "FlatStates":
        """Flatten a model's states."""
        sizes = [cache.keys.shape[2] - 1 for cache in _caches(states)]
        # Compiled code requires this layout.
        tensors = [tensor.contiguous() for tensor in _tensors(states)]
        longest = _longest(states)
        slots = torch.arange(min(sizes, default=longest + 1), device=tensors[0].device)
        return FlatStates(states, tensors, longest, slots, growth=1 if sizes else 0)

    def unflatten(self) -> Any:
        """Return the model's states."""
        return _filled(self.states, iter(self.tensors), self.longest)

    def reorder(self, rows: Int[Tensor, " rows"]) -> Any:
        """Return the model's states of the given rows, in that order."""
        return self.unflatten().reorder(rows)


@dataclass(frozen=True, eq=False)
class PackagedModel:
    """A model whose steps of one token are run by a package for the batch size, if there is one."""

    model: Any
    steps: dict[int, tuple[CompiledStep, Sequence[int]]]
    """The step and the indices of the tensors that it replaces, by batch size."""

    def init_state(self, batch: int, capacity: int) -> Any:
        """Return empty decoding states for at most `capacity` tokens."""
        return self.model.init_state(batch, capacity)

    def extend(
        self,
        input_ids: Int[Tensor, "b n"],
        states: Any,
        attention_mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b vocabulary"], Any]:
        """Return the logits of the token after each row's last real one, and the new states."""
        if attention_mask is None and input_ids.shape[1] == 1:
            flat = states if isinstance(states, FlatStates) else FlatStates.of(states)
            if 0 < flat.longest < len(flat.slots) and (found := self._run(input_ids, flat)):
                return found
        states = states.unflatten() if isinstance(states, FlatStates) else states
        extended: tuple[Tensor, Any] = self.model.extend(input_ids, states, attention_mask)
        return extended

    def _run(self, input_ids: Tensor, flat: FlatStates) -> tuple[Tensor, FlatStates] | None:
        batch = len(input_ids)
        if batch not in self.steps:
            if self.steps:  # otherwise, a warning has named the failed package
                sizes = ", ".join(map(str, sorted(self.steps)))
                warn_of_package(f"is for batch size {sizes}; others are decoded without it")
            return None
        # A failed step has written only to the token's slots, which the model overwrites.
        try:
            return run_step(*self.steps[batch], input_ids, flat)
        except RuntimeError as error:
            del self.steps[batch]
            warn_of_package(f"fails ({first_line(error)}); decoding goes on without it")
            return None


def run_step(
    run: CompiledStep, replaced: Sequence[int], input_ids: Int[Tensor, "b 1"], flat: FlatStates
) -> tuple[Float[Tensor, "b vocabulary"], FlatStates]:
    """Return the logits of the next token and the new states; the given states become invalid.

    Raises:
        RuntimeError: the compiled code fails.
    """
    tensors, used = flat.tensors, flat.slots[: flat.longest + 1]
    logits, *new = run([input_ids.contiguous(), used, *tensors])
    for i, tensor in zip(replaced, new, strict=True):
        tensors[i] = tensor.contiguous()
    return logits, replace(flat, tensors=tensors, longest=flat.longest + flat.growth)


ROUNDINGS = {torch.bfloat16: 10, torch.float32: 1000, torch.float64: 1000}
"""Bound of the difference of two logits: eps times this, relative to the largest logit."""


def check_step(
    model: LanguageModel, batch: int, run: CompiledStep, replaced: Sequence[int]
) -> None:
    """Raise unless a step gives the model's logits, within the bound.

    Lengths up to 40 and the last 3 are compared: compiled code may be right for short caches alone.
    Keys between the prompt and those lengths are zero.

    Raises:
        RuntimeError: the step gives other logits, or fails.
    """
    longest, model = model.body.context_length, prepare(model)
    prompt = min(3, longest - 1)
    device = next(model.parameters()).device
    mask = (torch.arange(prompt) <= torch.arange(batch)[:, None] % prompt).to(device)
    for first, end in (prompt, min(40, longest)), (max(prompt, longest - 3), longest):
        drawn = torch.Generator().manual_seed(0)
        shape = (batch, prompt + end - first)
        ids = torch.randint(model.head.out_features, shape, generator=drawn).to(device)
        with torch.inference_mode():
            begun = (
                model.extend(ids[:, :prompt], model.init_state(batch, end), mask)[1]
                for _ in range(2)
            )
            expected, found = (_filled(x, iter(_tensors(x)), first) for x in begun)
            flat = FlatStates.of(found)
            for token in ids[:, prompt:].split(1, 1):
                plain, expected = model.extend(token, expected)
                compiled, flat = run_step(run, replaced, token, flat)
                bound = ROUNDINGS[plain.dtype] * torch.finfo(plain.dtype).eps * plain.abs().max()
                if not (compiled - plain).abs().max() <= bound:
                    raise RuntimeError("the compiled step gives other logits")


def warn_of_package(message: str) -> None:
    warnings.warn(f"the compiled package {message}", stacklevel=2)
