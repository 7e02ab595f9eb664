"""Lines whose value is read from their TeX."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from regard.derivations import DERIVATIONS, TOLERANCE, Derivation, Step
from regard.derivations.line_exercises import altered_tex, readable
from regard.derivations.tex_value import Unsupported, tex_value

LETTERS = {
    "a": torch.tensor(3.0).double(),
    "mu": torch.tensor([1.0, 2.0]).double(),
    "x1": torch.tensor([1.0, -1.0]).double(),
    "M": torch.tensor([[0.0, 1.0], [2.0, 0.0]]).double(),
}
READABLE = [
    (derivation, step)
    for derivation in DERIVATIONS.values()
    for step in derivation.steps
    if readable(derivation, step)
]
HARMLESS = {
    ("products-by-hand", "a number times 0"): 16,
    ("averaging-query", "a number to the power 0"): 2,
    ("noisy-keys", "the norm of a difference, of orthogonal vectors as of the sum"): 1,
    ("head-design", "0 is added or subtracted"): 2,
    ("causal-sums", "the index of a sum whose terms are equal"): 1,
}
"""Alterations that change no value, by their reason, and how many there are."""


@pytest.mark.parametrize(
    ("tex", "value"),
    [
        ("= 2 a^2 - a / 2 a + 1", 18.5),
        (r"\leq \frac{1}{2} \left( a + 1 \right) a", 6.0),
        (r"c = \sum_{i=1}^{2} \mu_i^2", 5.0),
        (r"\sum_{k=0}^{1} (k + 1) \mu_k", 5.0),
        (r"= \lVert \mu - x_1 \rVert^2, \quad a > 0", 9.0),
        (r"\mu \cdot x_1", -1.0),
        (r"e^{-a} \sqrt a", 3**0.5 * math.exp(-3)),
        (r"\sin 2 a \cos a + \ln(a)", math.sin(6) * math.cos(3) + math.log(3)),
        (r"M^\top \mu", [4.0, 1.0]),
        (r"M \begin{pmatrix} 3 \\ 4 \end{pmatrix}", [4.0, 6.0]),
        (r"\begin{pmatrix} 1 & 0 \\ 0 & 2 \end{pmatrix} \mu", [1.0, 4.0]),
    ],
)  # fmt: skip
def test_a_value_is_read_from_tex(tex: str, value: object) -> None:
    torch.testing.assert_close(tex_value(tex, LETTERS), torch.tensor(value).double())


@pytest.mark.parametrize(
    "tex",
    ["= b", r"\mathbb{E}[a]", r"\mu x_1", "a^", r"\sum_i \mu_i", r"M^2", "(a", r"M \cdot a b"],
)
def test_what_cannot_be_read_is_said(tex: str) -> None:
    with pytest.raises(Unsupported):
        tex_value(tex, LETTERS)


def draws(derivation: Derivation) -> list[dict[str, Tensor]]:
    """The letters of a derivation on three draws of its inputs."""
    drawn = (derivation.draw(torch.Generator().manual_seed(seed)) for seed in range(3))
    return [derivation.values(x) for x in drawn]


def differ(tex: str, right: Tensor, letters: dict[str, Tensor]) -> bool:
    """Whether TeX has another value, or none."""
    try:
        found = tex_value(tex, letters)
    except Unsupported:
        return True
    near = partial(torch.allclose, rtol=1e-6, atol=1e-9 * float(right.abs().max()))
    return found.shape != right.shape or not near(found, right)


def test_a_line_that_can_be_read_says_what_is_checked() -> None:
    """The TeX, evaluated, is the value that the derivation checks."""
    assert len(READABLE) >= 150
    for derivation, step in READABLE:
        assert _agree(derivation, step) <= TOLERANCE, f"{derivation.name}: {step.tex}"


def _agree(derivation: Derivation, step: Step) -> float:
    """Largest relative difference between the value of a line and that of its TeX."""
    worst = 0.0
    for seed in range(3):
        x = derivation.draw(torch.Generator().manual_seed(seed))
        value, read = step.value(x).double(), tex_value(step.tex, derivation.values(x))
        read = read.expand(value.shape) if not read.ndim else read
        assert read.shape == value.shape, f"{derivation.name}: {step.tex}"
        scale = max(float(value.abs().max()), 1e-300)
        worst = max(worst, float((value - read).abs().max()) / scale)
    return worst


def test_another_sign_number_or_letter_is_caught() -> None:
    """In each line that can be read; those that change nothing are listed, with the reason."""
    letters = {derivation.name: draws(derivation) for derivation, _ in READABLE}
    caught, harmless = 0, dict[str, int]()
    for derivation, step in READABLE:
        right = [(tex_value(step.tex, x), x) for x in letters[derivation.name]]
        for tex in altered_tex(step.tex):
            if any(differ(tex, value, x) for value, x in right):
                caught += 1
            else:
                harmless[derivation.name] = harmless.get(derivation.name, 0) + 1
    assert caught > 1200
    assert harmless == {name: count for (name, _), count in HARMLESS.items()}
