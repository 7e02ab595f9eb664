"""Matrices K, Q and V for given outputs."""

import math
from typing import Annotated, Any

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.errors import UserError
from regard.studies.figure import figure, heat_map
from regard.studies.finding import EvidenceParts, at_most, equal, informational, table
from regard.studies.single_head.head_design import Head, design, error, nearest_average
from regard.studies.study import Seed, study
from regard.studies.tensors import Rows, vector_text

_INPUTS = ((0.0, 1.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0))
_WISHES = ((0.0, 1.0, -1.0, 0.0), (0.0, 1.0, 0.0, 0.0), ())
"""The course's x₁, x₂, x₃, and its targets for the first two, along u_a, u_b, u_c, u_d."""
_ROUNDING = 1e-12


@study()
def designing(
    beta: Annotated[float, Meta(gt=0, le=100)] = 10.0,
    x: Annotated[Rows, Meta(min_length=1, max_length=8)] = _INPUTS,
    targets: Annotated[Rows, Meta(min_length=1, max_length=8)] = _WISHES,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What can a head compute with queries, keys and values, but not without them?

    With x for all three, c₂ ≈ u_a, and no query can give u_b; with matrices made of outer products,
    c₂ = u_b and c₁ = u_b − u_c up to rounding.

    $$ V = \frac{u_b u_b^\top - u_c u_c^\top}{\beta^2}, \quad K = I, \quad Q = \frac{u_d u_a^\top +
    u_c u_d^\top}{\beta^2} $$

    Without matrices an input looks for what is like itself, which is mostly itself: x₂ = u_a has
    the product β² with itself and 0 with the others, and gets itself back. To look elsewhere it
    could be given a part of another input; but what attention gives is an average of inputs, and
    u_b occurs only together with u_d or u_c. Every average of the three is at least √0.4·β away
    from u_b, and √0.5·β if u_d or u_c is added to x₂, whatever the weights.

    An outer product uvᵀ answers u to whoever has a part v. So V keeps the target part of an input
    and drops the rest; and Q says to whoever has u_a: look for u_d, and to whoever has u_d: look
    for u_c. What is looked for and what is found there are now different parts of an input.

    The last number is about inputs and targets of your own (at first the course's). If the inputs
    are linearly independent there always is a head: each looks at itself, and V turns it into
    anything. If they aren't, a search is made; that it finds none is no proof. If equal inputs have
    different targets, or the targets span more dimensions than inputs, there is no head, and the
    study says so.

    Figure. Outputs, one per row, by their parts; blue is positive, orange negative. With x for
    queries, keys and values c₂ is u_a. With the course's matrices c₁ is u_b − u_c and c₂ is u_b.
    Right: outputs of the head designed for your own targets.

    Args:
        beta: length of u_a, u_b, u_c, u_d
        x: inputs of your own, in brackets each
        targets: the target output for each of them, in brackets; [] for any
        seed: where a search begins
    """
    inputs, desired = _own(x, targets)
    try:
        head = design(inputs, desired, seed)
    except UserError as impossible:
        raise UserError(f"designing: targets: {impossible}") from None
    u_b = beta * _unit(1)
    bare = {part: _course_inputs(beta, part) for part in ("", "u_d", "u_c")}
    plain = Head(*(torch.eye(4, dtype=torch.float64),) * 3)
    without, made = plain(bare[""]), course_head(beta)(bare[""])
    yield at_most("‖c₂ − u_a‖/β, without matrices", _off(without[1], _unit(0), beta), _ROUNDING)
    nearest = {part: _off(nearest_average(x, u_b), _unit(1), beta) for part, x in bare.items()}
    name = "the nearest that an average comes to u_b, over β"
    yield equal(name, nearest.pop(""), math.sqrt(0.4), within=1e-9)
    for part, off in nearest.items():
        yield equal(f"the same, {part} added to x₂", off, math.sqrt(0.5), within=1e-9)
    for part in nearest:
        off = _off(plain(bare[part])[1], _unit(1), beta)
        yield informational(f"‖c₂ − u_b‖/β, without matrices, {part} added to x₂", off)
    yield at_most("‖c₂ − u_b‖/β, with matrices", _off(made[1], _unit(1), beta), _ROUNDING)
    off = _off(made[0], _unit(1) - _unit(2), beta)
    yield at_most("‖c₁ − (u_b − u_c)‖/β, with matrices", off, _ROUNDING)
    size = max(float(target.norm()) for target in desired.values()) or 1.0
    name = "your own targets: largest error, over the largest target"
    yield at_most(name, error(head, inputs, desired) / size, 0.01)
    entries = [
        (name, i, vector_text(row, ".4g"))
        for name, matrix in {"Q": head.query, "K": head.key, "V": head.value}.items()
        for i, row in enumerate(matrix, 1)
    ]
    yield table(["matrix", "row", "entries"], entries)
    own, parts = head(inputs), ["u_a", "u_b", "u_c", "u_d"]
    most = float(own.abs().max()) or 1.0
    rows = [f"c{'₁₂₃₄₅₆₇₈'[i]}" for i in range(max(len(own), 3))]
    course: dict[str, Any] = {"rows": rows[:3], "columns": parts, "unit": "share of β"}
    names = {"rows": rows[: len(own)], "columns": [str(e + 1) for e in range(own.shape[1])]}
    yield figure(
        heat_map(without / beta, title="x for all three", **course),
        heat_map(made / beta, title="with matrices", **course),
        heat_map(own, title="your own targets", x="entry", most=most, unit="output", **names),
    )


def course_head(beta: float) -> Head:
    """The three matrices of the formula."""
    u = beta * torch.eye(4, dtype=torch.float64)
    a, b, c, d = u
    return Head(
        query=(torch.outer(d, a) + torch.outer(c, d)) / beta**2,
        key=torch.eye(4, dtype=torch.float64),
        value=(torch.outer(b, b) - torch.outer(c, c)) / beta**2,
    )


def _course_inputs(beta: float, added: str) -> Float[Tensor, "3 4"]:
    """x₁, x₂ and x₃, with u_c, u_d or nothing added to x₂."""
    inputs = torch.tensor(_INPUTS, dtype=torch.float64)
    if added:
        inputs[1] += _unit("abcd".index(added[-1]))
    return beta * inputs


def _unit(i: int) -> Float[Tensor, "4"]:
    return torch.eye(4, dtype=torch.float64)[i]


def _off(c: Float[Tensor, "4"], target: Float[Tensor, "4"], beta: float) -> float:
    """Distance between an output and β times the target, divided by β."""
    return float((c / beta - target).norm())


def _own(x: Rows, targets: Rows) -> tuple[Float[Tensor, "n d"], dict[int, Float[Tensor, " e"]]]:
    """Inputs, and the targets for some of them.

    Raises:
        UserError: their sizes don't fit, or there is no target.
    """
    if len(x) != len(targets):
        raise UserError(
            f"designing: targets: {len(targets)} for {len(x)} inputs; write one each, [] for any"
        )
    desired = {i: target for i, target in enumerate(targets) if target}
    if not desired:
        raise UserError("designing: targets: all are empty; give one output at least")
    for name, rows in (("x", x), ("targets", tuple(desired.values()))):
        if len({len(row) for row in rows}) > 1 or not 1 <= len(rows[0]) <= 8:
            raise UserError(
                f"designing: {name}: rows of {', '.join(str(len(row)) for row in rows)} numbers; "
                "write 1 to 8 in each, equally many"
            )
    if not all(math.isfinite(entry) for row in (*x, *targets) for entry in row):
        raise UserError("designing: x and targets: not all numbers are finite; write finite ones")
    tensors = {i: torch.tensor(target, dtype=torch.float64) for i, target in desired.items()}
    return torch.tensor(x, dtype=torch.float64), tensors
