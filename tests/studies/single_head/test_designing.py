"""The study `designing`."""

import math

import pytest

from regard.errors import UserError
from regard.studies.finding import Verdict
from regard.studies.single_head.designing import course_head, designing
from tiny_studies import verdict


def test_the_numbers_of_the_specification() -> None:
    measured = {number.name: number.measured for number in designing().numbers}
    reach = measured["distance of the nearest average from u_b, relative to β"]
    assert reach == pytest.approx(math.sqrt(0.4))
    assert measured[
        "distance of the nearest average from u_b, relative to β, u_d added to x₂"
    ] == pytest.approx(math.sqrt(0.5))
    assert measured["‖c₂ − u_b‖/β, with matrices"] < 1e-15
    assert measured["‖c₁ − (u_b − u_c)‖/β, with matrices"] < 1e-15


def test_the_matrices_of_the_course() -> None:
    head = course_head(3.0)
    a, b, c, d = head.key
    assert (head.query @ a).equal(d)
    assert (head.query @ d).equal(c)
    assert (head.value @ (b + d)).equal(b)
    assert (head.value @ (b + c)).equal(b - c)
    assert not (head.value @ a).any()


def test_the_verdict() -> None:
    assert designing().verdict is Verdict.HOLDS
    assert verdict(designing, "beta=1") is Verdict.FAILS, "the inputs are too short"
    opposite = verdict(designing, "x=[[1],[-1]]", "targets=[[1],[1]]")
    assert opposite is Verdict.FAILS, "no head does that"


def test_custom_targets() -> None:
    found = designing.with_texts(["x=[[1,2],[3,4]]", "targets=[[],[1,2,3]]"])
    assert found.verdict is Verdict.HOLDS
    assert found.table is not None
    assert [row[:2] for row in found.table.rows] == [
        *(("Q", "1"), ("Q", "2"), ("K", "1"), ("K", "2")),
        *(("V", "1"), ("V", "2"), ("V", "3")),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["targets=[[1]]"], "1 for 3 inputs"),
        (["targets=[[],[],[]]"], "all are empty"),
        (["x=[[1,2],[3],[4]]"], "x: rows of 2, 1, 1"),
        (["targets=[[1],[1,2],[]]"], "targets: rows of 1, 2"),
        (["x=[[],[],[]]"], "x: rows of 0, 0, 0"),
        (["x=[[1],[2],[nan]]"], "not all numbers are finite"),
        (["x=[[1],[1]]", "targets=[[1],[2]]"], "inputs 1 and 2 are equal"),
        (["x=[[1],[2]]", "targets=[[1,0],[0,1]]"], "span 2 dimensions"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(wrong: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        designing.with_texts(wrong)
    assert str(refused.value).startswith("designing: ")
    assert "\n" not in str(refused.value)
