"""Mixture of block attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import Mask, MoBA, Shape, Softmax
from regard.attention.cost import Mode
from regard.attention.moba import LONG, MobaState
from regard.attention.softmax import ScoreAttention
from regard.positions import Alibi
from tiny_recurrent import normal

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
    if kv_heads == 2 and n >= LONG * blocks * size:  # random blocks don't tie
        assert attend._attend_blocks(*(x.flatten(0, 1) for x in (q, k, v))) is not None
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


def in_two_parts(
    attend: MoBA,
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    first: int,
) -> torch.Tensor:
    """The output of the tokens after the first ones, in decoding."""
    rows, heads, n, d = inputs[1].shape
    state = attend.init_state(
        rows, heads, d, d, capacity=n, device=torch.device("cpu"), dtype=inputs[0].dtype
    )
    query, key, value = (x[:, :, :first] for x in inputs)
    _, state = attend.extend(query, key, value, state)
    query, key, value = (x[:, :, first:] for x in inputs)
    out, _ = attend.extend(query, key, value, state)
    return out


RESTRICTED = {
    "padding": CAUSAL & Mask.lengths(torch.tensor([32, 19])),
    "documents": CAUSAL & Mask.documents(torch.arange(32)[None] // 13),
    "bias": CAUSAL,
}


@pytest.mark.parametrize("name", RESTRICTED)
def test_long_rows_with_padding_documents_or_a_bias_have_the_weights_of_their_blocks(
    name: str,
) -> None:
    q, k, v = (normal(2, 2, 32, 4, seed=seed) for seed in range(3))
    mask, bias = RESTRICTED[name], Alibi(heads=2).double() if name == "bias" else None
    attend = MoBA(block_size=2, blocks=2)
    expected = attend.weights(q, k, mask=mask, bias=bias) @ v
    torch.testing.assert_close(attend(q, k, v, mask=mask, bias=bias), expected)


def test_dropout_of_long_rows_is_of_all_weights() -> None:
    x = normal(1, 1, 32, 4, seed=0)
    attend = MoBA(block_size=2, blocks=2, dropout=1.0).train()
    assert not attend(x, x, x, mask=CAUSAL).any()


@pytest.mark.parametrize("n", [27, 131])
def test_blocks_that_are_equal_up_to_rounding_are_chosen(n: int) -> None:
    """Each block has the same keys in another order, so that sums and means are rounded apart."""
    rng, own = torch.Generator().manual_seed(0), normal(1, 1, 8, 64, seed=0).float()
    orders = [torch.randperm(8, generator=rng) for _ in range(-(-n // 8))]
    keys = torch.cat([own[:, :, order] for order in orders], 2)[:, :, :n]
    query = normal(1, 1, n, 64, seed=1).float()
    values = normal(1, 1, n, 64, seed=2).float()
    attend = MoBA(block_size=8, blocks=2)
    expected = Softmax()(query, keys, values, mask=CAUSAL)
    torch.testing.assert_close(attend(query, keys, values, mask=CAUSAL), expected)
    last = in_two_parts(attend, (query, keys, values), n - 1)
    torch.testing.assert_close(last, expected[:, :, -1:])


def test_a_pair_of_blocks_that_is_equal_up_to_rounding_is_chosen_in_a_long_row() -> None:
    """Few ties, so that the scores of other blocks aren't computed."""
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    blocks = normal(1, 1, 8, 8, 64, seed=0).float()
    keys = torch.cat([blocks, blocks[:, :, :, order]], 2).flatten(2, 3)
    query, values = (normal(1, 1, 128, 64, seed=seed).float() for seed in (1, 2))
    attend = MoBA(block_size=8, blocks=2)
    expected = attend.weights(query.double(), keys.double(), mask=CAUSAL) @ values.double()
    torch.testing.assert_close(attend(query, keys, values, mask=CAUSAL), expected.float())


@pytest.mark.parametrize("n", [12, 64])
def test_blocks_are_chosen_in_float32(n: int) -> None:
    q, k, v = (normal(2, 2, n, 8, seed=seed).bfloat16() for seed in range(3))
    attend = MoBA(block_size=4, blocks=2)
    expected = attend.weights(q, k, mask=CAUSAL).float() @ v.float()
    whole = attend(q, k, v, mask=CAUSAL).float()
    torch.testing.assert_close(whole, expected, rtol=0.02, atol=0.02)
    last = in_two_parts(attend, (q, k, v), n - 1).float()
    torch.testing.assert_close(last, expected[:, :, -1:], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("new", [1, 4])
def test_padding_of_new_tokens_is_in_no_block(new: int) -> None:
    """Its positions may be beyond the capacity."""
    q, k, v = (normal(2, 1, 9 + new, 4, seed=seed) for seed in range(3))
    real = torch.arange(new) < torch.tensor([[1], [0]])
    k[:, :, 9:] += 100 * ~real[:, None, :, None]
    attend = MoBA(block_size=1, blocks=2)
    state = attend.init_state(2, 1, 4, 4, capacity=10, device=torch.device("cpu"), dtype=q.dtype)
    _, state = attend.extend(q[:, :, :9], k[:, :, :9], v[:, :, :9], state)
    _, state = attend.extend(q[:, :, 9:], k[:, :, 9:], v[:, :, 9:], state, attention_mask=real)
    assert isinstance(state, MobaState)
    sums = k[:, :, :10] * (torch.arange(10) < state.length[:, None])[:, None, :, None]
    torch.testing.assert_close(state.sums[:, :, :10], sums)


def test_documents_may_have_no_tokens() -> None:
    x = torch.zeros(2, 1, 0, 4)
    mask = CAUSAL & Mask.documents(torch.zeros(2, 0, dtype=torch.long))
    assert MoBA(block_size=2, blocks=2)(x, x, x, mask=mask).shape == x.shape


@pytest.mark.parametrize(("mode", "passes"), [("forward", 1), ("training", 3)])
def test_the_cost_is_that_of_chosen_keys_and_of_a_score_for_each_earlier_block(
    mode: Mode, passes: int
) -> None:
    shape = Shape(
        batch=2, heads=4, kv_heads=2, queries=64, keys=64, d=8, e=16, causal=True, mode=mode
    )
    chosen, blocks = 64 * 3 * 4, 64 * 65 // 2 // 4
    expected = 2 * 2 * 4 * (chosen * (8 + 16) + blocks * 8)
    assert MoBA(block_size=4, blocks=3).cost(shape).operations == expected * passes
