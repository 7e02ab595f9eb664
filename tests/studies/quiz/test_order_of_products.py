"""The study order-of-products."""

import pytest

from regard.studies.quiz.order_of_products import order_of_products
from tiny_studies import measured


@pytest.mark.parametrize(("length", "cheaper"), [(32, False), (512, True)])
def test_the_second_order_is_cheaper_beyond_a_length(length: int, cheaper: bool) -> None:
    found = measured(order_of_products(length=length))
    first, second = (
        found[f"operations, {name} first"] for name in ("queries and keys", "keys and values")
    )
    assert (second < first) == cheaper == (length > found["L with equal operations"])
