"""Mechanisms with known mistakes, each made once on purpose: the contract reports each of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Attention, BigBird, KernelAttention, Mask, Softmax, State, Support
from regard.attention.contract import Outcome, check
from regard.attention.contract_cases import Cases
from regard.attention.feature_maps import Elu, Fourier
from regard.attention.kernel import KernelState
from regard.attention.registry import Mechanism, find
from regard.attention.softmax import ScoreAttention
from regard.errors import UnsupportedError

FEW = Support(masks=frozenset({"alignment", "key_lengths"}), cross=True, decoding=True)
"""Features of most of these: enough to show the mistake, and checked in half the time."""


class HalfTheExponent(Fourier):
    """The angles miss a factor √2, so that the kernel is e^(−‖q−k‖²/4σ²)."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x * 2**-0.5)


class HiddenValues(KernelAttention):
    """The values of padding are hidden, but its keys count in the normalizer."""

    supports = FEW

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None = None, **options: Any
    ) -> Tensor:
        if mask is not None and mask.key_lengths is not None:
            padding = mask.padding(value.shape[2], value.device)
            value = value.masked_fill(padding[:, None, :, None], 0.0)
            mask = replace(mask, key_lengths=None)
        return super().forward(query, key, value, mask=mask, **options)


class CoarseState(KernelAttention):
    """The sums are kept in bfloat16, where 256 + 1 is 256."""

    supports = FEW

    def extend(self, *inputs: Any, **options: Any) -> tuple[Tensor, State]:
        out, state = super().extend(*inputs, **options)
        assert isinstance(state, KernelState)
        return out, replace(state, sums=state.sums.bfloat16().to(state.sums.dtype))


class WhereAfter(ScoreAttention):
    """A row that allows nothing becomes NaN and is overwritten; its gradient stays NaN."""

    name = "where-after"
    supports = FEW

    def normalize_scores(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return scores.softmax(-1)
        barred = torch.where(allowed, 0.0, float("-inf"))
        weights = (scores + barred).softmax(-1)
        return torch.where(allowed.any(-1, keepdim=True), weights, 0.0)


class FiniteMinimum(ScoreAttention):
    """A row that allows nothing has equal scores, and gathers the mean of all values."""

    name = "finite-minimum"
    supports = FEW

    def normalize_scores(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is None:
            return scores.softmax(-1)
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)


class ModuloHeads(Softmax):
    """Query head h reads key head h mod groups."""

    supports = FEW

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat(1, group, 1, 1) for x in (key, value))
        return super().forward(query, key, value, **options)


class SwappedAlignment(Softmax):
    """Where queries are fewer than keys, "start" is taken for "end", and the reverse."""

    supports = FEW

    def forward(self, *inputs: Any, mask: Mask | None = None, **options: Any) -> Tensor:
        return super().forward(*inputs, mask=swapped(mask), **options)

    def weights(self, *inputs: Any, mask: Mask | None = None, **options: Any) -> Tensor:
        return super().weights(*inputs, mask=swapped(mask), **options)


def swapped(mask: Mask | None) -> Mask | None:
    """The mask, aligned at its other end."""
    if mask is None or mask.alignment is None:
        return mask
    return replace(mask, alignment="end" if mask.alignment == "start" else "start")


class AllAtBlockZero(BigBird):
    """In evaluation every random block is the first, which is global anyway."""

    def __init__(self) -> None:
        super().__init__(block_size=2, random=1, global_blocks=1, max_keys=32)

    def table(self, heads: int, blocks: int, *, causal: bool, device: torch.device) -> Tensor:
        table = super().table(heads, blocks, causal=causal, device=device)
        if not self.training:
            table[..., -self.random :] = 0
        return table


class DetachedQueries(Softmax):
    """The queries have no gradient, though the mechanism is declared differentiable."""

    supports = FEW

    def _forward(self, query: Tensor, *inputs: Any) -> Tensor:
        return super()._forward(query.detach(), *inputs)


class OtherWeights(Softmax):
    """The weights are those of other scores."""

    supports = FEW

    def weights(self, query: Tensor, *inputs: Any, **options: Any) -> Tensor:
        return super().weights(2 * query, *inputs, **options)


class Forgetful(Softmax):
    """In steps it sees the new tokens only."""

    supports = FEW

    def extend(self, *inputs: Any, **options: Any) -> tuple[Tensor, State]:
        _, state = super().extend(*inputs, **options)
        return self.forward(*inputs[:3], mask=Mask.causal(), bias=options["bias"]), state


