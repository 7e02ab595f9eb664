"""The table of back ends: calls that each row decides, on any device."""

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from regard.attention import Mask, backends
from regard.attention.backends import BACKENDS, Backend, choose_backend, possible_rows
from regard.device import LARGE_CACHE, SHORT_ROW
from regard.dropout import Dropout
from regard.operations import OperationCounter
from regard.positions import Alibi, ShawVectors

NARROW, WIDE = torch.zeros(1, 2, 3, 16), torch.zeros(1, 2, 3, 32)
HALF = NARROW.bfloat16()
LONG = torch.zeros(1, 2, SHORT_ROW + 1, 16, dtype=torch.bfloat16)
CACHE = torch.zeros(1, 2, LARGE_CACHE // 32, 16)
NUMBERS, LEARNED = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3, requires_grad=True)
DOCUMENTS = Mask.causal() & Mask.documents(torch.zeros(1, 3, dtype=torch.long))
VECTORS = ShawVectors(d=16, clip=1)

CALLS: list[tuple[int, str, torch.Tensor, dict[str, Any]]] = [
    (0, "cpu", NARROW, {"bias": VECTORS}),
    (0, "cuda", NARROW, {"bias": VECTORS, "dropout": Dropout(0.5)}),
    (1, "cpu", NARROW, {"dropout": Dropout(0.5)}),
    (1, "cuda", NARROW, {"dropout": Dropout(0.5), "mask": DOCUMENTS}),
    (2, "cuda", NARROW, {"mask": DOCUMENTS}),
    (2, "cuda", NARROW, {"bias": Alibi(heads=2)}),
    (3, "cpu", WIDE, {}),
    (4, "cpu", NARROW, {"bias": LEARNED}),
    (5, "cpu", HALF, {}),
    (6, "cpu", LONG, {}),
    (6, "cpu", NARROW, {"mask": DOCUMENTS, "bias": NUMBERS}),
    (6, "cuda", WIDE, {"bias": LEARNED}),
    (6, "cuda", HALF, {"mask": Mask.causal()}),
    (6, "cuda", NARROW.double(), {"mask": DOCUMENTS}),
]


def test_each_row_decides_its_calls() -> None:
    for row, device, value, given in CALLS:
        query = NARROW.to(value.dtype)
        found = choose_backend(query, value, device=device, **given)
        assert found is BACKENDS[row].backend, (row, device, given)
    assert {row for row, *_ in CALLS} == set(range(len(BACKENDS)))
    assert len({row.reason for row in BACKENDS}) == len(BACKENDS)


@pytest.mark.parametrize("row", range(len(BACKENDS) - 1))
def test_no_row_is_superfluous(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, another back end would be chosen for one of its calls."""
    others = BACKENDS[:row] + BACKENDS[row + 1 :]
    monkeypatch.setattr("regard.attention.backends.POSSIBLE", possible_rows(others))
    chosen = {
        choose_backend(NARROW.to(value.dtype), value, device=device, **given)
        for decided_by, device, value, given in CALLS
        if decided_by == row
    }
    assert chosen != {BACKENDS[row].backend}


def test_one_query_of_a_large_cache_is_eager_in_float32_alone() -> None:
    one = NARROW[:, :, :1]
    assert choose_backend(one, CACHE) is Backend.EAGER
    assert choose_backend(one.bfloat16(), CACHE.bfloat16()) is Backend.SDPA
    assert choose_backend(one, NARROW) is Backend.SDPA


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 17, 64])
def test_a_cpu_takes_its_fast_kernel_without_changing_the_process(
    n: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice by `sdpa_kernel` is global: of two threads, one would undo the other's."""
    monkeypatch.setattr(backends, "sdpa_kernel", lambda *_, **__: pytest.fail("global"))
    query, key, value = torch.randn(3, 2, 4, n, 8).unbind()
    query.requires_grad_()
    add = None if causal else torch.randn(2, 1, n, n)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        backends.sdpa(query, key, value.mT.contiguous().mT, add, causal=causal, scale=1.0)
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in {
        e.key for e in found.key_averages()
    }


def test_flex_attention_is_not_compiled_while_operations_are_counted() -> None:
    given: dict[str, Any] = {"mask": DOCUMENTS, "device": "cuda"}
    assert choose_backend(NARROW, NARROW, **given) is Backend.FLEX
    with OperationCounter():
        assert choose_backend(NARROW, NARROW, **given) is Backend.SDPA
