"""The contract of all mechanisms: `check(mechanism)` lists the failures on this machine.

Every mechanism × every mask that it supports × self- and cross-attention × shared key heads, in one
precision at a time. Unsupported features must raise.

Bounds are multiples of the precision: an output may be off by `SLACK` · eps · the largest value ·
(1 + the largest sum of the terms of a score), `SLACK` times the effect of rounding scores once.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from regard.attention import reference
from regard.attention.base import Attention
from regard.attention.config import CHECKED_SHAPE
from regard.attention.contract_cases import Case, Cases, Vectors
from regard.attention.mask import Mask
from regard.attention.registry import Mechanism
from regard.attention.state import State
from regard.device import compiled
from regard.errors import UnsupportedError, first_line

SLACK = {torch.float64: 32.0, torch.float32: 32.0, torch.bfloat16: 4.0}
"""Rounding errors allowed in a result; in bfloat16, mostly those of inputs and outputs occur."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a check of a mechanism in one case."""

    check: str
    case: str
    failure: str | None
    """Description of the failure, or None."""


class ContractViolation(Exception):
    """A mechanism violates a property of the contract."""


@dataclass(frozen=True)
class Subject(Cases):
    """A mechanism under test, on a device and in a precision, with its cases."""

    outputs: dict[Case, Tensor] = field(default_factory=dict)

    @cached_property
    def attend_on_cpu(self) -> Attention:
        """A copy of the mechanism, for the references."""
        return deepcopy(self.attend).cpu()

    def output(self, case: Case) -> Tensor:
        """Return the output of a case, computed once for all checks."""
        if case not in self.outputs:
            self.outputs[case] = _run(self, case)
        return self.outputs[case]

    def close(self, actual: Tensor, expected: Tensor, case: Case, what: str) -> None:
        """Raise if a difference is larger than rounding explains."""
        if actual.shape != expected.shape:
            shapes = f"{tuple(actual.shape)}, not {tuple(expected.shape)}"
            raise ContractViolation(f"{what}: shape {shapes}")
        bound = SLACK[self.dtype] * torch.finfo(self.dtype).eps * case.scale
        error = (actual.detach().double() - expected.detach().double()).abs()
        worst = float(error.nan_to_num(nan=float("inf")).max()) if error.numel() else 0.0
        if not worst <= bound:
            message = f"{what}: off by {worst:.2g}, where rounding explains {bound:.2g}"
            raise ContractViolation(message)


Check: TypeAlias = Callable[[Subject, Case], None]
Attempt: TypeAlias = Callable[[Subject, Case], object]


def check(
    mechanism: Mechanism,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    backend: str = "aot_eager",
) -> Iterator[Outcome]:
    """Run all checks and yield their outcomes.

    `backend` is that of `torch.compile`, which is checked in float32. A mechanism that depends on
    its layer index is checked in several layers.
    """
    device = device or torch.device("cpu")
    if mechanism.layers == 1:
        attend = mechanism.example().to(device).eval()
        yield from _checked(Subject(mechanism, dtype, device, attend), backend)
        return
    for layer in range(mechanism.layers):
        attend = mechanism.example(replace(CHECKED_SHAPE, layer=layer)).to(device).eval()
        for outcome in _checked(Subject(mechanism, dtype, device, attend), backend):
            yield replace(outcome, case=f"layer {layer}: {outcome.case}")


def _checked(subject: Subject, backend: str) -> Iterator[Outcome]:
    for case in subject.supported():
        for name, (run, applies) in _CHECKS.items():
            if applies(subject, case):
                yield _outcome(name, run, subject, case)
    plain, refuses = subject.plain(), "unsupported features raise"
    for case in subject.unsupported():
        yield _outcome(refuses, partial(_refused, attempt=_run), subject, case)
    for ability, attempt in _ATTEMPTS.items():
        if not subject.attend.supports.has(ability):
            case = replace(plain, name=ability)
            yield _outcome(refuses, partial(_refused, attempt=attempt), subject, case)
    if subject.dtype == torch.float32:
        torch.compiler.reset()  # earlier compilations count toward the compiler's limits
        compiled = partial(_compiled, backend=backend)
        for case in subject.compiled():
            yield _outcome(f"compiled ({backend}) = eager", compiled, subject, case)


def _outcome(name: str, run: Check, subject: Subject, case: Case) -> Outcome:
    try:
        run(subject, case)
    except ContractViolation as broken:
        return Outcome(name, case.name, str(broken))
    except Exception as error:  # custom mechanisms may raise anything
        return Outcome(name, case.name, f"{type(error).__name__}: {first_line(error)}")
    return Outcome(name, case.name, None)