class Raising(Softmax):
    """It raises an error of its own, of two lines."""

    supports = FEW

    def forward(self, query: Tensor, *inputs: Any, **options: Any) -> Tensor:
        raise RuntimeError(f"no kernel for {query.shape[1]} heads\nand that is that")


class Wide(Softmax):
    """The output is in float64, whatever comes in."""

    supports = FEW

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        return super().forward(*inputs, **options).double()


class Careless(Softmax):
    """It ignores all masks silently."""

    supports = Support()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return self._attend(query, key, value, None, None)

    def require_support(self, *features: str) -> None:
        pass


class Anonymous(Softmax):
    """Its errors don't name the mechanism."""

    supports = Support()

    def require_support(self, *features: str) -> None:
        if not all(map(self.supports.has, features)):
            raise UnsupportedError("can't do that")


# What the contract says

EQUAL, WEIGHTS = "equals its reference", "weights · values = output"
CAUSAL, PADDING, DEAD = "causal", "padding is ignored", "fully masked rows are zero"
STEPS, SHARED, MEMORY = "decoding = all at once", "key heads are shared", "memory"
GRADIENTS, TRAINING, REFUSES = "gradients", "training = evaluation", "unsupported features raise"


@dataclass(frozen=True)
class Mistake:
    """A broken mechanism, the checks that it fails, and the name of what it should be."""

    example: Callable[[], Attention]
    failed: set[str]
    honest: str = "softmax"


MISTAKES = {
    "hidden values": Mistake(
        lambda: HiddenValues(Elu(), chunk=4), {EQUAL, WEIGHTS, PADDING, MEMORY}, "elu"
    ),
    "coarse state": Mistake(lambda: CoarseState(Elu(), chunk=4), {STEPS}, "elu"),
    "half the exponent": Mistake(
        lambda: KernelAttention(HalfTheExponent(d=4, features=64), chunk=4), {EQUAL}, "fourier"
    ),
    "where after": Mistake(WhereAfter, {GRADIENTS}),
    "detached queries": Mistake(DetachedQueries, {GRADIENTS}),
    "finite minimum": Mistake(FiniteMinimum, {EQUAL, CAUSAL, PADDING, DEAD}),
    "modulo heads": Mistake(ModuloHeads, {EQUAL, WEIGHTS, SHARED, STEPS, MEMORY}),
    "swapped alignment": Mistake(SwappedAlignment, {EQUAL, CAUSAL, DEAD}),
    "all at block zero": Mistake(AllAtBlockZero, {EQUAL, WEIGHTS, STEPS, TRAINING}, "bigbird"),
    "forgetful": Mistake(Forgetful, {STEPS}),
}


def failures(mechanism: Mechanism, broken: Callable[[], Attention]) -> list[Outcome]:
    """Failures of a broken mechanism in an honest one's place.

    Nothing is compiled: no mistake here is one of compiled code, which takes most of the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cases, "compiled", lambda _: iter(()))
        outcomes = list(check(replace(mechanism, example=broken, type=type(broken()))))
    return [outcome for outcome in outcomes if outcome.failure]


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_fails_the_checks_that_concern_it(mistake: Mistake) -> None:
    found = failures(find(mistake.honest), mistake.example)
    assert {outcome.check for outcome in found} == mistake.failed
    if mistake.example is Forgetful:
        assert all("tokens in steps of [1, 1" in str(outcome.failure) for outcome in found)


def test_a_mechanism_without_a_reference_is_checked_against_its_own_weights() -> None:
    found = failures(replace(find("softmax"), reference=None), OtherWeights)
    assert {outcome.check for outcome in found} == {WEIGHTS}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Raising, "RuntimeError: no kernel for 4 heads"),
        (Wide, "the output is torch.float64, the queries are torch.float32"),
    ],
)
def test_the_failure_is_one_line(broken: type[Softmax], message: str) -> None:
    found = failures(find("softmax"), broken)
    assert {outcome.failure for outcome in found} == {message}
    assert len(found) > 50


def test_unsupported_features_have_to_raise_and_name_the_mechanism() -> None:
    ignored, unnamed = (failures(find("softmax"), broken) for broken in (Careless, Anonymous))
    assert {(outcome.check, outcome.failure) for outcome in ignored} == {
        (REFUSES, "an unsupported feature is accepted or silently ignored")
    }
    cases = {outcome.case for outcome in ignored}
    assert {"causal", "lengths", "documents", "window", "blocks", "dense", "bias"} <= cases
    assert {"vectors", "decoding", "cross"} <= cases
    messages = {o.failure for o in unnamed if o.case not in ("decoding", "cross")}
    assert messages == {"the error doesn't name the mechanism: can't do that"}
