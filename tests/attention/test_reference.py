"""The oracle itself, against values worked out by hand and against torch."""

from math import sqrt

import torch

from regard.attention import reference

EPS = torch.finfo(torch.float64).eps


def test_it_is_the_softmax_of_scaled_products_and_biases() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 4, 3, 5), (2, 2, 6, 5), (4, 3, 6))
    )
    allowed = torch.rand(2, 4, 3, 6, generator=generator) < 0.7
    allowed[..., 0] = True
    scores = query @ key.repeat_interleave(2, dim=1).mT / sqrt(5) + bias
    expected = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    weights = reference.softmax(query, key, allowed, bias)
    # Two ways to round scores below 10.
    assert torch.allclose(weights, expected, rtol=0, atol=32 * EPS)


def test_a_query_that_may_look_at_nothing_has_no_weights() -> None:
    x = torch.ones(1, 1, 2, 2)
    allowed = torch.tensor([[[[False, False], [True, False]]]])
    assert reference.softmax(x, x, allowed).tolist() == [[[[0.0, 0.0], [1.0, 0.0]]]]


def test_consecutive_heads_gather_from_one_value_head() -> None:
    weights = torch.ones(1, 4, 1, 1, dtype=torch.float64)
    value = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1)
    assert reference.gather(weights, value).flatten().tolist() == [1.0, 1.0, 2.0, 2.0]
