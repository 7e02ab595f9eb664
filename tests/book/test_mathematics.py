"""TeX as MathML."""

import re
from collections.abc import Iterator
from html import unescape
from importlib.resources import files

import pytest
from fontTools.ttLib import TTFont  # type: ignore[import-untyped]

from regard.book.mathematics import to_mathml, with_math, with_scripts
from regard.courses import all_parts
from regard.derivations import DERIVATIONS
from regard.studies.quotations import QUOTATION
from regard.studies.registry import all_studies


@pytest.mark.parametrize(
    ("tex", "found"),
    [
        (r"\mathrm{softmax}(s)", "<mi>softmax</mi>"),
        (r"\arg\max_j x_j", "<munder><mi>arg\u2009max</mi><mi>j</mi></munder>"),
        (r"x \sim \mathcal{N}", "<mo>∼</mo><mi>𝒩</mi>"),
        (r"\mathcal L(d)", "<mi>ℒ</mi>"),
        (r"\mathbf{1}", "<mn>𝟏</mn>"),
        (r"\mathbb{E}[x]", "<mi>𝔼</mi>"),
        (r"W^\top", '<mi mathvariant="normal">⊤</mi>'),
        (r"\ln V", '<mspace width="0.167em" />'),
        (r"a = -b", '<mo form="prefix" lspace="0" rspace="0">−</mo>'),
        (r"\frac{\partial J}{\partial h}", "<mi>∂</mi>"),
    ],
)
def test_symbols_are_those_of_mathml_core(tex: str, found: str) -> None:
    assert found in to_mathml(tex)


def test_a_difference_is_no_sign() -> None:
    assert "prefix" not in to_mathml("a - b")
    assert "prefix" not in to_mathml("f(x) - b")


@pytest.mark.parametrize("tex", [r"\nonsense{x}", r"\begin{aligned} a &= b \end{aligned}"])
def test_an_unknown_command_is_named(tex: str) -> None:
    with pytest.raises(ValueError, match=re.escape(tex)):
        to_mathml(tex)


def test_text_and_formulas_are_told_apart() -> None:
    html = with_math("1 < 2 and $x < y$")
    assert html.startswith("1 &lt; 2 and <math")
    assert "<mo>&lt;</mo>" in html
    assert with_math("$x$.") == f'<span class="formula-end">{to_mathml("x", display=False)}.</span>'
    with pytest.raises(ValueError, match="odd number of dollar signs"):
        with_math("1 $ and more")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("v_a and v_b", "v<sub>a</sub> and v<sub>b</sub>"),
        ("tμ_a", "tμ<sub>a</sub>"),
        ("h_(i+1)", "h<sub>i+1</sub>"),
        ("P(y_t | y_<t)", "P(y<sub>t</sub> | y<sub>&lt;t</sub>)"),
        ("2e^t, e^(w·x − ‖x‖²/2)", "2e<sup>t</sup>, e<sup>w·x − ‖x‖²/2</sup>"),
        ("e^−8 and e^√h", "e<sup>−8</sup> and e<sup>√h</sup>"),
        ("task_token, <b>", "task_token, &lt;b&gt;"),
    ],
)
def test_scripts_of_plain_text(text: str, html: str) -> None:
    assert with_scripts(text) == html


def formulas() -> Iterator[str]:
    """All mathematics of the book, as HTML."""
    for study in all_studies():
        yield to_mathml(study.formula)
    for derivation in DERIVATIONS.values():
        yield from (to_mathml(step.tex) for step in derivation.steps)
    for text in prose():
        yield with_math(text)


def prose() -> Iterator[str]:
    """All texts with formulas of parts and derivations; measurements are quoted as 0."""
    for part in all_parts():
        options = [text for option in part.options for text in (option.text, option.why)]
        shown = [one.text for one in part.shown]
        for text in (part.problem, part.question, part.answer, *options, *shown):
            yield QUOTATION.sub("0", text)
    for derivation in DERIVATIONS.values():
        yield from (derivation.title, derivation.given)
        yield from (step.text for step in derivation.steps)


def test_the_font_has_every_character() -> None:
    with (files("regard.book") / "static" / "STIXTwoMath.woff").open("rb") as file:
        font = TTFont(file)
        known = set(font.getBestCmap())
        assert "MATH" in font
    used = {
        character
        for html in formulas()
        for formula in re.findall("<math.*?</math>", html, re.DOTALL)
        for text in re.findall(">([^<]+)<", re.sub("<mtext>[^<]*</mtext>", "", formula))
        for character in unescape(text).strip()
    }
    assert len(used) > 100
    assert {c for c in used if ord(c) not in known and not c.isspace()} == set()


def test_tex_stands_between_dollar_signs() -> None:
    for text in prose():
        outside, inside = text.split("$")[::2], text.split("$")[1::2]
        assert not re.search(r"[\\`*{}]|\w_\w", " ".join(outside)), text
        assert all(formula.strip() == formula != "" for formula in inside), text


def test_nothing_is_left_of_tex_or_of_older_mathml() -> None:
    for html in formulas():
        assert "\\" not in html
        assert set(re.findall(r'mathvariant="([^"]*)"', html)) <= {"normal"}, html
