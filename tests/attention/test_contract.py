"""Every mechanism keeps the contract: those of Regard, and those of installed packages."""

import pytest
import torch

from regard.attention.contract import check
from regard.attention.registry import mechanisms

DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_keeps_the_contract(name: str, dtype: torch.dtype) -> None:
    outcomes = list(check(mechanisms()[name], dtype=dtype))
    assert len(outcomes) > 50
    assert [outcome for outcome in outcomes if outcome.failure] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", mechanisms())
def test_inductor_agrees_with_eager(name: str) -> None:
    *_, compiled = check(mechanisms()[name], backend="inductor")
    assert compiled.check == "compiled (inductor) = eager"
    assert compiled.failure is None
