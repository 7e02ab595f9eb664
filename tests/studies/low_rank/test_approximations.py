"""Error, time and memory."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import Softmax
from regard.studies.finding import Verdict
from regard.studies.low_rank.approximations import (
    EXACT,
    LENGTHS,
    MECHANISMS,
    Costs,
    approximations,
    blocks,
    draw_sample,
    error,
    error_ratio,
    exponents,
    pooled,
)


@settings(max_examples=10)
@given(st.integers(0, 99), st.floats(0.1, 2), st.floats(0, 64))
def test_with_as_many_features_as_tokens_means_and_blocks_are_exact(
    seed: int, spread: float, reach: float
) -> None:
    samples = [draw_sample(96, spread, reach, (seed, 0))]
    assert error(pooled, 96, samples) < 1e-12
    assert error(blocks, 96 + 16, samples) < 1e-12
    for make in EXACT.values():
        assert error(make, 1, samples) < 1e-12


def test_linformers_rows_are_means() -> None:
    x = torch.randn(1, 1, 10, 3, generator=torch.Generator().manual_seed(0))
    rows = pooled(10, 4, 0).project_key @ x
    expected = [
        x[0, 0, part].mean(0) for part in (slice(3), slice(3, 5), slice(5, 8), slice(8, 10))
    ]
    torch.testing.assert_close(rows[0, 0], torch.stack(expected))


def test_bigbird_looks_at_as_many_keys_as_it_is_told() -> None:
    pattern = blocks(512, 128, 0).pattern(1, 512, causal=False, device=torch.device("cpu"))
    looked_at = pattern.to_dense(512, 512, torch.device("cpu"))[0, 0].sum(1)
    assert looked_at.median() == 128
    assert looked_at[:16].eq(512).all(), "the global block looks at all"


def test_growth_is_judged() -> None:
    def costs(operations: int, memory: int) -> Costs:
        return Costs([n**operations for n in LENGTHS], [], [n**memory for n in LENGTHS])

    right = {"softmax, written out": costs(2, 2), "softmax, fused": costs(2, 1)}
    right |= {name: costs(1, 1) for name in MECHANISMS}
    for name, each in right.items():
        assert all(number.holds for number in exponents(name, each))
        wrong = {"softmax, written out": costs(1, 1)}.get(name, costs(2, 2))
        failed = [x.name for x in exponents(name, wrong) if not x.holds]
        assert failed
        assert all(name in x for x in failed)


def test_error_that_does_not_fall_is_found() -> None:
    assert error_ratio("a", [0.4, 0.3, 0.2, 0.1]).holds
    assert not error_ratio("a", [0.4, 0.4, 0.4, 0.4]).holds


def test_the_verdict() -> None:
    assert approximations(n=512).verdict is Verdict.HOLDS


def test_the_verdict_with_queries_too_long_for_performer() -> None:
    assert approximations(n=512, spread=2.0).verdict is Verdict.FAILS


def test_linformer_is_far_off_where_tokens_have_nothing_in_common() -> None:
    errors = [error(pooled, 64, [draw_sample(256, 1.0, reach, (0, 0))]) for reach in (0.0, 32.0)]
    assert errors[0] > 0.8 > 0.2 > errors[1]


def test_samples_are_exact() -> None:
    states, values, exact = draw_sample(32, 1.0, 8.0, (0, 0))
    torch.testing.assert_close(exact, Softmax()(states, states, values))
