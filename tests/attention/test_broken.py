"""The mistakes of others are seen: by the contract, or by a test that the honest ones pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from broken import (
    AllAtBlockZero,
    Anonymous,
    Careless,
    CoarseState,
    DetachedQueries,
    FiniteMinimum,
    Forgetful,
    HalfTheExponent,
    HiddenValues,
    LeakyFavor,
    ModuloHeads,
    OtherWeights,
    Raising,
    StepwiseMaximum,
    SwappedAlignment,
    TenThousand,
    WhereAfter,
    Wide,
    WrongAxis,
    ZeroedKeys,
)

from regard.attention import Attention, KernelAttention
from regard.attention.contract import Outcome, check
from regard.attention.contract_cases import Cases
from regard.attention.feature_maps import Elu
from regard.attention.registry import Mechanism, find

EQUAL, WEIGHTS = "equals its reference", "weights · values = output"
CAUSAL, PADDING, DEAD = "causal", "padding is ignored", "fully masked rows are zero"
STEPS, SHARED, MEMORY = "decoding = all at once", "key heads are shared", "memory"
REFUSES = "unsupported features raise"
WIDE = (-200.0, 200.0)
"""Queries and keys whose scores pass 10 000."""


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
