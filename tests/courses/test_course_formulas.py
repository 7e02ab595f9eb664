"""Formulas of answers have the values of the lines of their derivations."""

import pytest

from regard.courses import all_parts
from regard.derivations import DERIVATIONS, TOLERANCE
from regard.derivations.derivation import difference

FORMULAS = (
    ("jhu-hw5 2.2.1", r"\hat y_i(\delta_{ij} - \hat y_j)", "softmax-cross-entropy", 2),
    ("jhu-hw5 2.2.1", r"-\sum_i y_i (\delta_{ij} - \hat y_j)", "softmax-cross-entropy", 6),
    ("jhu-hw5 2.2.1", r"-y_j + \hat y_j \sum_i y_i", "softmax-cross-entropy", 7),
    ("jhu-hw5 3.3", r"\frac{1}{\sqrt{h}} Q K^\top W W^\top V", "attention-by-two-projections", 2),
    ("jhu-hw5 3.3", "4nkh", "attention-by-two-projections", 9),
    ("jhu-hw5 3.5.1", r"\sum_i \mu_i^2", "product-mean", 3),
    ("jhu-hw5 3.5.1", r"\|\mu\|^2", "product-mean", 4),
    ("jhu-hw5 3.5.1", "h m^2", "product-mean", 6),
    ("jhu-hw5 3.5.2", r"h\sigma^4 + 2\sigma^2 \|\mu\|^2", "product-variance", 7),
    ("jhu-hw5 3.5.3", r"\sigma^4 + 2\sigma^2\|\mu\|^2 / h", "product-variance", 10),
    ("practical-4 2.b", r"\frac{e^t}{2e^t + n - 2}", "averaging-query", 5),
    ("practical-4 2.b", r"\frac{n-2}{2e^t + n - 2}", "averaging-query", 7),
    ("practical-4 2.c.2", r"\frac{e^{t\gamma}}{e^{t\gamma} + e^t}", "noisy-keys", 17),
    ("practical-4 2.d.2", r"\Phi(\sqrt{2}(1 - \frac{\ln(n-1)}{t}))", "two-head-output", 18),
    (
        "practical-4 3.h.2",
        r"\frac{1}{2m} e^{\|x + y\|^2} \mathrm{SM}^{-2} (1 - e^{-\|x - y\|^2})^2",
        "favor-errors",
        6,
    ),
    (
        "practical-4 3.h.3",
        r"\frac{1}{m} e^{\|x+y\|^2} \mathrm{SM}^2 (1 - e^{-\|x+y\|^2})",
        "favor-errors",
        12,
    ),
    (
        "practical-4 3.h.4",
        r"\frac{2(m-1)}{m(d+2)} (\mathrm{SM} - e^{-(\|x\|^2 + \|y\|^2)/2})^2",
        "orthogonal-features",
        17,
    ),
    (
        "eecs182-transformers b",
        r"x_1 \cdot x_2 + x_1 \cdot p_2 + p_1 \cdot x_2 + p_1 \cdot p_2",
        "concatenation",
        3,
    ),
    ("eecs182-transformers b", r"x_1 \cdot x_2 + p_1 \cdot p_2", "concatenation", 6),
    (
        "eecs182-transformers c.i",
        r"\frac{\sum_j e^{\pi_{ij}} e^{q_i \cdot k_j} v_j}{\sum_j e^{\pi_{ij}} e^{q_i \cdot k_j}}",
        "relative-bias",
        5,
    ),
    ("eecs182-transformers c.ii", r"(2(T-1)+1)\,m", "relative-bias", 7),
    ("eecs182-transformers c.ii", r"(2k+1)\,m", "relative-bias", 9),
    ("eecs182-transformers e", "(k+1)^n", "receptive-field", 3),
    ("eecs182-hw8 3.a.i", r"\|q\|^2 - 2 q^\top k + \|k\|^2", "gaussian-kernel", 2),
    (
        "eecs182-hw8 3.a.i",
        r"\frac{1}{2}(\|q\|^2 + \|k\|^2 - \|q - k\|^2)",
        "gaussian-kernel",
        4,
    ),
    (
        "eecs182-hw8 3.b",
        r"\frac{\sum_{j=1}^{i} \mathrm{sim}(Q_i, K_j) V_j}{\sum_{j=1}^{i} \mathrm{sim}(Q_i, K_j)}",
        "causal-sums",
        1,
    ),
    (
        "eecs182-hw8 3.b",
        r"\frac{\phi(Q_i)^\top \sum_{j=1}^{i} \phi(K_j) V_j^\top}"
        r"{\phi(Q_i)^\top \sum_{j=1}^{i} \phi(K_j)}",
        "causal-sums",
        2,
    ),
    ("eecs182-hw8 3.b", r"S_{i-1} + \phi(K_i) V_i^\top", "causal-sums", 5),
)
"""A part, a formula of its answer, and the line of a derivation."""
ANSWERS = {part.place: part.answer for part in all_parts()}


@pytest.mark.parametrize(("place", "formula", "name", "line"), FORMULAS)
def test_a_formula_of_an_answer_is_that_of_its_derivation(
    place: str, formula: str, name: str, line: int
) -> None:
    assert formula in ANSWERS[place]
    derivation = DERIVATIONS[name]
    for seed in range(2):
        draw = derivation.drawn(seed)
        assert difference(derivation.steps[line].values(draw), draw.read(formula)) <= TOLERANCE
