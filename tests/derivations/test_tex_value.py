"""Lines whose value is read from their TeX."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch

from regard.derivations import DERIVATIONS, TOLERANCE, Derivation, Step, WorstCase
from regard.derivations.derivation import Draw
from regard.derivations.line_exercises import altered_tex
from regard.derivations.tex_algebra import Unsupported
from regard.derivations.tex_parser import TOKEN
from regard.derivations.tex_scope import FromZero, Normal, Scope
from regard.derivations.tex_value import aligned, last_side, left_side, tex_values

SCOPE = Scope(
    letters={
        "a": torch.tensor(3.0).double(),
        "mu": torch.tensor([1.0, 2.0]).double(),
        "omega": FromZero(torch.tensor([1.0, 2.0]).double()),
        "x1": torch.tensor([1.0, -1.0]).double(),
        "M": torch.tensor([[0.0, 1.0], [2.0, 0.0]]).double(),
        "r": torch.tensor(1),
        "f": lambda x: 10 * x,
        "∂J_/∂Whh": torch.tensor([5.0, 7.0]).double(),
    },
    indices=dict.fromkeys("ij", range(1, 3)),
    laws={"u": Normal(torch.tensor([1.0, -1.0]).double(), 2.0, 3)},
    defined={"p": "a + u_1", "g(x)": "x^2"},
)
OUTSIDE = {
    "operations counted in code, of what the line describes in words": {
        "attention-complexity": {1},
    },
    "members of a set, counted": {"relative-bias": {6, 8}, "receptive-field": {8, 11}},
    "the quadrature of an event or of a density": {
        "two-head-output": {11, 13, 15, 16, 17},
        "positive-features": {5, 6},
    },
}
"""Lines that are not read, by reason and place."""

NAMED = {
    "products-by-hand": ("q_2", "k_1", "k_2", "k_3", r"\lVert h_2' - v_1 \rVert"),
    "averaging-query": ("c",),
    "noisy-keys": ("c",),
    "head-design": ("c_2", "c_1"),
    "relative-bias": ("a_i",),
    "gaussian-kernel": ("V_i'",),
    "random-features-cost": (r"V_i'^\top",),
    "causal-sums": (r"V_i'^\top",),
}
"""Left sides that are the name of what stands on the right."""
LIMIT = 10 * TOLERANCE
"""A flip with a larger error is caught."""

HARMLESS: dict[str, tuple[tuple[int, str], ...]] = {
    "softmax-cross-entropy": ((1, "o_j for o_i beside δ_ij, which is 0 unless i = j"),),
    "backpropagation-through-time": (
        (2, "minus 0"),
        (6, "a sum from 2, because h_0 = 0: the term of 1 is 0"),
    ),
    "attention-from-svd": ((2, "the cost with W for U, which has its shape"),),
    "attention-by-two-projections": (
        (8, "the cost with another of Q, K, V or of C, D, which have one shape"),
        (2, "the norm of u wᵀ, with w for u or u for w: both are 1"),
    ),
    "product-mean": (
        (2, "E[q_i] for E[k_i], which have one distribution"),
        (1, "the name of an index that its terms don't contain"),
    ),
    "product-variance": (
        (4, "E[q_i²] or E[q_i] for that of k_i, which have one distribution"),
        (1, "a sum to i for a sum to h of covariances, which are 0 unless i = j"),
    ),
    "products-by-hand": (
        (20, "a number times 0"),
        (2, "the first and the last term, which are 0 and below float64: v_1 − v_1, e^-1450"),
        (20, "e^-1450 and its factor, which is below the smallest number of float64"),
        (4, "e^-202 beside 1, which is below rounding"),
    ),
    "noisy-keys": (
        (2, "k_a + k_b for k_a − k_b in a norm of orthogonal vectors, and in a variance"),
        (2, "k_a for k_b, whose products have one variance"),
    ),
    "head-design": (
        (19, "another of the orthogonal vectors: the product is 0 or β² as before"),
        (2, "minus 0"),
    ),
    "concatenation": ((3, "p_2e for p_2f, or a sum to e: the mean is 0 unless e = f"),),
    "shift-matrix": ((1, "p_(t−s) for p_(t+s): the product depends on the distance alone"),),
    "receptive-field": (
        (3, "another node in a maximum, which reaches it too for these pointers"),
        (2, "another A_lr, whose rows sum to 1 as well"),
        (2, "the name of an index that its terms don't contain"),
    ),
    "random-features-cost": ((5, "w_R for w_r, or its last entry: all have one distribution"),),
    "causal-sums": (
        (2, "a sum to i for a sum to N of terms with m_ij, which is 0 beyond i"),
        (1, "the name of an index that its terms don't contain"),
    ),
    "positive-features": ((1, "the name of an index that its terms don't contain"),),
    "favor-errors": ((1, "E[e^(2 w·z)] is e^(2 z·z)"),),
    "feature-products": (
        (20, "the cost with another of Q, K, V or of Q', K', which have one shape"),
        (1, "the cost with another divisor"),
    ),
    "orthogonal-features": (
        (2, "s_2 for s_1, which have one distribution"),
        (2, "a sum from k = 2, because the term of 1 is 0"),
    ),
}
"""Flips that change no value, by reason, and how many there are."""


@pytest.mark.parametrize(
    ("tex", "value"),
    [
        ("= 2 a^2 - a / 2 a + 1", 18.5),
        (r"\leq \frac{1}{2} \left( a + 1 \right) a", 6.0),
        (r"c = \sum_{i=1}^{2} \mu_i^2", 5.0),
        (r"\sum_{k=0}^{1} (k + 1) \omega_k", 5.0),
        (r"= \lVert \mu - x_1 \rVert^2, \quad a > 0", 9.0),
        (r"\mu \cdot x_1", -1.0),
        (r"2 \|\mu\|^2 - \|x_1\|^2", 8.0),
        (r"e^{-a} \sqrt a", 3**0.5 * math.exp(-3)),
        (r"\sin 2 a \cos a + \ln(a)", math.sin(6) * math.cos(3) + math.log(3)),
        (r"M^\top \mu", [4.0, 1.0]),
        (r"M \begin{pmatrix} 3 \\ 4 \end{pmatrix}", [4.0, 6.0]),
        (r"\begin{pmatrix} 1 & 0 \\ 0 & 2 \end{pmatrix} \mu", [1.0, 4.0]),
        (r"\sum_i \mu_i", 3.0),
        (r"= \sum_{j \neq 1} \mu_j", 2.0),
        (r"\sum_{k \geq 0} \frac{1}{k!}", math.e),
        (r"\prod_{i=1}^{2} (\mu_i + 1)", 6.0),
        (r"\max_i \mu_i", 2.0),
        (r"\mu_i - 1", [0.0, 1.0]),
        (r"\mu_i x_1, \quad i > 1", [[2.0, -2.0]]),
        (r"\mu_j \delta_{ij}", [[1.0, 0.0], [0.0, 2.0]]),
        (r"M_{ij}, \quad i < j", [1.0]),
        (r"\mathrm{softmax}_j(\ln \mu_j)", [1 / 3, 2 / 3]),
        (r"\mu_r + M_{i, 3-i}", [3.0, 4.0]),
        (r"x_1^\top \mu", -1.0),
        (r"x_1^\top M", [-2.0, 1.0]),
        (r"\mu x_1^\top", [[1.0, -1.0], [2.0, -2.0]]),
        (r"M^2", [[2.0, 0.0], [0.0, 2.0]]),
        (r"(\mu, 0, x_1)", [[1.0, 0.0, 1.0], [2.0, 0.0, -1.0]]),
        (r"[\mu, a] \cdot [x_1, 1]", 2.0),
        (r"f(a) + g(a)", 39.0),
        (r"\frac{\partial J_i}{\partial W_{hh}}", [5.0, 7.0]),
        (r"\mathbb{E}[u_1^2]", 5.0),
        (r"\mathbb{E}\left[ u^\top x_1 \right]", 2.0),
        (r"\mathrm{Var}[p]", 4.0),
        (r"\mathrm{cost}(M M)", 4.0),
        (r"\mathrm{cost}(M / a)", 4.0),
        (r"\mathrm{Cov}[u_1, u_i]", [4.0, 0.0]),
    ],
)  # fmt: skip
def test_a_value_is_read_from_tex(tex: str, value: object) -> None:
    pair = aligned(dict(tex_values(tex, SCOPE)), torch.tensor(value).double())
    assert pair is not None
    torch.testing.assert_close(*pair)


@pytest.mark.parametrize(
    "tex",
    [
        "= b",
        r"\mathbb{E} a",
        r"\mu x_1",
        "a^",
        r"\sum_k \mu_k",
        r"\mu^2",
        "(a",
        r"M \cdot a b",
        "a < 1",
        r"\mu_3",
        r"\mu_{1/2}",
        r"\mu + x_1^\top",
        r"M^{1/2}",
        r"\mathbb{E}[u^\top u] u",
        r"a_1",
    ],
)
def test_what_cannot_be_read_is_said(tex: str) -> None:
    with pytest.raises(Unsupported):
        dict(tex_values(tex, SCOPE))


@cache
def draws(derivation: Derivation) -> tuple[Draw, ...]:
    return tuple(map(derivation.drawn, range(3)))


def outside(derivation: Derivation) -> set[int]:
    """Places of the lines that are not read."""
    return set().union(*(lines.get(derivation.name, set()) for lines in OUTSIDE.values()))


def test_few_lines_are_outside() -> None:
    assert sum(len(outside(derivation)) for derivation in DERIVATIONS.values()) <= 20


def test_a_line_has_a_value_by_code_where_its_tex_cannot_be_read() -> None:
    for derivation in DERIVATIONS.values():
        drawn = draws(derivation)[0]
        by_code = [step.tex for step in derivation.steps if step.value is not None]
        assert by_code == [derivation.steps[place].tex for place in sorted(outside(derivation))]
        for tex in by_code:
            with pytest.raises(Unsupported):
                drawn.read(tex)


def test_a_left_side_is_read_or_a_new_name() -> None:
    for derivation in DERIVATIONS.values():
        drawn = draws(derivation)[0]
        named = []
        for side in filter(None, (left_side(step.tex) for step in derivation.steps)):
            try:
                drawn.read(side)
            except Unsupported:
                named.append(side)
        assert tuple(named) == NAMED.get(derivation.name, ())


def flips(tex: str) -> Iterator[str]:
    """TeX with another sign, number or letter in one place, a number doubled, or a minus before."""
    side = last_side(tex)
    yield from altered_tex(tex)
    yield f"{tex[: side.start]} -\\left( {tex[side]} \\right) {tex[side.stop :]}"
    for found in TOKEN.finditer(tex, side.start, side.stop):
        if found[0].isdecimal() and int(found[0]):
            yield f"{tex[: found.start()]}{2 * int(found[0])}{tex[found.end() :]}"


def caught(derivation: Derivation, place: int, tex: str) -> bool:
    """Whether the check fails with other TeX in a line."""
    step = replace(derivation.steps[place], tex=tex)
    steps = (*derivation.steps[:place], step, *derivation.steps[place + 1 :])
    pairs = [pair for pair in pairwise(steps) if step in pair and pair[1].relation]
    try:
        return any(
            step.own_error(drawn) > LIMIT or any(b.error(a, drawn) > LIMIT for a, b in pairs)
            for drawn in draws(derivation)
        ) or any(missed(derivation, a, b) for a, b in pairs if b.worst)
    except Unsupported:
        return True


def missed(derivation: Derivation, before: Step, bound: Step) -> bool:
    """Whether a bound is violated, or not reached, in its worst case."""
    assert bound.worst is not None
    worst = worst_case(derivation, bound.worst)
    return bound.error(before, worst) > LIMIT or bound.reached(before, worst) < bound.worst.share


@cache
def worst_case(derivation: Derivation, worst: WorstCase) -> Draw:
    return derivation.worst(worst)


SLOW = ("two-head-output", "orthogonal-features", "product-variance")
"""Their expectations take seconds."""


@pytest.mark.parametrize(
    "derivation",
    [
        pytest.param(one, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, one in DERIVATIONS.items()
    ],
)
def test_a_flip_in_a_line_is_caught(derivation: Derivation) -> None:
    """But for those that change nothing, which are counted by reason."""
    flipped, harmless = 0, list[str]()
    for place, step in enumerate(derivation.steps):
        if step.value is None:
            for tex in dict.fromkeys(flips(step.tex)):
                flipped += 1
                if not caught(derivation, place, tex):
                    harmless.append(f"{step.tex} is {tex}")
    expected = sum(count for count, _ in HARMLESS.get(derivation.name, ()))
    assert flipped > 10 * len(derivation.steps) / 3
    assert len(harmless) == expected, "\n".join(harmless)
