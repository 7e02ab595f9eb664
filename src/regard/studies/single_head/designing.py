"""Matrices K, Q and V for given outputs."""

import math
from typing import Annotated, Any, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.book.formula_text import label_text
from regard.errors import UserError
from regard.studies.figure import Drawing, figure, heat_map
from regard.studies.finding import Measurements, at_most, equal, informational, table
from regard.studies.single_head.head_design import Head, design, error, nearest_average
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import Rows, largest, matrix, vector_text

_INPUTS = ((0.0, 1.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0))
_TARGETS = ((0.0, 1.0, -1.0, 0.0), (0.0, 1.0, 0.0, 0.0), ())
"""The course's x₁, x₂, x₃, and its targets for the first two, along u_a, u_b, u_c, u_d."""
_ROUNDING = 1e-12
_EYE = torch.eye(4, dtype=torch.float64)
_A, _B, _C, _D = _EYE
"""Directions of u_a, u_b, u_c and u_d."""
_PLAIN = Head(_EYE, _EYE, _EYE)
"""Head with x as queries, keys and values."""
Vectors: TypeAlias = Annotated[Rows, Meta(min_length=1, max_length=8)]


@study()
def designing(
    beta: Annotated[float, Meta(gt=0, le=100)] = 10.0,
    x: Vectors = _INPUTS,
    targets: Vectors = _TARGETS,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What can a head compute with K, Q and V that it can't compute without them?

    With x as queries, keys and values, c₂ ≈ u_a, and no query gives u_b; with matrices made of
    outer products, c₂ = u_b and c₁ = u_b − u_c up to rounding.

    $$ V = \frac{u_b u_b^\top - u_c u_c^\top}{\beta^2}, \quad K = I, \quad Q = \frac{u_d u_a^\top +
    u_c u_d^\top}{\beta^2} $$

    The course's inputs are measured without matrices and with those of the formula; the last
    measurement is about custom inputs and targets. For linearly independent inputs a head is
    constructed; otherwise an optimizer searches for one, and a failed search is no proof that none
    exists.

    Figure. Outputs, one per row, by component; blue is positive, orange negative. With x as
    queries, keys and values, c₂ is u_a. With the course's matrices, c₁ is u_b − u_c and c₂ is u_b.
    Right: outputs of the head designed for the custom targets.

    Args:
        beta: length of u_a, u_b, u_c, u_d
        x: custom inputs, each in brackets
        targets: target output of each input, in brackets; [] if free
        seed: seed of the search
    """
    inputs, desired = _validated(x, targets)
    try:
        head = design(inputs, desired, seed)
    except UserError as impossible:
        raise UserError(f"designing: targets: {impossible}") from None
    course = beta * torch.tensor(_INPUTS, dtype=torch.float64)
    yield from _without_matrices(course, beta)
    c1, c2, _ = course_head(beta)(course)
    yield at_most("‖c₂ − u_b‖/β, with matrices", _distance(c2, _B, beta), _ROUNDING)
    yield at_most("‖c₁ − (u_b − u_c)‖/β, with matrices", _distance(c1, _B - _C, beta), _ROUNDING)
    size = max(float(target.norm()) for target in desired.values()) or 1.0
    name = "custom targets: largest error, relative to the largest target"
    yield at_most(name, error(head, inputs, desired) / size, 0.01)
    entries = [
        (name, i, vector_text(row, ".4g"))
        for name, matrix in {"Q": head.query, "K": head.key, "V": head.value}.items()
        for i, row in enumerate(matrix, 1)
    ]
    yield table(["matrix", "row", "entries"], entries)
    yield _outputs(_PLAIN(course) / beta, course_head(beta)(course) / beta, head(inputs))


def _without_matrices(course: Float[Tensor, "3 4"], beta: float) -> Measurements:
    """Yield distances of outputs from u_a and u_b with x as queries, keys and values."""
    distance = _distance(_PLAIN(course)[1], _A, beta)
    yield at_most("‖c₂ − u_a‖/β, without matrices", distance, _ROUNDING)
    name = "distance of the nearest average from u_b, relative to β"
    nearest = _distance(nearest_average(course, beta * _B), _B, beta)
    yield equal(name, nearest, math.sqrt(0.4), within=1e-9)
    for component, u in {"u_d": _D, "u_c": _C}.items():
        changed = course.clone()
        changed[1] += beta * u
        nearest = _distance(nearest_average(changed, beta * _B), _B, beta)
        yield equal(f"{name}, {component} added to x₂", nearest, math.sqrt(0.5), within=1e-9)
        distance = _distance(_PLAIN(changed)[1], _B, beta)
        yield informational(f"‖c₂ − u_b‖/β, without matrices, {component} added to x₂", distance)


def _outputs(
    without: Float[Tensor, "3 4"], designed: Float[Tensor, "3 4"], custom: Float[Tensor, "n e"]
) -> Drawing:
    """Return heat maps of the course's outputs, as shares of β, and of the custom ones."""
    rows = [label_text(f"$c_{i + 1}$") for i in range(max(len(custom), 3))]
    components = [label_text(f"$u_{letter}$") for letter in "abcd"]
    axes: dict[str, Any] = {"rows": rows[:3], "columns": components, "unit": r"share of $\beta$"}
    names = {"rows": rows[: len(custom)], "columns": [str(e + 1) for e in range(custom.shape[1])]}
    most = largest(custom) or 1.0
    return figure(
        heat_map(without, title="$x$ as queries, keys, values", **axes),
        heat_map(designed, title="with matrices", **axes),
        heat_map(custom, title="custom targets", x="entry", most=most, unit="output", **names),
    )


def course_head(beta: float) -> Head:
    """Return the three matrices of the formula."""
    a, b, c, d = beta * _EYE
    return Head(
        query=(torch.outer(d, a) + torch.outer(c, d)) / beta**2,
        key=_EYE,
        value=(torch.outer(b, b) - torch.outer(c, c)) / beta**2,
    )


def _distance(c: Float[Tensor, "4"], target: Float[Tensor, "4"], beta: float) -> float:
    """Return the distance of an output from β times the target, divided by β."""
    return float((c / beta - target).norm())


def _validated(
    x: Rows, targets: Rows
) -> tuple[Float[Tensor, "n d"], dict[int, Float[Tensor, " e"]]]:
    """Return inputs, and targets by index of their input.

    Raises:
        UserError: their sizes don't fit, or there is no target.
    """
    if len(x) != len(targets):
        raise UserError(
            f"designing: targets: {len(targets)} for {len(x)} inputs; write one each, [] if free"
        )
    desired = {i: target for i, target in enumerate(targets) if target}
    if not desired:
        raise UserError("designing: targets: all are empty; give at least one output")
    outputs = matrix("designing: targets", tuple(desired.values()), limit=8)
    return matrix("designing: x", x, limit=8), dict(zip(desired, outputs, strict=True))
