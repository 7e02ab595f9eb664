"""Kernel attention beyond the contract: signed sums, extremes, chunks, long states, memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from attention_cases import brief, furthest, generators, normal, of_norm
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from largest import memory_used
from pretended_gpu import counted_stops, on_gpu
from regard.attention import Attention, KernelAttention, Mask, Softmax, State, reference
from regard.attention.feature_maps import (
    Elu,
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    FeatureMap,
    Fourier,
    Polynomial,
    RandomFeatures,
)
from regard.attention.kernel import normalizers_checked_together
from regard.errors import NormalizerError

CPU = torch.device("cpu")
MAPS: dict[str, Callable[[], FeatureMap]] = {
    "elu": Elu,
    "polynomial": lambda: Polynomial(d=4, degree=3),
    "fourier": lambda: Fourier(d=4, features=8),
    "favor-positive": lambda: FavorPositive(d=4, features=6),
    "favor-trigonometric": lambda: FavorTrigonometric(d=4, features=8),
    "favor-hyperbolic": lambda: FavorHyperbolic(d=4, features=6),
}
SIGNED = [name for name, make in MAPS.items() if not make().positive]
EVERY_MAP = pytest.mark.parametrize("name", MAPS)


@contextmanager
def segments(tokens: int | None) -> Iterator[None]:
    """Make kernel attention hold the features of so many tokens at once."""
    with pytest.MonkeyPatch.context() as patch:
        if tokens is not None:
            patch.setattr("regard.attention.kernel._segment", lambda *_: tokens)
        yield


@dataclass(frozen=True, kw_only=True)
class Case:
    """Kernel attention with its inputs."""

    attend: KernelAttention
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None = None

    def weights(self) -> Tensor:
        """The reference's."""
        return self.attend.reference(self.query, self.key, self.mask or Mask(), None)

    def kernel(self) -> Tensor:
        """The reference's weights before they are divided by their sum."""
        allowed = reference.allowed(self.query, self.key, self.mask or Mask())
        kernel = self.attend.features.reference(*reference.pairs(self.query, self.key))
        return kernel.where(allowed, 0.0)

    def expected(self) -> Tensor:
        """The reference's output."""
        return reference.gather(self.weights(), self.value)

    def out(self) -> Tensor:
        out: Tensor = self.attend(self.query, self.key, self.value, mask=self.mask)
        return out

    def roundings(self) -> float:
        """How often a weight may be rounded, in units of its size (of its bound, if signed).

        Exponents and angles are rounded d + 8 times at most; m products and n weights are added,
        and again by chunks.
        """
        features, d, n = self.attend.features, self.query.shape[-1], self.key.shape[2]
        size = self.exponents(self.query) + self.exponents(self.key)
        return (d + 8) * (1 + size) + features.size(d) + 2 * n

    def exponents(self, x: Tensor) -> float:
        """The largest size of exponents and angles: sums of d products and a square norm."""
        features, d = self.attend.features, x.shape[-1]
        if not isinstance(features, RandomFeatures):
            return 0.0
        products = x.double().abs() @ features.directions.double().abs().T
        norms = x.double().square().sum(-1)
        return float(products.max() / d**0.25 + norms.max() / (2 * d**0.5))

    def bounds(self) -> Tensor:
        """For each query and key, what |φ(q)·φ(k)| can be at most, by Cauchy and Schwarz."""
        own = replace(self, mask=None)
        of_query = replace(own, key=self.query).kernel().diagonal(dim1=2, dim2=3)
        of_key = replace(own, query=self.key).kernel().diagonal(dim1=2, dim2=3)
        of_key = of_key.repeat_interleave(self.query.shape[1] // self.key.shape[1], 1)
        return (of_query[..., :, None] * of_key[..., None, :]).sqrt()

    def off(self, actual: Tensor, expected: Tensor | None = None) -> float:
        """How far an output of positive weights is off, in units of what rounding may do.

        A share is off by twice what a weight is, and what leaves is rounded once more.
        """
        eps = torch.finfo(torch.promote_types(self.query.dtype, torch.float32)).eps
        unit = (2 * self.roundings() * eps + torch.finfo(self.query.dtype).eps) * float(
            self.value.double().abs().max()
        )
        return furthest(actual, self.expected() if expected is None else expected) / unit


def in_steps(case: Case, state: State, steps: Sequence[int]) -> tuple[Tensor, State]:
    """The tokens of a case, some at a time."""
    outputs = []
    for part in torch.arange(sum(steps)).split(list(steps)):
        query, key, value = (x[:, :, part] for x in (case.query, case.key, case.value))
        out, state = case.attend.extend(query, key, value, state)
        outputs.append(out)
    return torch.cat(outputs, 2), state


def begin(case: Case) -> State:
    batch, kv_heads, n, d = case.key.shape
    e, dtype = case.value.shape[-1], case.query.dtype
    return case.attend.init_state(batch, kv_heads, d, e, capacity=n, device=CPU, dtype=dtype)


@pytest.mark.parametrize("attend", [Softmax(), KernelAttention(Elu())])
def test_a_state_of_inference_mode_is_not_continued_elsewhere(attend: Attention) -> None:
    """Both change their state in place."""
    x = normal(1, 2, 1, 4)
    with torch.inference_mode():
        state = attend.init_state(1, 2, 4, 4, capacity=4, device=CPU, dtype=x.dtype)
        _, state = attend.extend(x, x, x, state)
    with torch.no_grad(), pytest.raises(RuntimeError, match="to inference tensor outside"):
        attend.extend(x, x, x, state)


def test_a_chunk_has_a_token() -> None:
    with pytest.raises(ValueError, match="not 0"):
        KernelAttention(Elu(), chunk=0)


# The sums, whatever the mask, the chunks and the sign


@st.composite
def kernel_cases(draw: st.DrawFn, name: str) -> Case:
    """Fewer or more queries than keys, grouped heads, any mask that kernel attention honors."""
    batch, kv_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    keys = draw(st.integers(1, 12))
    queries = keys if draw(st.booleans()) else draw(st.integers(1, 12))
    generator = draw(generators())
    mask = Mask(alignment=draw(st.sampled_from([None, "start", "end"])))
    if draw(st.booleans()):
        mask = mask & Mask.lengths(torch.randint(keys + 1, (batch,), generator=generator))
    if queries == keys and draw(st.booleans()):
        borders = torch.rand(batch, keys, generator=generator) < draw(st.sampled_from([0.1, 0.5]))
        mask = mask & Mask.documents(borders.long().cumsum(1))

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return Case(
        attend=KernelAttention(MAPS[name](), chunk=draw(st.sampled_from([1, 2, 3, 7, 64]))),
        query=random(batch, kv_heads * group, queries, 4),
        key=random(batch, kv_heads, keys, 4),
        value=random(batch, kv_heads, keys, 3),
        mask=mask,
    )


@EVERY_MAP
@brief
@given(data=st.data(), segment=st.sampled_from([None, 4, 8, 16, 3]))
def test_numerator_and_normalizer_are_the_reference_s_up_to_one_positive_factor(
    data: st.DataObject, segment: int | None, name: str
) -> None:
    """In any chunks and segments, and though normalizers be negative."""
    case = data.draw(kernel_cases(name))
    with segments(segment):
        numerators, normalizers = case.attend.sums(case.query, case.key, case.value, mask=case.mask)
    kernel, bounds = case.kernel(), case.bounds()
    value = torch.nn.functional.pad(case.value, (0, 1), value=1.0)
    exact = reference.gather(kernel, value)
    got = torch.cat([numerators, normalizers[..., None]], -1)
    dead = ~(kernel != 0).any(-1)
    assert not got[dead].any()
    # Numerator and normalizer as one vector: its direction is off by what the terms are off by.
    shown = torch.where(kernel != 0, bounds, 0.0).sum(-1) * value.abs().max()
    unit = case.roundings() * torch.finfo(torch.float64).eps * shown / exact.norm(dim=-1)
    difference = (of_norm(got, 1.0) - of_norm(exact, 1.0)).norm(dim=-1)
    assert furthest((difference / (4 * unit))[~dead], torch.zeros(int((~dead).sum()))) <= 1


@pytest.mark.parametrize("name", ["elu", "favor-positive"])
@pytest.mark.parametrize("masking", ["full", "causal", "documents"])
def test_segments_change_no_gradient(name: str, masking: str) -> None:
    ids = torch.tensor([[0] * 5 + [1] * 5, [2] * 4 + [0] + [1] * 5])
    masks = {"full": None, "causal": Mask.causal(), "documents": Mask.documents(ids)}
    case = Case(
        attend=KernelAttention(MAPS[name](), chunk=4),
        query=normal(2, 2, 10, 4).requires_grad_(),
        key=normal(2, 1, 10, 4, seed=1).requires_grad_(),
        value=normal(2, 1, 10, 3, seed=2).requires_grad_(),
        mask=masks[masking],
    )
    found = []
    for tokens in (None, 4):
        with segments(tokens):
            loss = case.out().square().sum()
            found.append(torch.autograd.grad(loss, (case.query, case.key, case.value)))
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-10, atol=1e-12)


