"""Order without positions, and word order with them."""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.config import supporting
from regard.attention.registry import Mechanism, find
from regard.models.transformer import Encoder
from regard.positions.config import NoPositionsConfig, PositionsConfig
from regard.studies.positions.permutation import (
    KINDS,
    ROUNDING,
    VISIBLE,
    Kind,
    order_error,
    sentences,
    stack,
    word_order,
)
from regard.studies.tensors import largest, seeded


@settings(max_examples=20)
@given(st.permutations(range(10)), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_any_order_gives_the_same_states(order: list[int], layers: int, seed: int) -> None:
    model = stack(Encoder, 10, layers, NoPositionsConfig(), seed)
    assert order_error(model, torch.tensor(order)).max() < ROUNDING


@pytest.mark.parametrize("positions", [kind for kind in KINDS if kind != "none"])
def test_any_positions_break_the_symmetry(positions: Kind) -> None:
    model = stack(Encoder, 10, 2, KINDS[positions], seed=0)
    assert order_error(model, torch.arange(10).roll(3)).max() > VISIBLE


def compared() -> list[str]:
    """The mechanisms that attend to all tokens, and have no inputs but queries and keys."""
    return [kind for kind in supporting("bidirectional") if not find(kind).type.gates]


def mechanism_error(mechanism: Mechanism, seed: int) -> float:
    """The largest change of an output when 12 queries, keys and values are permuted."""
    draw = torch.Generator().manual_seed(seed)
    low, high = mechanism.config.check_inputs
    inputs = torch.rand(3, 1, 2, 12, 4, dtype=torch.float64, generator=draw) * (high - low) + low
    order = torch.randperm(12, generator=draw)
    attend = seeded(lambda: mechanism.example().double().eval(), seed)
    with torch.no_grad():
        return largest(attend(*inputs[..., order, :]) - attend(*inputs)[..., order, :])


@pytest.mark.parametrize("name", compared())
def test_mechanisms_that_cut_or_mix_by_place_tell_the_order(name: str) -> None:
    error = mechanism_error(find(name), seed=1)
    if name in {"linformer", "bigbird", "sliding-window"}:
        assert error > VISIBLE
    elif name == "synthesizer":  # whose learned scores are small at first
        assert error > 1000 * ROUNDING
    else:
        assert error < ROUNDING


def test_every_encoding_is_tried() -> None:
    kinds = {kind.__struct_config__.tag for kind in get_args(PositionsConfig)}
    assert set(KINDS) == kinds


def test_only_alibi_fails_with_the_stored_training() -> None:
    stored = word_order.stored_result()
    shares = {
        kind: stored.row(f"accuracy with positions ({kind})").values[0]
        for kind in KINDS
        if kind != "none"
    }
    assert {kind for kind, share in shares.items() if share is None or share < 0.9} == {"alibi"}


def test_pairs_stand_together_and_were_never_seen() -> None:
    (known, known_subjects), (new, new_subjects) = sentences(400, seed=5)
    turned = new[:, [0, 4, 2, 3, 1]]
    assert turned[0::2].equal(new[1::2])
    assert not known_subjects.equal(new_subjects[: len(known_subjects)])
    seen = {tuple(row) for row in known.tolist()}
    assert len(seen) == 400
    assert not seen & {tuple(row) for row in new.tolist()}