def _run(subject: Subject, case: Case) -> Tensor:
    out = subject.attend(
        case.query, case.key, case.value, mask=case.mask, bias=case.bias, gates=case.gates
    )
    if out.dtype != case.query.dtype:
        raise ContractViolation(f"the output is {out.dtype}, the queries are {case.query.dtype}")
    assert isinstance(out, Tensor)
    return out


def _weights(subject: Subject, case: Case) -> Tensor:
    return subject.attend.weights(
        case.query, case.key, mask=case.mask, bias=case.bias, gates=case.gates
    )


def _gather(subject: Subject, case: Case, weights: Tensor) -> Tensor:
    """Return weights · values, times the gates of the values."""
    return reference.gather(weights, subject.attend.gated_values(case.value, case.gates))


def _equals_reference(subject: Subject, case: Case) -> None:
    reference_weights = subject.mechanism.reference
    assert reference_weights is not None
    here, attend = case.cpu(), subject.attend_on_cpu
    table = here.bias.table if here.bias else None
    mask = here.mask or Mask()
    expected = reference_weights(attend, here.query, here.key, mask, table, **here.gates)
    gathered = _gather(subject, here, expected)
    subject.close(subject.output(case).cpu(), gathered, case, "output")
    subject.close(_weights(subject, case).cpu(), expected, case, "weights")


def _weights_give_output(subject: Subject, case: Case) -> None:
    gathered = _gather(subject, case, _weights(subject, case).double())
    subject.close(subject.output(case), gathered, case, "output against weights · values")


def _gradients(subject: Subject, case: Case) -> None:
    names = ["queries", "keys", "values", *case.gates]
    inputs = [x.detach().clone().requires_grad_() for x in case.tensors]
    out = _run(subject, case.of(inputs))
    gradients = torch.autograd.grad(out.sum(), inputs, allow_unused=True)
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is None:
            # An input that only selects keys has none.
            if subject.attend.supports.differentiable:
                raise ContractViolation(f"the {name} have no gradient")
        elif not bool(gradient.isfinite().all()):
            raise ContractViolation(f"the gradient of the {name} isn't finite")
    if subject.dtype != torch.float64:
        return

    def attend(*inputs: Tensor) -> Tensor:
        before = 0 if subject.attend.supports.differentiable else 2
        after = case.tensors[before + len(inputs) :]
        return _run(subject, case.of([*case.tensors[:before], *inputs, *after]))

    checked = inputs if subject.attend.supports.differentiable else inputs[2:3]
    try:
        # Differences of 1e-6 are off by 1e-10 from rounding and by 1e-12 from curvature.
        gradcheck(attend, checked, eps=1e-6, atol=1e-7, rtol=1e-5, fast_mode=True)
    except GradcheckError as error:
        raise ContractViolation(f"gradient against differences: {first_line(error)}") from None


def _is_causal(subject: Subject, case: Case) -> None:
    """Changed keys, values and gates leave the outputs of earlier queries as they are.

    Each row is repeated for each place from which on they are changed.
    """
    rows, queries, keys = len(case.query), case.query.shape[2], case.key.shape[2]
    where = (case.mask or Mask()).query_positions(queries, keys, subject.device)
    before, places = subject.output(case), torch.arange(keys, device=subject.device)
    row = torch.arange(rows, device=subject.device).repeat(keys - 1)
    cuts = places[1:].repeat_interleave(rows)
    changed = _overwritten(subject, _rows(case, row), places >= cuts[:, None])
    for cut, out in enumerate(_run(subject, changed).split(rows), start=1):
        seen = where < cut
        subject.close(out[:, :, seen], before[:, :, seen], case, f"rows before key {cut}")


def _padding_is_ignored(subject: Subject, case: Case) -> None:
    """Changed keys, values and gates beyond a row's length leave its outputs as they are."""
    assert case.mask is not None
    assert case.mask.key_lengths is not None
    lengths = case.mask.key_lengths
    padding = torch.arange(case.key.shape[2], device=subject.device) >= lengths[:, None]
    outputs = _run(subject, _overwritten(subject, case, padding))
    for row, (out, before) in enumerate(zip(outputs, subject.output(case), strict=True)):
        subject.close(out, before, case, f"row {row} of length {int(lengths[row])}")


def _rows(case: Case, rows: slice | Tensor) -> Case:
    """Return the case of some rows of the batch."""
    return replace(case, mask=case.mask and case.mask.rows(rows)).each(itemgetter(rows))


