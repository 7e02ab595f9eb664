"""Formulas in the common subset of Python and JavaScript."""

import math

import pytest

from regard.book.formulas import evaluate, to_javascript


def test_a_formula_has_its_value() -> None:
    values = {"h": 16.0, "γ": 0.5}
    formula = "-h ** 2 / 4 + sqrt(h) * max(γ, 1) - exp(log(γ)) + pi"
    assert evaluate(formula, values) == pytest.approx(-64 + 4 - 0.5 + math.pi)


@pytest.mark.parametrize(
    "formula",
    ["h % 2", "[h]", "'h'", "h if h else 1", "open(h)", "exp(x=h)", "h.real", "True", "h // 2"],
)
def test_other_syntax_is_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="not in the common subset"):
        evaluate(formula, {"h": 1.0})


def test_a_function_of_the_page_has_terms_and_results() -> None:
    function = to_javascript(["n", "h"], {"a": "n * h"}, ["a + h", "a ** 2"])
    assert function == "(n, h) => { const a = n * h; return [a + h, a ** 2]; }"
