"""What a call costs."""

import sys
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.costs import exponent, multiplications, peak_bytes, seconds


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_multiplications_of_a_product(n: int, k: int, m: int) -> None:
    a, b = torch.ones(n, k), torch.ones(k, m)
    assert multiplications(lambda: a @ b) == n * k * m
    assert multiplications(lambda: (a @ b, a @ b)) == 2 * n * k * m


def test_what_is_held_at_one_time() -> None:
    x = torch.ones(1000)  # 4 kB, given: it doesn't count, nor does a view of it
    assert peak_bytes(lambda: x[:500].view(5, 100)) == 0
    assert peak_bytes(lambda: x + 1) == 4000
    assert peak_bytes(lambda: (x + 1) + 1) == 8000, "both sums, while the second is made"
    assert peak_bytes(lambda: ((x + 1) + 1) + 1) == 8000, "the first is gone by then"
    assert peak_bytes(lambda: [x + 1, x + 1, x + 1]) == 12000
    assert peak_bytes(lambda: x.new_zeros(10).add_(1)) == 40, "in place"


@given(st.floats(0.1, 3), st.floats(0.1, 100))
def test_the_exponent_is_that_of_a_power(power: float, factor: float) -> None:
    sizes = [8.0, 16.0, 32.0]
    values = [factor * size**power for size in sizes]
    assert exponent(sizes, values) == pytest.approx(power, rel=1e-9)


@pytest.mark.skipif(sys.platform == "win32", reason="the time that passes is measured there")
def test_time_is_of_one_thread_and_without_waiting_for_others() -> None:
    before = torch.get_num_threads()
    seen = set()

    def wait() -> None:
        seen.add(torch.get_num_threads())
        time.sleep(0.2)

    assert seconds(wait) < 0.1
    assert seen == {1}
    assert torch.get_num_threads() == before
