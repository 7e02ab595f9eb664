"""Matrices K, Q and V for given outputs."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from scipy.optimize import nnls
from torch import Tensor

from regard.attention import Softmax
from regard.book.formula_text import label_text
from regard.errors import UserError
from regard.studies.figure import Drawing, figure, heat_map
from regard.studies.finding import Measurements, at_most, equal, informational, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import Rows, draw_normal, largest, matrix, vector_text

Vectors: TypeAlias = Annotated[Rows, Meta(min_length=1, max_length=8)]
Inputs: TypeAlias = Float[Tensor, "n d"]
Targets: TypeAlias = Mapping[int, Float[Tensor, " e"]]
"""Target outputs for some of the inputs, by index."""
LENGTH = 40.0
"""Length of queries made of outer products: other keys get e^−40 of the weight."""
STARTS = 4
"""Number of random initial matrices of a search."""
_INPUTS = ((0.0, 1.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0))
_TARGETS = ((0.0, 1.0, -1.0, 0.0), (0.0, 1.0, 0.0, 0.0), ())
"""The course's x₁, x₂, x₃, and its targets for the first two, along u_a, u_b, u_c, u_d."""
_ROUNDING = 1e-12
_EYE = torch.eye(4, dtype=torch.float64)
_A, _B, _C, _D = _EYE
"""Directions of u_a, u_b, u_c and u_d."""


class Head(NamedTuple):
    """Matrices of one head of self-attention without scaling."""

    query: Float[Tensor, "k d"]
    key: Float[Tensor, "k d"]
    value: Float[Tensor, "e d"]

    def __call__(self, inputs: Inputs) -> Float[Tensor, "n e"]:
        """Return c_i = Σ_j α_ij V x_j, with α_ij = softmax_j of (K x_j)·(Q x_i)."""
        outputs: Tensor = Softmax(scaled=False)(*((inputs @ x.mT)[None, None] for x in self))
        return outputs[0, 0]


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

    The last measurement is about custom inputs and targets. For linearly dependent inputs, an
    optimizer searches for a head; a failed search is no proof that none exists.

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
    head = design(inputs, desired, seed)
    course = torch.tensor(_INPUTS, dtype=torch.float64)
    plain_head = Head(_EYE, _EYE, _EYE)  # x as queries, keys and values
    plain, designed = (one(beta * course) / beta for one in (plain_head, course_head(beta)))
    yield at_most("‖c₂ − u_a‖/β, without matrices", (plain[1] - _A).norm(), _ROUNDING)
    yield from _distances_from_u_b(plain_head, course, beta)
    yield at_most("‖c₂ − u_b‖/β, with matrices", (designed[1] - _B).norm(), _ROUNDING)
    distance = (designed[0] - _B + _C).norm()
    yield at_most("‖c₁ − (u_b − u_c)‖/β, with matrices", distance, _ROUNDING)
    size = max(float(target.norm()) for target in desired.values()) or 1.0
    name = "custom targets: largest error, relative to the largest target"
    yield at_most(name, error(head, inputs, desired) / size, 0.01)
    entries = [
        (name, i, vector_text(row, ".4g"))
        for name, rows in zip("QKV", head, strict=True)
        for i, row in enumerate(rows, 1)
    ]
    yield table(["matrix", "row", "entries"], entries)
    yield _outputs(plain, designed, head(inputs))


def _distances_from_u_b(head: Head, course: Float[Tensor, "3 4"], beta: float) -> Measurements:
    """Yield distances of averages of the inputs and of a head's second output from u_b."""
    name = "distance of the nearest average from u_b, relative to β"
    nearest = (nearest_average(course, _B) - _B).norm()
    yield equal(name, nearest, math.sqrt(0.4), within=1e-9)
    for component, u in {"u_d": _D, "u_c": _C}.items():
        changed = course.clone()
        changed[1] += u
        nearest = (nearest_average(changed, _B) - _B).norm()
        yield equal(f"{name}, {component} added to x₂", nearest, math.sqrt(0.5), within=1e-9)
        distance = (head(beta * changed)[1] / beta - _B).norm()
        yield informational(f"‖c₂ − u_b‖/β, without matrices, {component} added to x₂", distance)


def _outputs(
    without: Float[Tensor, "3 4"], designed: Float[Tensor, "3 4"], custom: Float[Tensor, "n e"]
) -> Drawing:
    """Return heat maps of the course's outputs, as shares of β, and of the custom ones."""
    rows = [label_text(f"$c_{i}$") for i in (1, 2, 3)]
    columns = [label_text(f"$u_{letter}$") for letter in "abcd"]
    axes: dict[str, Any] = {"rows": rows, "columns": columns, "unit": r"share of $\beta$"}
    most = largest(custom) or 1.0
    return figure(
        heat_map(without, title="$x$ as queries, keys, values", **axes),
        heat_map(designed, title="with matrices", **axes),
        heat_map(custom, title="custom targets", x="entry", y="input", most=most, unit="output"),
    )


