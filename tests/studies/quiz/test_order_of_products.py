"""The study `order-of-products`."""

import pytest

from regard.studies.finding import Verdict
from regard.studies.quiz.order_of_products import order_of_products


@pytest.mark.parametrize("seed", range(10, 20))
def test_both_orders_agree_at_fresh_seeds(seed: int) -> None:
    assert order_of_products(length=64, seed=seed).verdict is Verdict.HOLDS


@pytest.mark.parametrize(("length", "cheaper"), [(32, False), (512, True)])
def test_the_second_order_is_cheaper_beyond_a_length(length: int, cheaper: bool) -> None:
    found = {one.name: one.measured for one in order_of_products(length=length).numbers}
    first, second = (
        found[f"operations, {name} first"] for name in ("queries and keys", "keys and values")
    )
    assert (second < first) == cheaper == (length > found["L with equal operations"])


def test_vectors_are_matrices_too() -> None:
    assert order_of_products(length=2, m=1, d=1).verdict is Verdict.HOLDS
