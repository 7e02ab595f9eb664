"""The study `favor`."""

import pytest

from regard.studies.finding import Finding, Verdict
from regard.studies.kernels.favor import COSINES, KINDS, favor

SMALL = 20_000


@pytest.fixture(scope="module")
def finding() -> Finding:
    return favor(count=SMALL)


def test_the_verdict(finding: Finding) -> None:
    assert finding.verdict is Verdict.HOLDS


def test_all_kinds_are_measured_where_the_sum_is_at_most_one_long(finding: Finding) -> None:
    names = [number.name for number in finding.numbers]
    for cosine in COSINES:
        assert 2 * 0.5**2 * (1 + cosine) <= 1
        assert f"MSE of orthogonal positive features, cosine {cosine:g}" in names
        for name in KINDS:
            assert f"MSE of {name} features, cosine {cosine:g}" in names


@pytest.fixture(scope="module")
def wrong() -> list[str]:
    """What doesn't hold of long vectors in the kernel, and of short ones in attention."""
    found = favor(count=SMALL, length=1.5, spread=0.25)
    assert found.verdict is Verdict.FAILS
    return [number.name for number in found.numbers if not number.holds]


def test_tails_are_too_heavy_where_vectors_are_long(wrong: list[str]) -> None:
    errors = [name for name in wrong if name.startswith("MSE")]
    assert any(name.endswith("features, cosine 0.8") for name in errors)
    assert not any("trigonometric" in name for name in errors), "cosines have no tails"


def test_attention_of_short_queries_and_keys_is_approximated(wrong: list[str]) -> None:
    assert "error of FAVOR+ / error of the mean of the values, d = 64, 1024 directions" in wrong
    assert any(name.startswith("share of sums of weights ≤ 0") for name in wrong)


def test_what_the_document_writes_is_not_the_kernel(finding: Finding) -> None:
    ratios = {n.name: n.measured for n in finding.numbers if "/ kernel" in n.name}
    right, *wrong = ratios.values()
    assert right == pytest.approx(1, abs=0.02)
    assert all(abs(ratio - 1) > 0.3 for ratio in wrong)
