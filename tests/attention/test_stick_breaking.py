"""Stick-breaking attention."""

import torch

from regard.attention import Mask, StickBreaking

Q, K, V = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()


def test_what_is_left_is_the_product_of_what_was_passed() -> None:
    """1 − Σ_j α_ij = Π_(j < i) (1 − σ(s_ij))."""
    weights = StickBreaking().weights(Q, K, mask=CAUSAL)
    shares = (Q @ K.mT / 8**0.5).sigmoid().tril(-1)
    torch.testing.assert_close(1 - weights.sum(-1), (1 - shares).prod(-1))


def test_long_rows_of_bfloat16_are_as_exact_as_their_inputs() -> None:
    q, k, v = torch.randn(3, 1, 2, 2000, 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    narrow = StickBreaking()(q, k, v, mask=CAUSAL)
    wide = StickBreaking()(q.double(), k.double(), v.double(), mask=CAUSAL)
    eps = torch.finfo(torch.bfloat16).eps
    assert float((narrow.double() - wide).abs().max()) <= 4 * eps * float(v.abs().max())
