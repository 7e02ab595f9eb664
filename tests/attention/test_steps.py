"""Attention with a cache, step by step: rows of unequal length, any number of tokens at a time."""

import pytest
import torch
from attention_cases import Case, biases, bigbirds, error, generators, path, thorough, windows
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import (
    Attention,
    Bias,
    BigBird,
    KernelAttention,
    Mask,
    MoBA,
    SlidingWindow,
    Softmax,
    State,
)
from regard.attention.contract_cases import TableBias
from regard.attention.feature_maps import Elu

CPU = torch.device("cpu")


@st.composite
def schedules(draw: st.DrawFn, *, calls: int) -> list[list[int]]:
    """For each row, how many tokens it gets at each call; some get none."""
    rows, number = draw(st.integers(1, 3)), draw(st.integers(1, calls))
    counts = st.lists(st.integers(0, 3), min_size=number, max_size=number)
    return draw(st.lists(counts, min_size=rows, max_size=rows))


def in_steps(
    attend: Attention,
    state: State,
    whole: list[Tensor],
    schedule: list[list[int]],
    bias: Bias | None = None,
) -> tuple[Tensor, list[int]]:
    """Outputs of rows of unequal length, padded on the right, and how many tokens each has."""
    done = [0] * len(schedule)
    out = torch.zeros(*whole[0].shape[:3], whole[2].shape[3], dtype=whole[0].dtype)
    for counts in zip(*schedule, strict=True):
        keep = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
        chunk = [x.new_full((*x.shape[:2], max(counts), x.shape[3]), 9.0) for x in whole]
        for row, count in enumerate(counts):
            for part, x in zip(chunk, whole, strict=True):
                part[row, :, :count] = x[row, :, done[row] : done[row] + count]
        kept = None if keep.all() else keep
        query, key, value = chunk
        got, state = attend.extend(query, key, value, state, attention_mask=kept, bias=bias)
        for row, count in enumerate(counts):
            out[row, :, done[row] : done[row] + count] = got[row, :, :count].detach()
            done[row] += count
    assert state.length.tolist() == done
    return out, done


@pytest.mark.parametrize(("eager", "dtype"), [(True, torch.float32), (False, torch.float64)])
@thorough
@given(
    attention=st.one_of(st.just(Softmax()), bigbirds(longest=20), windows()),
    schedule=schedules(calls=6),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    spare=st.integers(0, 2),
    window=st.none() | st.integers(0, 4),
    data=st.data(),
)
def test_in_any_steps_it_is_causal_attention_of_the_whole(
    attention: Attention,
    schedule: list[list[int]],
    kv_heads: int,
    group: int,
    spare: int,
    window: int | None,
    data: st.DataObject,
    eager: bool,
    dtype: torch.dtype,
) -> None:
    """Rows are padded on the right; some are full while others continue."""
    rows, n, heads = len(schedule), max(map(sum, schedule)), kv_heads * group
    generator, bias = data.draw(generators()), data.draw(biases(heads=heads))
    whole = [
        torch.randn(rows, of, n, d, generator=generator, dtype=torch.float64).to(dtype)
        for of, d in ((heads, 4), (kv_heads, 4), (kv_heads, 3))
    ]
    window = window if attention.supports.has("window_size") else None
    mask = Mask.causal() if window is None else Mask.causal() & Mask.window(window)
    state = attention.init_state(
        rows, kv_heads, 4, 3, capacity=n + spare, device=CPU, dtype=dtype, window_size=window
    )
    with path(eager=eager):
        out, done = in_steps(attention, state, whole, schedule, bias)
        for row, length in enumerate(done):
            query, key, value = (x[row, None, :, :length] for x in whole)
            if length:
                expected = attention(query, key, value, mask=mask, bias=bias)
                places = torch.arange(length)
                table = None if bias is None else TableBias(bias.dense(places, places))
                case = Case(query=query, key=key, value=value, bias=table)
                # Both sides round.
                assert error(out[row, None, :, :length], expected, case) <= 2


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "attend",
    [
        Softmax(),
        KernelAttention(Elu()),
        MoBA(block_size=1, blocks=1),
        SlidingWindow(size=1, block_size=1),
        BigBird(block_size=1, window=1, random=0, global_blocks=0, max_keys=8),
    ],
)
def test_decoding_of_no_rows(attend: Attention, masked: bool) -> None:
    x, keep = torch.randn(0, 2, 3, 4), torch.zeros(0, 3, dtype=torch.bool) if masked else None
    state = attend.init_state(0, 2, 4, 4, capacity=8, device=torch.device("cpu"), dtype=x.dtype)
    _, state = attend.extend(x, x, x, state, attention_mask=keep)
    out, _ = attend.extend(x[:, :, :1], x[:, :, :1], x[:, :, :1], state)
    assert out.shape == (0, 2, 1, 4)


def test_rows_of_unequal_length_may_all_be_dropped() -> None:
    x, attend = torch.randn(2, 2, 3, 4), Softmax()
    state = attend.init_state(2, 2, 4, 4, capacity=8, device=torch.device("cpu"), dtype=x.dtype)
    keep = torch.tensor([[True, True, True], [True, False, False]])
    _, state = attend.extend(x, x, x, state, attention_mask=keep)
    assert state.reorder(torch.zeros(0, dtype=torch.long)).length.tolist() == []
