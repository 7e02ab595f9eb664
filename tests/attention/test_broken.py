"""The mistakes of others are seen: by the contract, or by a test that the honest ones pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from attention_cases import furthest
from broken import (
    AllAtBlockZero,
    Anonymous,
    Careless,
    ClampedNormalizer,
    CoarseState,
    DetachedQueries,
    DrawnByLength,
    FiniteMinimum,
    Forgetful,
    FullForGood,
    HalfTheExponent,
    HiddenValues,
    LeakyFavor,
    MissingFactor,
    ModuloHeads,
    OtherWeights,
    Raising,
    ReusedBlocks,
    SmallBigBird,
    StepwiseMaximum,
    SwappedAlignment,
    TenThousand,
    UnderAutocast,
    WhereAfter,
    Wide,
    WrongAxis,
    ZeroedKeys,
)
from torch import Tensor

from regard.attention import Attention, KernelAttention, Mask
from regard.attention.contract import Outcome, check
from regard.attention.contract_cases import Cases
from regard.attention.feature_maps import Elu, FavorPositive, Fourier
from regard.attention.registry import Mechanism, find
from regard.errors import NormalizerError

EQUAL, WEIGHTS = "equals its reference", "weights · values = output"
CAUSAL, PADDING, DEAD = "causal", "padding is ignored", "fully masked rows are zero"
STEPS, SHARED, MEMORY = "decoding = all at once", "key heads are shared", "memory"
REFUSES = "unsupported features raise"
WIDE = (-200.0, 200.0)
"""Queries and keys whose scores pass 10 000."""


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile nothing: no mistake here is one of compiled code, and it takes most of the time."""
    monkeypatch.setattr(Cases, "compiled", lambda _: iter(()))


def failures(mechanism: Mechanism) -> list[Outcome]:
    return [outcome for outcome in check(mechanism) if outcome.failure]


def instead_of(honest: Mechanism, example: Callable[[], Attention]) -> Mechanism:
    """A mechanism that is said to be what the honest one is."""
    return replace(honest, example=example, type=type(example()))


@dataclass(frozen=True)
class Mistake:
    """A broken mechanism, the name of what it should be, and the checks that it fails."""

    example: Callable[[], Attention]
    honest: str
    seen_by: frozenset[str]
    inputs: tuple[float, float] | None = None

    @property
    def original(self) -> Mechanism:
        """What it should be, with inputs that show the difference."""
        honest = find(self.honest)
        return honest if self.inputs is None else replace(honest, inputs=self.inputs)


MISTAKES = {
    "leaky FAVOR+": Mistake(
        LeakyFavor, "favor-positive", frozenset({EQUAL, WEIGHTS, CAUSAL, PADDING})
    ),
    "stepwise maximum": Mistake(StepwiseMaximum, "favor-positive", frozenset({STEPS})),
    "hidden values": Mistake(
        lambda: HiddenValues(Elu(), chunk=4),
        "elu",
        frozenset({EQUAL, WEIGHTS, PADDING, MEMORY}),
    ),
    "zeroed keys": Mistake(
        lambda: ZeroedKeys(Elu(), chunk=4), "elu", frozenset({EQUAL, WEIGHTS, MEMORY})
    ),
    "coarse state": Mistake(lambda: CoarseState(Elu(), chunk=4), "elu", frozenset({STEPS})),
    "half the exponent": Mistake(
        lambda: KernelAttention(HalfTheExponent(d=4, features=64), chunk=4),
        "fourier",
        frozenset({EQUAL}),
    ),
    "wrong axis": Mistake(lambda: WrongAxis(Elu()), "elu", frozenset({EQUAL, WEIGHTS, STEPS})),
    "where after": Mistake(WhereAfter, "softmax", frozenset({"gradients"})),
    "detached queries": Mistake(DetachedQueries, "softmax", frozenset({"gradients"})),
    "finite minimum": Mistake(FiniteMinimum, "softmax", frozenset({EQUAL, CAUSAL, PADDING, DEAD})),
    "ten thousand": Mistake(
        TenThousand, "softmax", frozenset({EQUAL, CAUSAL, PADDING, STEPS}), inputs=WIDE
    ),
    "modulo heads": Mistake(
        ModuloHeads, "softmax", frozenset({EQUAL, WEIGHTS, SHARED, STEPS, "memory"})
    ),
    "swapped alignment": Mistake(SwappedAlignment, "softmax", frozenset({EQUAL, CAUSAL, DEAD})),
    "all at block zero": Mistake(
        AllAtBlockZero, "bigbird", frozenset({EQUAL, WEIGHTS, STEPS, "training = evaluation"})
    ),
}
EVERY_MISTAKE = pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)


