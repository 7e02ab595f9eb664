"""Softmax over the highest scores."""

import pytest
import torch
from torch.autograd.gradcheck import gradcheck

from regard.attention import Mask, Softmax, TopK

Q, K, V = torch.randn(3, 2, 4, 9, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()


@pytest.mark.parametrize("k", [9, 10, 1000])
def test_as_many_as_there_are_keys_is_softmax(k: int) -> None:
    torch.testing.assert_close(TopK(k=k)(Q, K, V, mask=CAUSAL), Softmax()(Q, K, V, mask=CAUSAL))


def test_each_query_has_k_keys_or_as_many_as_it_sees() -> None:
    found = (TopK(k=3).weights(Q, K, mask=CAUSAL) > 0).sum(-1)
    assert bool((found == torch.tensor([1, 2, 3, 3, 3, 3, 3, 3, 3])).all())


def test_equal_keys_have_equal_weights_in_any_order_of_rounding() -> None:
    same = K[:, :, :1].expand(-1, -1, 9, -1)
    weights = TopK(k=2).weights(Q.float(), same.float())
    torch.testing.assert_close(weights, torch.full((2, 4, 9, 9), 1 / 9))


def test_the_gradient_is_that_of_the_output_where_no_scores_are_equal() -> None:
    inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
    attend = TopK(k=3)
    assert gradcheck(lambda *x: attend(*x, mask=CAUSAL), inputs, fast_mode=True)
