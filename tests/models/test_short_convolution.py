"""A short convolution is its formula, all at once or token by token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.models.short_convolution import ShortConvolution
from tiny_recurrent import close, normal, sharp


@pytest.mark.parametrize("width", [1, 2, 4])
def test_it_is_its_formula(width: int) -> None:
    convolution = sharp(ShortConvolution(3, width)).requires_grad_(False)
    x = normal(2, 7, 3)
    weight = convolution.weight[:, 0]
    expected = torch.zeros_like(x)
    for i in range(7):
        for back in range(min(width, i + 1)):
            expected[:, i] += weight[:, width - 1 - back] * x[:, i - back]
    assert close(convolution(x), expected)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_it_stops_at_the_borders_of_documents(width: int, lengths: list[int]) -> None:
    convolution = sharp(ShortConvolution(3, width)).requires_grad_(False)
    x = normal(2, sum(lengths), 3)
    document_ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    whole = convolution(x, document_ids.expand(2, -1))
    alone = [convolution(one) for one in x.split(lengths, 1)]
    assert close(whole, torch.cat(alone, 1))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_in_pieces_of_unequal_length_it_is_the_same(
    width: int, pieces: list[tuple[int, int]]
) -> None:
    """Two rows; of each piece a row takes as many tokens as it says, and is padded behind."""
    convolution = sharp(ShortConvolution(3, width)).requires_grad_(False)
    totals = [sum(piece[row] for piece in pieces) for row in (0, 1)]
    x = normal(2, max(*totals, 1), 3)
    whole = convolution(x)
    before, done = x.new_zeros(2, convolution.reach, 3), [0, 0]
    for piece in pieces:
        longest = max(*piece, 1)
        given_, keep = normal(2, longest, 3, seed=9), torch.zeros(2, longest, dtype=torch.bool)
        for row, n in enumerate(piece):
            given_[row, :n], keep[row, :n] = x[row, done[row] : done[row] + n], True
        out, before = convolution.extend(given_, before, keep)
        for row, n in enumerate(piece):
            if n:
                assert close(out[row, :n], whole[row, done[row] : done[row] + n])
            done[row] += n
