"""Stick-breaking attention."""

import pytest
import torch

from regard.attention import Mask, StickBreaking
from regard.errors import UnsupportedError

Q, K, V = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()


def test_what_is_left_is_the_product_of_what_was_passed() -> None:
    """1 − Σ_j α_ij = Π_(j < i) (1 − σ(s_ij))."""
    weights = StickBreaking().weights(Q, K, mask=CAUSAL)
    shares = (Q @ K.mT / 8**0.5).sigmoid().tril(-1)
    torch.testing.assert_close(1 - weights.sum(-1), (1 - shares).prod(-1))


def test_a_token_attends_to_earlier_ones_alone() -> None:
    weights = StickBreaking().weights(Q, K, mask=CAUSAL)
    assert not weights.triu(0).any()
    assert not StickBreaking()(Q, K, V, mask=CAUSAL)[:, :, 0].any()


def test_the_nearest_of_equal_keys_gets_most() -> None:
    same = torch.ones(1, 1, 6, 8).double()
    weights = StickBreaking().weights(same, same, mask=CAUSAL)[0, 0, 5, :5]
    assert bool((weights.diff() > 0).all())


def test_without_an_order_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="stick-breaking attention does not support attent"):
        StickBreaking()(Q, K, V)


def test_long_rows_of_bfloat16_are_as_exact_as_their_inputs() -> None:
    q, k, v = torch.randn(3, 1, 2, 2000, 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    narrow = StickBreaking()(q, k, v, mask=CAUSAL)
    wide = StickBreaking()(q.double(), k.double(), v.double(), mask=CAUSAL)
    eps = torch.finfo(torch.bfloat16).eps
    assert float((narrow.double() - wide).abs().max()) <= 4 * eps * float(v.abs().max())
