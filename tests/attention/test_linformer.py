"""Linformer: its formula, its weights and gradients, its memory, and what it refuses."""

import pytest
import torch
from attention_cases import furthest, normal

from regard.attention.linformer import Linformer

EPS64 = torch.finfo(torch.float64).eps


def test_each_key_head_has_projections_of_its_own_or_shares_them() -> None:
    own, one = Linformer(length=7, k=3, heads=2), Linformer(length=7, k=3)
    assert own.project_key.shape == own.project_value.shape == (2, 3, 7)
    assert one.project_key.shape == one.project_value.shape == (1, 3, 7)
    assert sum(p.numel() for p in own.parameters()) == 2 * 2 * 3 * 7
    assert not torch.equal(own.project_key[0], own.project_key[1])
    x = normal(1, 1, 7, 4)
    query, key = (x.expand(1, heads, 7, 4) for heads in (4, 2))
    out, same = own(query, key, key), one(query, key, key)
    assert furthest(out[:, 1], out[:, 2]) > 0.01
    # Equal inputs, which a kernel may add up in another order at another place.
    for found, twins in ((out, [1, 0, 3, 2]), (same, [1, 2, 3, 0])):
        assert furthest(found, found[:, twins]) <= 100 * EPS64


def test_more_keys_than_its_length_are_refused() -> None:
    linformer, x = Linformer(length=3, k=2).double(), normal(1, 1, 4, 2)
    for call in (
        lambda: linformer(x, x, x),
        lambda: linformer.weights(x, x),
        lambda: linformer.encode_memory(x, x),
    ):
        with pytest.raises(ValueError, match=r"for 3 keys at most, not 4"):
            call()
    linformer(x, x[:, :, :3], x[:, :, :3])


def test_heads_that_do_not_fit_its_projections_are_refused() -> None:
    x = normal(1, 3, 4, 2)
    with pytest.raises(ValueError, match=r"for 2 key heads, not 3"):
        Linformer(length=4, k=2, heads=2).double()(x, x, x)


@pytest.mark.parametrize("k", [0, 5])
def test_more_rows_than_keys_or_none_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k}"):
        Linformer(length=4, k=k)
