"""Softmax attention to latents, and their cache."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.attention import Latent, Mask, Softmax, State
from regard.attention.cost import Shape
from regard.attention.latent import LatentCache
from regard.attention.state import StateShape

DRAW = torch.Generator().manual_seed(0)
WIDTH, CAPACITY = 6, 9
SIZES = StateShape(
    batch=3,
    kv_heads=1,
    d=WIDTH,
    e=0,
    capacity=CAPACITY,
    device=torch.device("cpu"),
    dtype=torch.float64,
)


def attend() -> Latent:
    return Latent(d_latent=4, d_rope=2)


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=DRAW).double()


@pytest.mark.parametrize("new", [1, 4])
def test_vectors_are_keys_and_values(new: int) -> None:
    query, vectors = drawn(3, 4, 5 + new, WIDTH), drawn(3, 1, 5 + new, WIDTH)
    state: State = LatentCache.empty(SIZES)
    first, second = (slice(0, 5), slice(5, None))
    for part in (first, second):
        x = vectors[:, :, part]
        out, state = attend().extend(query[:, :, part], x, x, state)
    expected = Softmax()(query, vectors, vectors, mask=Mask.causal())[:, :, second]
    torch.testing.assert_close(out, expected)
    assert state.bytes == 3 * (CAPACITY + 1) * WIDTH * 8 + 3 * 8


def test_rows_are_moved_once() -> None:
    """Keys and values are one tensor: moving both would move them back."""
    vectors = drawn(3, 1, 4, WIDTH)
    order = torch.tensor([1, 2, 0])
    state = LatentCache.empty(SIZES).append(vectors, vectors, None).reorder(order)
    for found in state.filled():
        assert torch.equal(found, vectors[order])
    more = state.reorder(torch.tensor([0, 0, 1, 2]))
    assert isinstance(more, LatentCache)
    assert torch.equal(more.filled()[1], vectors[order][[0, 0, 1, 2]])


def test_rows_of_unequal_length() -> None:
    vectors, keep = drawn(3, 1, 4, WIDTH), torch.tensor([[True] * 4, [True] * 2 + [False] * 2] * 2)
    state: State = LatentCache.empty(SIZES).append(vectors, vectors, keep[:3])
    new, query = drawn(3, 1, 1, WIDTH), drawn(3, 4, 1, WIDTH)
    out, state = attend().extend(query, new, new, state)
    for row, length in enumerate([4, 2, 4]):
        seen = torch.cat([vectors[row : row + 1, :, :length], new[row : row + 1]], 2)
        alone = Softmax()(query[row : row + 1], seen, seen)
        torch.testing.assert_close(out[row : row + 1], alone)


def test_a_step_reads_latents_and_whole_rows_their_heads() -> None:
    shape = Shape(batch=2, heads=8, kv_heads=8, queries=16, keys=16, d=6, e=4, causal=True)
    whole, plain = attend().cost(shape), Softmax().cost(shape)
    assert whole.operations == plain.operations
    assert whole.state_bytes == 2 * 16 * WIDTH * 4 < plain.state_bytes
    step = attend().cost(replace(shape, queries=1, mode="step"))
    assert step.operations == 2 * 2 * 8 * 16 * (WIDTH + WIDTH)
    assert step.bytes == 2 * (16 * WIDTH + 2 * 8 * WIDTH) * 4
    assert step.state_bytes == whole.state_bytes