def course_head(beta: float) -> Head:
    """Return the three matrices of the formula."""
    a, b, c, d = beta * _EYE
    query, value = torch.outer(d, a) + torch.outer(c, d), torch.outer(b, b) - torch.outer(c, c)
    return Head(query / beta**2, _EYE, value / beta**2)


def _validated(x: Rows, targets: Rows) -> tuple[Inputs, dict[int, Float[Tensor, " e"]]]:
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


def nearest_average(points: Inputs, target: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Return the weighted average of the points that is nearest to a target.

    No output of attention with these values is nearer. For weights w = sα ≥ 0, ‖Σ w_j
    (p_j − target)‖² is s² times the objective of α; the row of ones keeps s above 0.
    """
    system = np.vstack([(points - target).numpy().T, np.ones(len(points))])
    weights = torch.from_numpy(nnls(system, np.eye(len(system))[-1])[0])
    return weights / weights.sum() @ points


def design(inputs: Inputs, targets: Targets, seed: int = 0) -> Head:
    """Return a head whose output for input i is targets[i]; other outputs are free.

    If the distinct inputs are linearly independent, the head is made of outer products and exact
    up to rounding. Otherwise it is found by a search, which may fail: check its `error`.

    Raises:
        UserError: no such head exists; says why.
    """
    _refuse_impossible(inputs, targets)
    distinct, places = torch.unique(inputs, dim=0, return_inverse=True)
    if torch.linalg.matrix_rank(distinct) == len(distinct):
        return _by_outer_products(distinct, places, targets)
    return _by_search(inputs, targets, seed)


def error(head: Head, inputs: Inputs, targets: Targets) -> float:
    """Return the largest distance between an output and its target."""
    outputs = head(inputs)
    return max(float((outputs[i] - target).norm()) for i, target in targets.items())


def _refuse_impossible(inputs: Inputs, targets: Targets) -> None:
    for i, j in combinations(sorted(targets), 2):
        if inputs[i].equal(inputs[j]) and not targets[i].equal(targets[j]):
            raise UserError(
                f"designing: targets: inputs {i + 1} and {j + 1} are equal and so have equal "
                "outputs, but their targets differ; give equal targets or different inputs"
            )
    desired = torch.stack(list(targets.values()))
    given, required = (int(torch.linalg.matrix_rank(x)) for x in (inputs, desired))
    if required > given:
        raise UserError(
            f"designing: targets: the targets span {required} dimensions and the inputs {given}, "
            "which bounds the dimensions of the outputs; use inputs that span more or targets that "
            "span fewer"
        )


def _by_outer_products(distinct: Inputs, places: Int[Tensor, " n"], targets: Targets) -> Head:
    """Return a head in which every input attends to itself, and V maps it to its target.

    The vectors p_j have the product 1 with input j and 0 with the others. So with K = I and
    Q = t Σ p_j p_jᵀ, an input has score t with itself and 0 with the others. V = Σ y_j p_jᵀ maps
    input j to y_j.
    """
    duals = torch.linalg.pinv(distinct).mT
    desired = {int(places[i]): target for i, target in targets.items()}
    values = torch.stack(list(desired.values()))
    identity = torch.eye(distinct.shape[1], dtype=distinct.dtype)
    return Head(LENGTH * duals.mT @ duals, identity, values.mT @ duals[list(desired)])


def _by_search(inputs: Inputs, targets: Targets, seed: int) -> Head:
    """Return the best of several optimized heads, on inputs and targets scaled to size 1."""
    size, height = largest(inputs) or 1.0, max(map(largest, targets.values())) or 1.0
    small, low = inputs / size, {i: target / height for i, target in targets.items()}
    generator = torch.Generator().manual_seed(seed)
    heads = (_optimized(small, low, generator) for _ in range(STARTS))
    best = min(heads, key=lambda head: error(head, small, low))
    return Head(best.query / size, best.key / size, best.value * height / size)


def _optimized(inputs: Inputs, targets: Targets, generator: torch.Generator) -> Head:
    d, desired = inputs.shape[1], torch.stack(list(targets.values()))
    shapes = ((d, d), (d, d), (desired.shape[1], d))
    matrices = [draw_normal(generator, *shape).requires_grad_() for shape in shapes]
    optimizer = torch.optim.LBFGS(matrices, max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        squares = (Head(*matrices)(inputs)[list(targets)] - desired).square().sum()
        squares.backward()
        return squares

    optimizer.step(loss)
    return Head(*(each.detach() for each in matrices))
