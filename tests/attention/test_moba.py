"""Mixture of block attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import Mask, MoBA, Softmax
from regard.attention.softmax import ScoreAttention

CAUSAL = Mask.causal()


@given(
    seed=st.integers(0, 2**31),
    n=st.integers(8, 80),
    size=st.integers(1, 4),
    blocks=st.integers(1, 3),
    kv_heads=st.sampled_from([1, 2]),
)
def test_long_rows_are_computed_by_their_blocks(
    seed: int, n: int, size: int, blocks: int, kv_heads: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 2, n, 8, generator=rng).double()
    k, v = torch.randn(2, 2, kv_heads, n, 8, generator=rng).double()
    attend = MoBA(block_size=size, blocks=blocks)
    expected = ScoreAttention._forward(attend, q, k, v, CAUSAL, None)
    torch.testing.assert_close(attend(q, k, v, mask=CAUSAL), expected)
    state = attend.init_state(
        2, kv_heads, 8, 8, capacity=n, device=torch.device("cpu"), dtype=torch.float64
    )
    outs: list[torch.Tensor] = []
    start = 0
    for new in (n - 7, 1, 1, 3, 1, 1):
        part = slice(start, start + new)
        out, state = attend.extend(q[:, :, part], k[:, :, part], v[:, :, part], state)
        outs, start = [*outs, out], start + new
    torch.testing.assert_close(torch.cat(outs, 2), expected)


@pytest.mark.parametrize("n", [12, 60])
def test_blocks_that_are_equal_to_the_last_one_chosen_are_chosen(n: int) -> None:
    same = torch.ones(1, 1, n, 4).double()
    values = torch.randn(1, 1, n, 4, generator=torch.Generator().manual_seed(0)).double()
    attend = MoBA(block_size=2, blocks=2)
    found = attend(same, same, values, mask=CAUSAL)
    torch.testing.assert_close(found, Softmax()(same, same, values, mask=CAUSAL))
    state = attend.init_state(
        1, 1, 4, 4, capacity=n, device=torch.device("cpu"), dtype=torch.float64
    )
    _, state = attend.extend(same[:, :, 1:], same[:, :, 1:], values[:, :, 1:], state)
    last, _ = attend.extend(same[:, :, :1], same[:, :, :1], values[:, :, :1], state)
    torch.testing.assert_close(last, values.mean(2, keepdim=True))
