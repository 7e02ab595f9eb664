"""Lines whose value is read from their TeX."""

import math
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from regard.derivations import DERIVATIONS, TOLERANCE, Derivation
from regard.derivations.line_exercises import altered_tex
from regard.derivations.tex_parser import TOKEN
from regard.derivations.tex_scope import FromZero, Normal, Scope
from regard.derivations.tex_value import Unsupported, last_side, tex_value

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
        "attention-from-svd": {4, 6},
        "attention-by-two-projections": {7},
        "feature-products": {2, 5, 8},
    },
    "members of a set, counted": {"relative-bias": {6, 8}, "receptive-field": {8, 11}},
    "the quadrature of an event or of a density": {
        "two-head-output": {11, 13, 15, 16, 17},
        "positive-features": {5, 6},
    },
}
"""Lines that are not read, by reason and place."""

HARMLESS: dict[str, tuple[tuple[int, str], ...]] = {}


@pytest.mark.parametrize(
    ("tex", "value"),
    [
        ("= 2 a^2 - a / 2 a + 1", 18.5),
        (r"\leq \frac{1}{2} \left( a + 1 \right) a", 6.0),
        (r"c = \sum_{i=1}^{2} \mu_i^2", 5.0),
        (r"\sum_{k=0}^{1} (k + 1) \omega_k", 5.0),
        (r"= \lVert \mu - x_1 \rVert^2, \quad a > 0", 9.0),
        (r"\mu \cdot x_1", -1.0),
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
        (r"\mathrm{Cov}[u_1, u_i]", [4.0, 0.0]),
    ],
)  # fmt: skip
def test_a_value_is_read_from_tex(tex: str, value: object) -> None:
    torch.testing.assert_close(tex_value(tex, SCOPE), torch.tensor(value).double())


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
        tex_value(tex, SCOPE)


each_derivation = pytest.mark.parametrize("derivation", DERIVATIONS.values(), ids=DERIVATIONS)


@cache
def scopes(derivation: Derivation) -> tuple[Scope, ...]:
    """What the lines may name, for three draws."""
    drawn = (derivation.draw(torch.Generator().manual_seed(seed)) for seed in range(3))
    return tuple(map(derivation.scope, drawn))


def outside(derivation: Derivation) -> set[int]:
    """Places of the lines that are not read."""
    return set().union(*(lines.get(derivation.name, set()) for lines in OUTSIDE.values()))


def test_few_lines_are_outside() -> None:
    assert sum(len(outside(derivation)) for derivation in DERIVATIONS.values()) <= 20


@each_derivation
def test_the_value_of_a_line_is_that_of_its_tex(derivation: Derivation) -> None:
    for seed, scope in enumerate(scopes(derivation)):
        x = derivation.draw(torch.Generator().manual_seed(seed))
        for place, step in enumerate(derivation.steps):
            if place in outside(derivation):
                with pytest.raises(Unsupported):
                    tex_value(step.tex, scope)
            else:
                value = step.value(x).double()
                read = as_wide(tex_value(step.tex, scope), value)
                scale = max(float(value.abs().max()), 1e-300)
                assert float((value - read).abs().max()) / scale <= TOLERANCE, step.tex


def as_wide(read: Tensor, value: Tensor) -> Tensor:
    """A number, or 0 for each index, in the shape of a value; anything else as it is."""
    if read.ndim and read.any():
        assert read.shape == value.shape
    return read.reshape(read.shape + (1,) * (value.ndim - read.ndim)).expand_as(value)


def differ(tex: str, right: Tensor, scope: Scope) -> bool:
    """Whether TeX has another value, or none."""
    try:
        found = tex_value(tex, scope)
    except Unsupported:
        return True
    size = float(right.abs().max())
    return found.shape != right.shape or not torch.allclose(
        found, right, rtol=1e-6, atol=1e-9 * size
    )


def flips(tex: str) -> Iterator[str]:
    """TeX with another sign, number or letter in one place, a number doubled, or a minus before."""
    side = last_side(tex)
    yield from altered_tex(tex)
    yield f"{tex[: side.start]} -\\left( {tex[side]} \\right) {tex[side.stop :]}"
    for found in TOKEN.finditer(tex, side.start, side.stop):
        if found[0].isdecimal() and int(found[0]):
            yield f"{tex[: found.start()]}{2 * int(found[0])}{tex[found.end() :]}"


@each_derivation
def test_a_flip_in_a_line_is_caught(derivation: Derivation) -> None:
    """But for those that change nothing, which are counted by reason."""
    drawn, flipped, harmless = scopes(derivation), 0, list[str]()
    for place, step in enumerate(derivation.steps):
        if place in outside(derivation):
            continue
        right = [tex_value(step.tex, scope) for scope in drawn]
        for tex in flips(step.tex):
            flipped += 1
            pairs = zip(right, drawn, strict=True)
            if not any(differ(tex, value, scope) for value, scope in pairs):
                harmless.append(f"{step.tex} is {tex}")
    expected = sum(count for count, _ in HARMLESS.get(derivation.name, ()))
    assert flipped > 10 * len(derivation.steps) / 3
    assert len(harmless) == expected, "\n".join(harmless)