@EVERY_MISTAKE
def test_the_contract_sees_the_mistake_where_it_is(mistake: Mistake) -> None:
    found = failures(instead_of(mistake.original, mistake.example))
    assert {outcome.check for outcome in found} == mistake.seen_by


def test_the_honest_mechanism_passes_with_the_same_inputs() -> None:
    """With their own, test_contract.py checks them all."""
    for mistake in MISTAKES.values():
        if mistake.inputs is not None:
            assert failures(mistake.original) == []


# What the contract is too short to see, or can't see


@pytest.mark.parametrize(("kind", "right"), [(KernelAttention, True), (CoarseState, False)])
def test_a_state_counts_beyond_what_bfloat16_can(kind: type[KernelAttention], right: bool) -> None:
    """Half of 600 equal tokens say 0, the other half 1; in bfloat16, 256 + 1 is 256."""
    attend, x = kind(Elu()), torch.zeros(1, 1, 1, 2).bfloat16()
    state = attend.init_state(
        1, 1, 2, 1, capacity=600, device=torch.device("cpu"), dtype=torch.bfloat16
    )
    for token in range(600):
        value = torch.full((1, 1, 1, 1), float(token >= 300)).bfloat16()
        out, state = attend.extend(x, x, value, state)
    assert (float(out) == 0.5) == right


def test_a_clamped_normalizer_hides_what_the_honest_one_stops_at() -> None:
    features = Fourier(d=4, features=8)
    query, key, value = 5 * normal(3, 1, 2, 6, 4)
    honest, clamped = KernelAttention(features), ClampedNormalizer(features)
    numerators, normalizers = honest.sums(query, key, value)
    assert bool((normalizers < 0).any())
    assert bool((normalizers > 0).any())
    with pytest.raises(NormalizerError):
        honest(query, key, value)
    out = clamped(query, key, value)
    assert bool(out.isfinite().all())
    off = (out - numerators / normalizers[..., None]).abs().amax(-1)
    assert bool((off[normalizers < 0] > value.abs().max()).all())


@pytest.mark.parametrize(("kind", "right"), [(FavorPositive, True), (ReusedBlocks, False)])
def test_more_features_than_the_width_are_more_draws(
    kind: type[FavorPositive], right: bool
) -> None:
    """Four blocks of directions have a quarter of the error of one, if each is a draw."""
    x, y = 0.5 * normal(2, 50, 4).double()

    def error(features: int) -> float:
        squares = []
        for seed in range(100):
            phi = kind(d=4, features=features, seed=seed).double()
            (of_x, x_scale), (of_y, y_scale) = phi(x), phi(y)
            kernel = (of_x * of_y).sum(-1) * (x_scale + y_scale).exp()
            squares.append((kernel - ((x * y).sum(-1) / 2).exp()).square().mean())
        return float(torch.stack(squares).mean())

    # 100 draws know their mean square to a fifth or so: 1 and 4 are far apart.
    assert (error(4) / error(16) > 2) == right


@pytest.mark.parametrize(("kind", "right"), [(Fourier, True), (MissingFactor, False)])
def test_a_vector_s_waves_have_length_one(kind: type[Fourier], right: bool) -> None:
    values, _ = kind(d=4, features=64)(normal(10, 4))
    # 128 squares that add up to 1, each rounded a few times.
    off = furthest(values.square().sum(-1), torch.ones(10))
    assert (off <= 20 * torch.finfo(torch.float32).eps) == right


