"""Formulas as text."""

import pytest

from regard.book.formula_text import formula_text, label_text, with_formulas
from regard.courses import all_parts
from regard.studies.figure import Figure, chart, series
from regard.studies.registry import THEMES
from regard.studies.render import to_svg

FORMULAS = {
    r"\sigma^2 = \sqrt{d}": "σ² = √d",
    r"\frac{1}{2 \sqrt{h}}": "1/(2√h)",
    r"\frac{a + b}{\sqrt{2 / m}}": "(a + b)/√(2/m)",
    r"\frac{\partial J}{\partial W_{hh}}": "∂J/∂W_hh",
    r"-x - y": "−x − y",
    r"u_b u_c^\top + W_x x_1 y": "u_b u_cᵀ + W_x x₁y",
    r"\sum_{i \ne j} e^{-t} v_j": "∑_(i≠j) e^(−t) v_j",
    r"\binom{m}{k} 2^{-m}": "(m choose k)2^(−m)",
    r"\hat K, \quad h_2' = \mathrm{softmax}(s)_j": "K\u0302,  h₂′ = softmax(s)_j",
    r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}": "(a, b; c, d)",
    r"\text{next token: } x \to y": "next token: x → y",
    r"\frac{\ln(n - 1)}{t}": "ln(n − 1)/t",
}


@pytest.mark.parametrize("tex", FORMULAS)
def test_formulas_are_lines_of_text(tex: str) -> None:
    assert formula_text(tex) == FORMULAS[tex]


def test_no_formula_of_a_study_has_tex_in_it() -> None:
    for study in (study for theme in THEMES for study in theme.studies):
        text = formula_text(study.formula)
        assert not set(text) & set("\\$\u2003\u200b"), text
        assert text.count("(") == text.count(")"), text


def test_questions_are_plain_text() -> None:
    assert with_formulas(r"Is $\sqrt{h}$ in $x_1$?") == "Is √h in x₁?"
    assert not any("$" in with_formulas(part.question) for part in all_parts())


LABELS = {
    r"projections, $3nh^2$": "projections, 3𝑛ℎ²",
    r"$q \cdot k / \sqrt{d}$": "𝑞 · 𝑘/√𝑑",
    r"share of $v_a$ at $\rho$ = 0.5": "share of 𝑣_𝑎 at 𝜌 = 0.5",
    r"$P \cdot W W^\top$": "𝑃 · 𝑊𝑊ᵀ",
    r"$\ln n$": "ln 𝑛",
    r"$\hat y$₁": "𝑦̂₁",
    "costs $5, not $6": "costs $5, not $6",
}


@pytest.mark.parametrize("label", LABELS)
def test_labels_have_italic_letters_in_formulas(label: str) -> None:
    assert label_text(label) == LABELS[label]


def test_a_figure_has_symbols_in_the_font_of_formulas() -> None:
    panel = chart(series([1, 2], [1, 2], r"$\rho$ = 1"), title="over $n$, $5", x="$v_a$")
    svg = to_svg(Figure(panels=[panel], caption="$n$ & all"), "name")
    letter = '<tspan font-family="STIX Two Math">{}</tspan>'.format
    assert f"over {letter('𝑛')}, $5" in svg
    assert f"{letter('𝜌')} = 1" in svg
    assert f'{letter("𝑣")}<tspan font-family="STIX Two Math" dy=".3em">𝑎<' in svg
    assert 'aria-label="n &amp; all"' in svg


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown command"):
        formula_text(r"\nosuchthing x")
