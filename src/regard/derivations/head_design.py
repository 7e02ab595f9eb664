"""Queries, keys and values made of outer products, for given outputs."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import number, orthonormal, size
from regard.derivations.tex_scope import Letter


def _draw_parts(generator: Generator) -> Inputs:
    beta = number(generator, 1, 3)
    u: Float64[Tensor, "4 d"] = beta * orthonormal(generator, 4, size(generator, 4, 6))
    return Inputs(u_a=u[0], u_b=u[1], u_c=u[2], u_d=u[3], beta=beta)


def _states(x: Inputs) -> Float64[Tensor, "3 d"]:
    """x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b."""
    return torch.stack([x.u_d + x.u_b, x.u_a, x.u_c + x.u_b])


def _letters(x: Inputs) -> dict[str, Letter]:
    """States, matrices, queries, keys and values, and the weights α_1j and α_2j."""
    value = (torch.outer(x.u_b, x.u_b) - torch.outer(x.u_c, x.u_c)) / x.beta**2
    query = (torch.outer(x.u_d, x.u_a) + torch.outer(x.u_c, x.u_d)) / x.beta**2
    states = _states(x)
    queries = states @ query.T
    weights = (queries @ states.T).softmax(1)
    rows = {"x": states, "q": queries, "k": states, "v": states @ value.T, "alpha": weights}
    return {**rows, "V": value, "Q": query}


def _large() -> Inputs:
    u = 3 * torch.eye(4).double()
    return Inputs(u_a=u[0], u_b=u[1], u_c=u[2], u_d=u[3], beta=torch.tensor(3.0).double())


_LARGE = WorstCase(r"a large $\beta$", _large)

HEAD_DESIGN = Derivation(
    name="head-design",
    title="Matrices for given outputs",
    given=r"Orthogonal $u_a, u_b, u_c, u_d$ of norm $\beta$, and $x_1 = u_d + u_b$, $x_2 = u_a$, "
    r"$x_3 = u_c + u_b$. Wanted: $c_2 \approx u_b$ and $c_1 \approx u_b - u_c$. Choose "
    r"$V = \frac{1}{\beta^2} (u_b u_b^\top - u_c u_c^\top)$, $K = I$ and "
    r"$Q = \frac{1}{\beta^2} (u_d u_a^\top + u_c u_d^\top)$. Scores are not scaled.",
    draw=_draw_parts,
    letters=_letters,
    indices=lambda _: {"j": range(1, 4)},
    steps=(
        Step(
            r"\sum_j \mathrm{softmax}_j (x_j^\top x_2) \, x_j",
            r"Without matrices first: the output for $x_2$.",
        ),
        Step(
            r"= \frac{x_1 + e^{\beta^2} u_a + x_3}{e^{\beta^2} + 2}",
            r"$x_2 = u_a$ has the product $\beta^2$ with itself and 0 with the others.",
        ),
        Step(
            r"\approx u_a",
            r"The output is the input itself. The difference is at most $e^{-\beta^2} |x_1 + x_3 "
            "- 2 u_a|$ in every entry.",
            remainder=lambda x: (
                (-(x.beta**2)).exp() * (_states(x)[0] + _states(x)[2] - 2 * x.u_a).abs()
            ),
            worst=_LARGE,
        ),
        Step(r"V \, (x_1, x_2, x_3)", "With matrices: the values, as columns."),
        Step(
            r"= \frac{1}{\beta^2} \, u_b \left( u_b^\top x_1, u_b^\top x_2, u_b^\top x_3 \right) - "
            r"\frac{1}{\beta^2} \, u_c \left( u_c^\top x_1, u_c^\top x_2, u_c^\top x_3 \right)",
            r"An outer product maps a vector $x$ to a multiple of its left factor: $(u w^\top) "
            r"x = u (w^\top x)$.",
        ),
        Step(
            r"= \frac{1}{\beta^2} \, u_b (\beta^2, 0, \beta^2) - \frac{1}{\beta^2} \, u_c (0, 0, "
            r"\beta^2)",
            r"$u_b$ is in $x_1$ and in $x_3$, $u_c$ in $x_3$ only.",
        ),
        Step(
            r"= (u_b, \; 0, \; u_b - u_c)",
            r"$v_1 = u_b$, $v_2 = 0$ and $v_3 = u_b - u_c$: the first and the third are what is "
            "wanted.",
        ),
        Step(r"Q \, (x_1, x_2)", "The queries, as columns."),
        Step(
            r"= \frac{1}{\beta^2} \, u_d \left( u_a^\top x_1, u_a^\top x_2 \right) + "
            r"\frac{1}{\beta^2} \, u_c \left( u_d^\top x_1, u_d^\top x_2 \right)",
            "Outer products again.",
        ),
        Step(
            r"= (u_c, \; u_d)",
            r"$x_1$ contains $u_d$, and $x_2$ is $u_a$. So $q_1 = u_c$ and $q_2 = u_d$.",
        ),
        Step(
            r"\left( k_1^\top q_2, \; k_2^\top q_2, \; k_3^\top q_2 \right)",
            r"Scores of the second position, with $k_j = x_j$.",
        ),
        Step(r"= (\beta^2, \; 0, \; 0)", r"Only $x_1$ contains $u_d$."),
        Step(r"c_2 = \sum_j \alpha_{2j} v_j", "The second output."),
        Step(
            r"= \frac{e^{\beta^2} u_b + 0 + u_b - u_c}{e^{\beta^2} + 2}",
            "Insert weights and values.",
        ),
        Step(
            r"\approx u_b",
            r"The difference is at most $e^{-\beta^2} |u_b + u_c|$ in every entry.",
            remainder=lambda x: (-(x.beta**2)).exp() * (x.u_b + x.u_c).abs(),
            worst=_LARGE,
        ),
        Step(
            r"\left( k_1^\top q_1, \; k_2^\top q_1, \; k_3^\top q_1 \right)",
            "Scores of the first position.",
        ),
        Step(r"= (0, \; 0, \; \beta^2)", r"Only $x_3$ contains $u_c$."),
        Step(r"c_1 = \sum_j \alpha_{1j} v_j", "The first output."),
        Step(
            r"= \frac{u_b + 0 + e^{\beta^2} (u_b - u_c)}{e^{\beta^2} + 2}",
            "Insert weights and values.",
        ),
        Step(
            r"\approx u_b - u_c",
            r"The difference is at most $e^{-\beta^2} |u_b - 2 u_c|$ in every entry. As $\beta$ is "
            "very large, both are nearly 0.",
            remainder=lambda x: (-(x.beta**2)).exp() * (x.u_b - 2 * x.u_c).abs(),
            worst=_LARGE,
        ),
    ),
)

DERIVATIONS = (HEAD_DESIGN,)
