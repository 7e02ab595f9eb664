"""A book of three parts that is quickly made."""

from functools import cache

import torch

from regard.book.contents import Book, Proof, Results, arrange
from regard.courses import Option, Part, Shown
from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.studies.kernels.gaussian_kernel import fourier_features
from regard.studies.single_head.attention_maps import masking
from regard.studies.single_head.one_head import averaging, products

ONES = WorstCase("$a = b$", lambda: Inputs(a=torch.ones(3).double(), b=torch.ones(3).double()))
SQUARE = Derivation(
    name="square",
    title="The square of a sum",
    given="$a$ and $b$ are numbers.",
    draw=lambda g: Inputs(a=torch.randn(3, generator=g).double(), b=torch.ones(3).double()),
    indices=lambda _: {"i": range(1, 4)},
    steps=(
        Step(r"(a_i + b_i)^2", "The square of a sum."),
        Step(r"= a_i^2 + 2 a_i b_i + b_i^2", "$ab = ba$."),
        Step(r"\leq 2 (a_i^2 + b_i^2)", r"$(a - b)^2 \geq 0$.", worst=ONES),
        Step(r"\approx 2 a_i^2", "$b$ is small.", remainder=lambda x: 2 * x.b**2, worst=ONES),
    ),
)

PARTS = (
    Part(
        course="jhu-hw5",
        number="1.1",
        kind="choose",
        problem="Is $1 < 2$? The numbers are natural.",
        answer="Yes, <b>always</b>.\n\nIt is known that $1 + 1 = 2$.",
        options=(
            Option(text="Yes", right=True, why="One less is smaller."),
            Option(text="No", right=False, why="$2 - 1 > 0$."),
        ),
        shown=(
            Shown(id="whole", text="All of it.", by="study:averaging"),
            Shown(id="weight", text="The weight.", by="study:products/score of state 1"),
            Shown(id="told", text="By command.", by="command:regard study list"),
        ),
    ),
    Part(
        course="jhu-hw5",
        number="1.2",
        kind="derive",
        problem="What is $(a + b)^2$?",
        answer="$a^2 + 2ab + b^2$.",
        derivation="square",
        shown=(
            Shown(id="lines", text="Line by line.", by="derivation:square"),
            Shown(id="figure", text="The figure.", by="figure:averaging"),
        ),
        command="regard study run averaging",
    ),
    Part(
        course="eecs182-hw8",
        number="3.a.ii",
        kind="explain",
        problem="What is the error?",
        answer="It is as measured.",
        shown=(Shown(id="page", text="On a page.", by="page:docs/studies.md#studies"),
               Shown(id="map", text="The maps.", by="figure:masking")),
        derivation="square",
    ),
)  # fmt: skip


@cache
def tiny_results() -> Results:
    studies = (averaging, products, masking)
    findings = {study.name: study() for study in studies}
    findings["fourier-features"] = fourier_features.stored_result()
    figures = {name: finding.panels() for name, finding in findings.items()}
    return Results(findings, figures, {"square": Proof(SQUARE, SQUARE.check(seed=0))})


@cache
def tiny_book() -> Book:
    return arrange(PARTS, tiny_results())
