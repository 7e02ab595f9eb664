"""Design of a head: matrices K, Q and V with target outputs for given inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import nnls
from torch import Tensor

from regard.attention import Softmax
from regard.errors import UserError
from regard.studies.tensors import draw_normal, largest

Inputs: TypeAlias = Float[Tensor, "n d"]
Targets: TypeAlias = Mapping[int, Float[Tensor, " e"]]
"""Target outputs for some of the inputs, by index."""
LENGTH = 40.0
"""Length of queries made of outer products: other keys get e^−40 of the weight."""
STARTS = 4
"""Number of random initial matrices of a search."""


@dataclass(frozen=True, eq=False)
class Head:
    """Matrices of one head of self-attention without scaling."""

    query: Float[Tensor, "k d"]
    key: Float[Tensor, "k d"]
    value: Float[Tensor, "e d"]

    def __call__(self, inputs: Inputs) -> Float[Tensor, "n e"]:
        """Return c_i = Σ_j α_ij V x_j, with α_ij = softmax_j of (K x_j)·(Q x_i)."""
        query, key, value = (
            (inputs @ matrix.mT)[None, None] for matrix in (self.query, self.key, self.value)
        )
        outputs: Tensor = Softmax(scaled=False)(query, key, value)
        return outputs[0, 0]


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


def nearest_average(points: Inputs, target: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Return the weighted average of the points that is nearest to a target.

    No output of attention with these values is nearer. For weights w = sα ≥ 0, ‖Σ w_j
    (p_j − target)‖² is s² times the objective of α; the row of ones keeps s above 0.
    """
    system = np.vstack([(points - target).numpy().T, np.ones(len(points))])
    ends_in_one = np.zeros(len(system))
    ends_in_one[-1] = 1
    weights = torch.from_numpy(nnls(system, ends_in_one)[0])
    return weights / weights.sum() @ points


def _refuse_impossible(inputs: Inputs, targets: Targets) -> None:
    for i, j in combinations(sorted(targets), 2):
        if inputs[i].equal(inputs[j]) and not targets[i].equal(targets[j]):
            raise UserError(
                f"inputs {i + 1} and {j + 1} are equal and so have equal outputs, but their "
                "targets differ; give equal targets or different inputs"
            )
    desired = torch.stack(list(targets.values()))
    given, required = (int(torch.linalg.matrix_rank(x)) for x in (inputs, desired))
    if required > given:
        raise UserError(
            f"the targets span {required} dimensions and the inputs {given}, which bounds the "
            "dimensions of the outputs; use inputs that span more or targets that span fewer"
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
    return Head(
        query=LENGTH * duals.mT @ duals,
        key=torch.eye(distinct.shape[1], dtype=distinct.dtype),
        value=values.mT @ duals[list(desired)],
    )


def _by_search(inputs: Inputs, targets: Targets, seed: int) -> Head:
    """Return the best of several optimized heads, on inputs and targets scaled to size 1."""
    size = largest(inputs) or 1.0
    height = max(map(largest, targets.values())) or 1.0
    small = {i: target / height for i, target in targets.items()}
    generator = torch.Generator().manual_seed(seed)
    heads = [_optimized(inputs / size, small, generator) for _ in range(STARTS)]
    best = min(heads, key=lambda head: error(head, inputs / size, small))
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
    return Head(*(matrix.detach() for matrix in matrices))