def _overwritten(subject: Subject, case: Case, where: Tensor) -> Case:
    """Return the case with other keys and values, and other gates of the keys, in some places.

    where: [rows, keys], whether a place is overwritten
    """
    chosen = where[:, None, :, None]
    query, key, value, *gates = case.tensors
    key = key.masked_fill(chosen, subject.mechanism.config.check_inputs[1])
    value = value.masked_fill(chosen, 100.0)
    for i, declared in enumerate(subject.attend.gates):
        if declared.at == "key":
            other = declared.low if declared.high < float("inf") else -2.0
            gates[i] = gates[i].masked_fill(chosen if gates[i].ndim == 4 else chosen[..., 0], other)
    return case.of([query, key, value, *gates])


def _masked_rows_are_zero(subject: Subject, case: Case) -> None:
    dead = ~case.allowed().any(-1)
    out, weights = subject.output(case), _weights(subject, case)
    if bool(out[dead].any()) or bool(weights[dead].any()):
        raise ContractViolation("the output of a query without allowed keys isn't zero")


def _key_heads_are_shared(subject: Subject, case: Case) -> None:
    own = [None] * 2 + [gate.heads for gate in subject.attend.gates]
    pairs = list(zip(case.tensors[1:], own, strict=True))
    heads = max(case.heads, *(x.shape[1] for x, number in pairs if number is None))
    query = case.query.repeat_interleave(heads // case.heads, 1)
    others = [
        x.repeat_interleave(heads // x.shape[1], 1) if number is None else x for x, number in pairs
    ]
    repeated = case.of([query, *others])
    subject.close(
        subject.output(case), _run(subject, repeated), case, "shared against repeated heads"
    )


def _rows_are_independent(subject: Subject, case: Case) -> None:
    """A row alone has the outputs that it has in the batch."""
    together = subject.output(case)
    for row in range(len(case.query)):
        one = slice(row, row + 1)
        subject.close(_run(subject, _rows(case, one)), together[one], case, f"row {row} alone")


def _layout_is_irrelevant(subject: Subject, case: Case) -> None:
    """Vectors that aren't contiguous, as after a convolution, have the same outputs."""
    apart = _run(subject, case.each(lambda x: x.mT.contiguous().mT))
    subject.close(apart, subject.output(case), case, "with entries apart")


def _training_is_evaluation(subject: Subject, case: Case) -> None:
    evaluated = subject.output(case)
    subject.attend.train()
    try:
        subject.close(_run(subject, case), evaluated, case, "in training mode")
    finally:
        subject.attend.eval()


def _decodes(subject: Subject, case: Case) -> None:
    """Outputs one by one, in parts and in rows of unequal length equal those of `forward`."""
    whole = subject.output(case)
    n = case.query.shape[2]
    for sizes in ([1] * n, [4, n - 4], [3, 1, n - 4], [n - 1, 1], [n]):
        state, outputs = _init_state(subject, case, n + sizes[0]), []
        for part in torch.arange(n).split(sizes):
            out, state = _extend(subject, case, state, part.expand(len(whole), -1))
            outputs.append(out)
        subject.close(torch.cat(outputs, 2), whole, case, f"tokens in steps of {sizes}")
        _ends(subject, case, sizes, whole)
    lengths = torch.tensor([6, 2])
    prompt, more = torch.arange(6).expand(2, -1), torch.arange(5)
    state = _init_state(subject, case, n)
    attention_mask = prompt < lengths[:, None]
    out, state = _extend(subject, case, state, prompt, attention_mask)
    for row, length in enumerate(lengths.tolist()):
        what = f"prompt of length {length} beside another"
        subject.close(out[row, :, :length], whole[row, :, :length], case, what)
    if state.length.tolist() != lengths.tolist():
        message = f"after prompts of {lengths.tolist()} tokens, length is {state.length}"
        raise ContractViolation(message)
    swapped = torch.tensor([1, 0, 1], device=case.query.device)
    state = state.reorder(swapped)
    for step in more.tolist():
        places = lengths[swapped.cpu(), None] + step
        out, state = _extend(subject, case, state, places, rows=swapped)
        for i, row in enumerate(swapped.tolist()):
            expected = whole[row : row + 1, :, int(places[i])]
            subject.close(out[i : i + 1, :, 0], expected, case, f"step {step} after reorder")
    state = _init_state(subject, case, n)
    out, _ = _extend(subject, case, state, prompt, attention_mask, last=True)
    ends = whole[torch.arange(len(whole)), :, lengths - 1]
    subject.close(out[:, :, 0], ends, case, "the last tokens of prompts of unequal length")


def _ends(subject: Subject, case: Case, sizes: list[int], whole: Tensor) -> None:
    """The output of the last token of each part, alone, equals that of `forward`."""
    state = _init_state(subject, case, sum(sizes))
    for part in torch.arange(sum(sizes)).split(sizes):
        out, state = _extend(subject, case, state, part.expand(len(whole), -1), last=True)
        what = f"the last token of steps of {sizes}"
        subject.close(out, whole[:, :, part[-1:]], case, what)


def _init_state(subject: Subject, case: Case, capacity: int) -> State:
    batch, value_heads, _, e = case.value.shape
    return subject.attend.init_state(
        batch,
        value_heads,
        case.key.shape[-1],
        e,
        capacity=capacity,
        device=subject.device,
        dtype=subject.dtype,
    )


def _extend(
    subject: Subject,
    case: Case,
    state: State,
    places: Tensor,
    attention_mask: Tensor | None = None,
    rows: Tensor | None = None,
    *,
    last: bool = False,
) -> tuple[Tensor, State]:
    """Extend the state by the tokens at some places; return all outputs, or only the last."""
    places = places.to(subject.device)
    row = torch.arange(len(places), device=subject.device) if rows is None else rows
    new = case.each(lambda x: x[row[:, None], :, places].transpose(1, 2))
    kept = None if attention_mask is None else attention_mask.to(subject.device)
    return subject.attend.extend(
        new.query,
        new.key,
        new.value,
        state,
        attention_mask=kept,
        bias=case.bias,
        gates=new.gates,
        last=last,
    )


def _memory_is_forward(subject: Subject, case: Case) -> None:
    """Attention to a memory equals `forward`, with its rows in any order."""
    memory = subject.attend.encode_memory(case.key, case.value, mask=case.mask)
    subject.close(
        subject.attend.attend_memory(case.query, memory), subject.output(case), case, "memory read"
    )
    order = torch.tensor([1, 0], device=subject.device)
    read = subject.attend.attend_memory(case.query[order], memory.reorder(order))
    subject.close(read, subject.output(case)[order], case, "memory of other rows")


_ATTEMPTS: dict[str, Attempt] = {
    "decoding": lambda subject, case: _init_state(subject, case, case.query.shape[2]),
    "cross": lambda subject, case: subject.attend.encode_memory(case.key, case.value),
    "vectors": lambda subject, case: subject.attend(
        case.query, case.key, case.value, bias=Vectors(case.value.shape[-1])
    ),
}
"""Calls that require a feature; other features are required by inputs of `forward`."""


def _refused(subject: Subject, case: Case, attempt: Attempt) -> None:
    try:
        attempt(subject, case)
    except UnsupportedError as error:
        if subject.attend.name not in str(error):
            raise ContractViolation(f"the error doesn't name the mechanism: {error}") from None
        return
    raise ContractViolation("an unsupported feature is accepted or silently ignored")


def _compiled(subject: Subject, case: Case, backend: str) -> None:
    attend = compiled(subject.attend, fullgraph=True, backend=backend, dynamic=False)
    out = attend(case.query, case.key, case.value, mask=case.mask, gates=case.gates)
    subject.close(out, subject.output(case), case, "compiled")


_CHECKS: dict[str, tuple[Check, Callable[[Subject, Case], bool]]] = {
    "equals its reference": (
        _equals_reference,
        lambda subject, _: bool(subject.mechanism.reference),
    ),
    "weights · values = output": (_weights_give_output, lambda _, case: True),
    "gradients": (_gradients, lambda _, case: True),
    "causal": (_is_causal, lambda _, case: "alignment" in case.restrictions),
    "padding is ignored": (_padding_is_ignored, lambda _, case: "key_lengths" in case.restrictions),
    "fully masked rows are zero": (
        _masked_rows_are_zero,
        lambda _, case: not bool(case.allowed().any(-1).all()),
    ),
    "key heads are shared": (_key_heads_are_shared, lambda _, case: case.heads > case.key.shape[1]),
    "rows are independent": (_rows_are_independent, lambda _, case: True),
    "memory layout is irrelevant": (
        _layout_is_irrelevant,
        lambda _, case: case.restrictions <= {"alignment"},
    ),
    "training = evaluation": (_training_is_evaluation, lambda _, case: True),
    "decoding = all at once": (
        _decodes,
        lambda subject, case: subject.attend.supports.decoding and case.is_decoding,
    ),
    "memory": (
        _memory_is_forward,
        lambda subject, case: (
            subject.attend.supports.cross
            and case.bias is None
            and case.restrictions <= {"key_lengths"}
        ),
    ),
}
"""Each check, and whether it applies to a case."""
