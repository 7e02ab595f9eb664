"""Functions that become studies."""

from typing import Annotated

import pytest
from matplotlib.figure import Figure
from msgspec import Meta

from regard.errors import UserError
from regard.studies.finding import Evidence, Verdict, at_most, drawing
from regard.studies.study import Study, study


@study(asked=["jhu-hw5 1.1"], question="How big?", claim="Small.", formula="x < 2")
def how_big(
    n: Annotated[int, Meta(ge=1, le=9, description="size")] = 1,
    kind: Annotated[float, Meta(gt=0, description="kind")] = 0.5,
) -> Evidence:
    """First
    paragraph.

    Second.
    """
    return Evidence(
        numbers=(at_most("size", n * kind, 2),), figure=drawing(Figure(), "empty", name="x")
    )


def test_a_study_knows_its_parameters() -> None:
    assert how_big.name == "how-big"
    assert how_big.defaults == {"n": 1, "kind": 0.5}
    shown = [(p.name, p.default, p.description, p.range) for p in how_big.parameters]
    assert shown == [
        ("n", 1, "size", "integer and ≥ 1 and ≤ 9"),
        ("kind", 0.5, "kind", "number and > 0"),
    ]
    assert how_big.explanation == "First paragraph.\nSecond."


def test_python_and_command_line_give_the_same() -> None:
    called, told = how_big(n=3), how_big.with_texts(["n=3"])
    assert called.parameters == told.parameters == {"n": 3, "kind": 0.5}
    assert called.numbers == told.numbers
    assert how_big(8, 0.5).verdict is Verdict.FAILS
    assert how_big().verdict is Verdict.HOLDS


@pytest.mark.parametrize("wrong", ["n=0", "n=10", "n=x", "m=1", "kind=0"])
def test_a_parameter_out_of_range_is_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(UserError, match=rf"how-big: {wrong[: wrong.index('=')]}") as error:
        how_big.with_texts([wrong])
    assert "\n" not in str(error.value)


def test_a_parameter_out_of_range_is_refused_in_python() -> None:
    with pytest.raises(UserError, match=r"how-big: n: expected `int` <= 9"):
        how_big(n=10)


def test_a_finding_shows_itself_in_a_notebook() -> None:
    page = how_big()._repr_html_()
    assert "<math" in page
    assert "The claim holds" in page
    assert "http" not in page.replace("http://www.w3.org/", "")


def test_studies_are_typed() -> None:
    assert isinstance(how_big, Study)