# Normalizers that can't be divided by


def wide(features: FeatureMap) -> Case:
    """A case in which some normalizers are negative."""
    return Case(
        attend=KernelAttention(features, chunk=4),
        query=3 * normal(2, 2, 9, 4),
        key=3 * normal(2, 1, 9, 4, seed=1),
        value=normal(2, 1, 9, 3, seed=2),
    )


def read_memory(case: Case) -> Tensor:
    return case.attend.attend_memory(case.query, case.attend.encode_memory(case.key, case.value))


CALLS: dict[str, Callable[[Case], Any]] = {
    "forward": Case.out,
    "weights": lambda case: case.attend.weights(case.query, case.key),
    "read": read_memory,
    "extend": lambda case: in_steps(case, begin(case), [4, 5]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", SIGNED)
def test_a_normalizer_that_is_not_positive_stops_eager_code_by_the_map_s_name(
    name: str, call: Callable[[Case], Any]
) -> None:
    features = MAPS[name]()
    with pytest.raises(NormalizerError, match=type(features).__name__):
        call(wide(features))


def test_the_error_counts_the_queries() -> None:
    """On a CPU at once, also within a common check; on a GPU without one."""
    case = wide(Fourier(d=4, features=8))
    _, normalizers = case.attend.sums(case.query, case.key, case.value)
    wrong = int((normalizers <= 0).sum())
    assert 0 < wrong < 36
    unknown = wide(Elu())
    unknown.key[1, 0, 3, 2] = float("nan")
    pretended = on_a_gpu(Fourier(d=4, features=8))
    calls: list[tuple[Callable[[], object], int]] = [
        (case.out, wrong),
        (lambda: checked(case, Case.out), wrong),
        (pretended.out, wrong),
        (unknown.out, 18),
    ]
    for call, number in calls:
        with pytest.raises(NormalizerError, match=f"of {number} of 36 queries"):
            call()
    assert int(pretended.attend.nonpositive) == 0


def test_compiled_code_counts_and_clamps_nothing() -> None:
    case = wide(Fourier(d=4, features=8))
    numerators, normalizers = case.attend.sums(case.query, case.key, case.value)
    torch.compiler.reset()
    compiled = torch.compile(case.attend, backend="aot_eager", fullgraph=True)
    wrong = int((normalizers <= 0).sum())
    assert int(case.attend.nonpositive) == 0
    for calls in (1, 2):
        out = compiled(case.query, case.key, case.value)
        assert int(case.attend.nonpositive) == calls * wrong
    expected = numerators / normalizers[..., None]
    # The same sums, perhaps in another order, over normalizers that may be small beside them.
    unit = case.roundings() * torch.finfo(torch.float64).eps * 9 / normalizers.abs()[..., None]
    assert furthest(out / unit, expected / unit) <= 4 * (1 + float(expected.abs().max()))


def on_a_gpu(features: FeatureMap) -> Case:
    """A case in which some normalizers are negative, on a pretended GPU."""
    case = wide(features)
    return replace(case, query=on_gpu(case.query), key=on_gpu(case.key), value=on_gpu(case.value))


def checked(case: Case, *calls: Callable[[Case], Any], place: str = "") -> None:
    """Call the mechanism, and check its normalizers together."""
    with normalizers_checked_together(nn.ModuleList([case.attend]), place):
        for call in calls:
            call(case)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_gpu_counts_normalizers_and_stops_once(call: Callable[[Case], Any]) -> None:
    case = on_a_gpu(Fourier(d=4, features=8))
    named = "step 3: in 0, the weights of [1-9].* queries .*Fourier"
    with counted_stops() as stops, pytest.raises(NormalizerError, match=named):
        checked(case, call, call, place="step 3: ")
    assert stops == ["tolist"]
    assert int(case.attend.nonpositive) == 0
    checked(case)


def test_of_nested_checks_the_outermost_raises() -> None:
    case = on_a_gpu(Fourier(d=4, features=8))
    later: list[Case] = []
    with pytest.raises(NormalizerError, match="outer"):
        checked(case, lambda case: checked(case, Case.out), later.append, place="outer ")
    assert later


def test_an_error_of_another_kind_passes_and_ends_the_counting() -> None:
    case = on_a_gpu(Fourier(d=4, features=8))
    with pytest.raises(ZeroDivisionError):
        checked(case, Case.out, lambda _: 1 // 0)
    assert not case.attend.counts


# Extremes


def huge(
    kind: type[RandomFeatures], dtype: torch.dtype, mask: Mask | None, norms: tuple[float, float]
) -> Case:
    """Queries and keys of given norms."""
    return Case(
        attend=KernelAttention(kind(d=16, features=32), chunk=8),
        query=of_norm(normal(2, 2, 40, 16), norms[0]).to(dtype),
        key=of_norm(normal(2, 1, 40, 16, seed=1), norms[1]).to(dtype),
        value=normal(2, 1, 40, 4, seed=2).to(dtype),
        mask=mask,
    )


POSITIVE = pytest.mark.parametrize(
    "kind", [FavorPositive, FavorHyperbolic], ids=lambda kind: kind.__name__
)


@POSITIVE
def test_keys_of_norm_fifty_are_the_reference_s(kind: type[RandomFeatures]) -> None:
    for dtype, mask in product((torch.float32, torch.bfloat16), (None, Mask.causal())):
        case = huge(kind, dtype, mask, (1.0, 50.0))
        out = case.out()
        assert bool(out.isfinite().all()), (dtype, mask)
        assert case.off(out) <= 1, (dtype, mask)


@POSITIVE
def test_a_huge_key_leaves_earlier_rows_as_they_are_and_later_ones_right(
    kind: type[RandomFeatures],
) -> None:
    case = huge(kind, torch.float32, Mask.causal(), (1.0, 1.0))
    before = case.out()
    for norm, late in product((50.0, 1e10), (11, 15, 16, 39)):
        key = case.key.clone()
        key[:, :, late] *= norm
        out = replace(case, key=key).out()
        # Exact: the shapes are the same, and what is hidden has a weight of 0.
        assert torch.equal(out[:, :, :late], before[:, :, :late]), (norm, late)
        assert bool(out.isfinite().all()), (norm, late)
    case.key[:, :, 0] *= 50
    assert case.off(case.out()) <= 1


def overshadowed(shift: float) -> Case:
    """A first key along a direction, and later queries that look the other way.

    The first key's features are so much larger than those of the others that these vanish beside
    it, though for the later queries they count as much or more.
    """
    features = FavorPositive(d=256, features=8)
    toward = shift * 4 * features.directions[0]
    query, key = 0.3 * normal(1, 1, 8, 256).float(), 0.3 * normal(1, 1, 8, 256, seed=1).float()
    key[0, 0, 0] = toward
    query[0, 0, 1:] -= toward
    value = normal(1, 1, 8, 4, seed=2).float()
    attend = KernelAttention(features, chunk=4)
    return Case(attend=attend, query=query, key=key, value=value, mask=Mask.causal())


def test_small_weights_are_right_or_an_error() -> None:
    """Normalizers down to 1e-31 are as exact as others; below the range of float32, they raise."""
    stopped = []
    for percent in (0, 10, 20, 30, *range(40, 60), 60, 80, 100):
        case = overshadowed(percent / 100)
        try:
            assert case.off(case.out()) <= 1, percent
        except NormalizerError:
            stopped.append(percent)
    assert min(stopped) > 30
    assert {60, 80, 100} <= set(stopped)


# Nothing


def test_without_queries_or_keys_there_is_nothing_to_gather() -> None:
    masks = (None, Mask.causal(), Mask.causal("end"))
    for mask, (queries, keys) in product(masks, ((3, 0), (0, 3), (0, 0))):
        key = normal(2, 1, keys, 4)
        out = KernelAttention(Elu())(normal(2, 2, queries, 4), key, key, mask=mask)
        expected = torch.zeros(2, 2, queries, 4, dtype=torch.float64)
        assert torch.equal(out, expected), (mask, queries, keys)


def test_padding_has_no_normalizer_to_stop_at() -> None:
    """The query of a pad is anybody's: its weights may add up to less than zero."""
    x = torch.tensor([[2.0, 0.0], [-2.0, 0.0]], dtype=torch.float64)[None, None]
    attend = KernelAttention(Polynomial(d=2, degree=1))
    state = attend.init_state(1, 1, 2, 2, capacity=2, device=x.device, dtype=x.dtype)
    out, after = attend.extend(x, x, x, state, attention_mask=torch.tensor([[True, False]]))
    assert torch.equal(out[0, 0, 0], x[0, 0, 0])
    assert after.length.tolist() == [1]
    with pytest.raises(NormalizerError):
        attend.extend(x[:, :, 1:], x[:, :, 1:] * 0, x[:, :, 1:], after)


def test_padding_gathers_nothing_so_that_half_precision_does_not_overflow() -> None:
    """What a layer makes of padding is the value of a hidden key in the next, times 0."""
    x = torch.full((1, 1, 8, 4), 30.0, dtype=torch.float16)
    attend, real = KernelAttention(Polynomial(d=4)), torch.arange(8)[None] < 4
    state = attend.init_state(1, 1, 4, 4, capacity=8, device=CPU, dtype=x.dtype)
    out, _ = attend.extend(x, x, x, state, attention_mask=real)
    assert torch.equal(out, x * real[:, None, :, None])


def test_no_new_tokens_leave_the_state_as_it_is() -> None:
    case = stepwise(5, torch.float64)
    _, state = in_steps(case, begin(case), [5])
    none = normal(1, 1, 0, 4)
    out, after = case.attend.extend(none.expand(-1, 2, -1, -1), none, normal(1, 1, 0, 3), state)
    assert out.shape == (1, 2, 0, 3)
    assert after.length.tolist() == [5]


# Steps


def stepwise(n: int, dtype: torch.dtype) -> Case:
    return Case(
        attend=KernelAttention(FavorPositive(d=4, features=16), chunk=16),
        query=normal(1, 2, n, 4).to(dtype),
        key=normal(1, 1, n, 4, seed=1).to(dtype),
        value=normal(1, 1, n, 3, seed=2).to(dtype),
        mask=Mask.causal(),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_three_hundred_tokens_one_by_one_are_those_all_at_once(dtype: torch.dtype) -> None:
    case = stepwise(300, dtype)
    out, _ = in_steps(case, begin(case), [1] * 300)
    expected = case.expected()
    assert case.off(out, expected) <= 1
    assert case.off(case.out(), expected) <= 1


def test_a_memory_has_one_size_whatever_the_number_of_keys() -> None:
    attend = KernelAttention(FavorPositive(d=4, features=16))
    for keys in (1, 5, 2000):
        key, value = (normal(2, 1, keys, width).bfloat16() for width in (4, 3))
        memory = attend.encode_memory(key, value)
        assert memory.bytes == 2 * ((16 * 4 + 1) * 4 + 8), keys
        assert memory.length.tolist() == [keys, keys]


# Precision


AUTOCAST: dict[str, Callable[[Case], Any]] = {
    **CALLS,
    "causal": lambda case: replace(case, mask=Mask.causal()).out(),
    "sums": lambda case: case.attend.sums(case.query, case.key, case.value),
}


@pytest.mark.parametrize("call", AUTOCAST.values(), ids=AUTOCAST)
def test_autocast_changes_nothing(call: Callable[[Case], Any]) -> None:
    case = replace(
        stepwise(9, torch.float32), attend=KernelAttention(FavorPositive(d=4, features=8), chunk=4)
    )
    without = call(case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = call(case)
    tensors = [[x for x in tree_leaves(y) if isinstance(x, Tensor)] for y in (without, within)]
    assert tensors[0]
    for one, other in zip(*tensors, strict=True):
        assert one.dtype == other.dtype == torch.float32
        # Exact: the same operations on the same shapes.
        assert torch.equal(one, other)


# Memory


MEMORY_MASKS: dict[str, Callable[[int], Mask | None]] = {
    "full": lambda _: None,
    "causal": lambda _: Mask.causal(),
    "documents": lambda n: Mask.documents((torch.arange(n) // 100)[None]),
}


@pytest.mark.parametrize("mask", MEMORY_MASKS.values(), ids=MEMORY_MASKS)
def test_no_tensor_of_tokens_by_features_by_width_is_ever_made(
    mask: Callable[[int], Mask | None],
) -> None:
    """Of 128 each, the largest is an input with its ones; what is kept grows with the tokens."""
    attend = KernelAttention(FavorPositive(d=128, features=128))
    (_, short), (largest, long) = (memory_used(attend, n, 128, mask(n)) for n in (2048, 4096))
    assert largest <= 4096 * 129 * 4
    # Some twenty rows of each token: far from 128 of features times values.
    assert long < 4096 * 128 * 128
    # The first chunk keeps no features for the gradient of the empty carry that it reads.
    assert long <= 2 * short + 64 * 128 * 4


# The draw


def test_the_draw_is_saved_and_the_count_is_not() -> None:
    attend = KernelAttention(FavorPositive(d=4, features=6))
    assert list(attend.state_dict()) == ["features.directions"]
    assert dict(attend.named_buffers()).keys() == {"features.directions", "nonpositive"}
    other = KernelAttention(FavorPositive(d=4, features=6, seed=1))
    x = normal(1, 1, 5, 4)
    assert furthest(attend(x, x, x), other(x, x, x)) > 1e-3
    other.load_state_dict(attend.state_dict())
    # Exact: the same operations on the same shapes.
    assert torch.equal(attend(x, x, x), other(x, x, x))


def test_kernel_weights_of_no_keys() -> None:
    """`forward` accepted them, `weights` raised IndexError."""
    query, key = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 0, 4)
    assert KernelAttention(Elu()).weights(query, key).shape == (2, 2, 5, 0)