@pytest.mark.parametrize(("kind", "right"), [(KernelAttention, True), (UnderAutocast, False)])
def test_autocast_lowers_no_precision_inside(kind: type[KernelAttention], right: bool) -> None:
    attend, inputs = kind(Elu()), normal(3, 1, 2, 20, 4)
    out = attend(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # Exact: the same operations on the same shapes.
        assert torch.equal(attend(*inputs), out) == right


ROUNDING = 64 * torch.finfo(torch.float32).eps
"""What two ways to gather some dozen values of order one may differ by."""
HONEST_OR_DRAWN = pytest.mark.parametrize(
    ("kind", "right"), [(SmallBigBird, True), (DrawnByLength, False)]
)


@HONEST_OR_DRAWN
def test_padding_moves_no_random_block(kind: type[SmallBigBird], right: bool) -> None:
    """Twenty tokens alone, and with ten of padding."""
    attend, whole = kind(), normal(3, 1, 2, 30, 4)
    alone = attend(*whole[:, :, :, :20])
    padded = attend(*whole, mask=Mask.lengths(torch.tensor([20])))[:, :, :20]
    assert (furthest(padded, alone) <= ROUNDING) == right


@HONEST_OR_DRAWN
def test_tokens_that_follow_move_no_random_block(kind: type[SmallBigBird], right: bool) -> None:
    attend, whole = kind(), normal(3, 1, 2, 30, 4)
    alone = attend(*whole[:, :, :, :20], mask=Mask.causal())
    among = attend(*whole, mask=Mask.causal())[:, :, :20]
    assert (furthest(among, alone) <= ROUNDING) == right


@pytest.mark.parametrize(("kind", "right"), [(SmallBigBird, True), (FullForGood, False)])
def test_a_short_batch_leaves_later_ones_alone(kind: type[SmallBigBird], right: bool) -> None:
    attend, inputs = kind(), normal(3, 1, 2, 30, 4)
    before = attend(*inputs)
    attend(*inputs[:, :, :, :6])
    # Exact: the same operations on the same shapes.
    assert torch.equal(attend(*inputs), before) == right


# Mechanisms of strangers


def test_a_mechanism_without_a_reference_is_checked_against_its_own_weights() -> None:
    softmax = replace(find("softmax"), reference=None)
    assert {outcome.check for outcome in failures(instead_of(softmax, OtherWeights))} == {WEIGHTS}


def test_an_error_of_a_mechanism_is_told_in_one_line() -> None:
    found = failures(instead_of(find("softmax"), Raising))
    assert {outcome.failure for outcome in found} == {"RuntimeError: no kernel for 4 heads"}
    assert len(found) > 50
    assert all("\n" not in str(outcome.failure) for outcome in found)


def test_a_mask_that_is_ignored_without_a_word_is_found() -> None:
    found = failures(instead_of(find("softmax"), Careless))
    assert {(outcome.check, outcome.failure) for outcome in found} == {
        (REFUSES, "an unsupported feature is accepted or silently ignored")
    }
    cases = {outcome.case for outcome in found}
    assert {"causal", "lengths", "documents", "window", "blocks", "dense", "bias"} <= cases
    assert {"vectors", "decoding", "cross"} <= cases


def test_a_refusal_has_to_name_the_mechanism() -> None:
    found = failures(instead_of(find("softmax"), Anonymous))
    messages = {outcome.failure for outcome in found if outcome.case not in ("decoding", "cross")}
    assert messages == {"the error doesn't name the mechanism: can't do that"}


def test_steps_that_disagree_are_told_by_their_sizes() -> None:
    found = failures(instead_of(find("softmax"), Forgetful))
    assert {outcome.check for outcome in found} == {STEPS}
    assert all("tokens in steps of [1, 1" in str(outcome.failure) for outcome in found)


def test_an_output_of_another_precision_is_told() -> None:
    found = failures(instead_of(find("softmax"), Wide))
    assert {outcome.failure for outcome in found} == {
        "the output is torch.float64, the queries are torch.float32"
    }
