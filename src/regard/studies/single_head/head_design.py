"""A head made to order: matrices K, Q and V that give target outputs for given inputs."""

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

Inputs: TypeAlias = Float[Tensor, "n d"]
Targets: TypeAlias = Mapping[int, Float[Tensor, " e"]]
"""Target outputs for some of the inputs, by index."""
LENGTH = 40.0
"""Of the queries that outer products make: other keys get e^−40 of the weight, next to nothing."""
STARTS = 4
"""From how many random matrices the search begins, where outer products won't do."""


@dataclass(frozen=True, eq=False)
class Head:
    """The matrices of one head of self-attention, whose products aren't scaled."""

    query: Float[Tensor, "k d"]
    key: Float[Tensor, "k d"]
    value: Float[Tensor, "e d"]

    def __call__(self, inputs: Inputs) -> Float[Tensor, "n e"]:
        """c_i = Σ_j α_ij V x_j, α_ij = softmax_j of (K x_j)·(Q x_i)."""
        query, key, value = (
            (inputs @ matrix.mT)[None, None] for matrix in (self.query, self.key, self.value)
        )
        outputs: Tensor = Softmax(scaled=False)(query, key, value)
        return outputs[0, 0]


def design(inputs: Inputs, targets: Targets, seed: int = 0) -> Head:
    """A head whose output for input i is targets[i]; what it gives for other inputs is free.

    By outer products, up to rounding, where the inputs that differ are linearly independent. Else
    by a search, which need not succeed: measure what the head gives.

    Raises:
        UserError: no head can do it; says why.
    """
    _refuse_impossible(inputs, targets)
    distinct, places = torch.unique(inputs, dim=0, return_inverse=True)
    if torch.linalg.matrix_rank(distinct) == len(distinct):
        return _by_outer_products(distinct, places, targets)
    return _by_search(inputs, targets, seed)


def error(head: Head, inputs: Inputs, targets: Targets) -> float:
    """Largest distance between an output and its target."""
    outputs = head(inputs)
    return max(float((outputs[i] - target).norm()) for i, target in targets.items())


def nearest_average(points: Inputs, target: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """The weighted average of the points that is nearest to a target.

    No attention whose values are the points can come nearer. For weights w = sα ≥ 0, ‖Σ w_j
    (p_j − target)‖² is s² times what α is to minimise; the row of ones only keeps s from 0.
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
                f"inputs {i + 1} and {j + 1} are equal, so that their queries and outputs are, "
                "but have different targets; give equal targets, or make the inputs different"
            )
    desired = torch.stack(list(targets.values()))
    given, asked = (int(torch.linalg.matrix_rank(x)) for x in (inputs, desired))
    if asked > given:
        raise UserError(
            f"the targets span {asked} dimensions and the inputs {given}, which is the most that V "
            "can make of averages of them; let the inputs span more, or the targets fewer"
        )


def _by_outer_products(distinct: Inputs, places: Int[Tensor, " n"], targets: Targets) -> Head:
    """Every input looks at itself, and V maps it to its target.

    With vectors p_j that have the product 1 with input j and 0 with the others, K = I and
    Q = t Σ p_j p_jᵀ give score t to the input itself and 0 to the others, and V = Σ y_j p_jᵀ turns
    input j into y_j.
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
    """The best of several descents from random matrices, with inputs and targets of size 1."""
    size = float(inputs.abs().max()) or 1.0
    desired = max(float(target.abs().max()) for target in targets.values()) or 1.0
    small = {i: target / desired for i, target in targets.items()}
    generator = torch.Generator().manual_seed(seed)
    heads = [_descent(inputs / size, small, generator) for _ in range(STARTS)]
    best = min(heads, key=lambda head: error(head, inputs / size, small))
    return Head(best.query / size, best.key / size, best.value * desired / size)


def _descent(inputs: Inputs, targets: Targets, draw: torch.Generator) -> Head:
    d, desired = inputs.shape[1], torch.stack(list(targets.values()))
    shapes = ((d, d), (d, d), (desired.shape[1], d))
    matrices = [
        torch.randn(s, generator=draw, dtype=inputs.dtype, requires_grad=True) for s in shapes
    ]
    optimizer = torch.optim.LBFGS(matrices, max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        off = (Head(*matrices)(inputs)[list(targets)] - desired).square().sum()
        off.backward()
        return off

    optimizer.step(loss)
    return Head(*(matrix.detach() for matrix in matrices))
