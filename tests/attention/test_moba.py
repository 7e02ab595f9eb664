"""Mixture of block attention."""

import pytest
import torch
from torch.autograd.gradcheck import gradcheck

from regard.attention import Mask, MoBA, Softmax

Q, K, V = torch.randn(3, 2, 4, 11, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()


@pytest.mark.parametrize(("size", "blocks"), [(11, 1), (100, 1), (2, 6), (2, 100), (3, 4)])
def test_one_block_or_all_of_them_is_softmax(size: int, blocks: int) -> None:
    expected = Softmax()(Q, K, V, mask=CAUSAL)
    found = MoBA(block_size=size, blocks=blocks)(Q, K, V, mask=CAUSAL)
    torch.testing.assert_close(found, expected)


def test_a_query_attends_to_its_own_block_and_the_most_similar_mean() -> None:
    weights = MoBA(block_size=3, blocks=2).weights(Q, K, mask=CAUSAL)
    means = K[:, :, :9].unflatten(2, (3, 3)).mean(3)
    best = (Q[:, :, 10:] @ means.mT).argmax(-1)[..., 0]
    for row in range(2):
        for head in range(4):
            seen = (weights[row, head, 10] > 0).nonzero().flatten().tolist()
            first = 3 * int(best[row, head])
            assert seen == [first, first + 1, first + 2, 9, 10]


def test_blocks_begin_anew_at_each_document() -> None:
    ids = torch.tensor([[0] * 4 + [1] * 7, [0] * 7 + [1] * 4])
    attend = MoBA(block_size=3, blocks=2)
    packed = attend(Q, K, V, mask=CAUSAL & Mask.documents(ids))
    for row, cut in ((0, 4), (1, 7)):
        for part in (slice(0, cut), slice(cut, None)):
            q, k, v = (x[row : row + 1, :, part] for x in (Q, K, V))
            alone = attend(q, k, v, mask=CAUSAL)
            torch.testing.assert_close(packed[row : row + 1, :, part], alone)


def test_the_gradient_is_that_of_the_output_where_no_blocks_are_equal() -> None:
    inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
    attend = MoBA(block_size=3, blocks=2)
    assert gradcheck(lambda *x: attend(*x, mask=CAUSAL), inputs, fast_mode=True)
