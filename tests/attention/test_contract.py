"""Every mechanism keeps the contract: those of Regard, and those of installed packages."""

from dataclasses import replace

import pytest
import torch
from attention_cases import CONTRACT_DTYPES

from regard.attention import KernelAttention
from regard.attention.config import BUILT_IN
from regard.attention.contract import check
from regard.attention.registry import mechanisms

INDUCTOR = {"softmax", "elu", "gated-deltanet"}
"""Compiled to machine code: one of each family. Of the others, the compiler traces the graphs."""


@pytest.mark.filterwarnings(r"ignore:.*torch\.jit:DeprecationWarning")  # torch's own use of it
@CONTRACT_DTYPES
@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_keeps_the_contract(name: str, dtype: torch.dtype) -> None:
    backend = "inductor" if name in INDUCTOR else "aot_eager"
    outcomes = list(check(mechanisms()[name], dtype=dtype, backend=backend))
    assert len(outcomes) > 50
    if name in BUILT_IN:
        assert any(outcome.check == "equals its reference" for outcome in outcomes)
    compiled = [outcome for outcome in outcomes if outcome.check.startswith("compiled")]
    assert len(compiled) == 2 * (dtype == torch.float32)
    assert [outcome for outcome in outcomes if outcome.failure] == []


KERNELS = [name for name, known in mechanisms().items() if known.type is KernelAttention]


@pytest.mark.parametrize(
    "name",
    [
        name if name == "favor-positive" else pytest.param(name, marks=pytest.mark.slow)
        for name in KERNELS
    ],
)
def test_kernel_attention_keeps_it_where_all_keys_fit_a_chunk(name: str) -> None:
    """The examples of the registry have chunks shorter than their rows."""
    known = mechanisms()[name]

    def example() -> KernelAttention:
        chunked = known.example()
        assert isinstance(chunked, KernelAttention)
        return KernelAttention(chunked.features, chunk=64)

    outcomes = list(check(replace(known, example=example), dtype=torch.float64))
    assert [outcome for outcome in outcomes if outcome.failure] == []
