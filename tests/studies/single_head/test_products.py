"""The study `products`."""

import pytest

from regard.errors import UserError
from regard.studies.finding import Verdict
from regard.studies.single_head.one_head import products


def test_the_numbers_of_the_course() -> None:
    measured = {number.name: number.measured for number in products().numbers}
    assert [measured[f"score of state {j}"] for j in (1, 2, 3)] == [1054, 852, -396]
    assert [measured[f"output, entry {e}, by argmax"] for e in (1, 2)] == [23, 46]
    shown = products().table
    assert shown is not None
    assert [row[4] for row in shown.rows[:3]] == ["[23, 46]", "[25, 39]", "[10, -12]"]


def test_the_verdict() -> None:
    assert products().verdict is Verdict.HOLDS
    close = products(h=((1.0, 0.0), (0.0, 1.0)), w_q=((0.0, 0.0), (0.1, 0.0)), i=1)
    assert close.verdict is Verdict.FAILS, "softmax divides the weight where scores are close"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("i=4", "there are 3 states"),
        ("w_q=[[1],[2]]", "w_q: is 2×1, .*; make it 2×2"),
        ("h=[[1,2],[3]]", "h: rows of 2, 1 numbers"),
        ("w_k=[[1,1]]", "w_k: is 1×2, .*; make it 2×2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        products.with_texts([wrong])
