"""Every mechanism keeps the contract: those of Regard, and those of installed packages."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from regard.attention import KernelAttention
from regard.attention.config import BUILT_IN, CHECKED_SHAPE, AttentionConfig
from regard.attention.contract import check
from regard.attention.contract_cases import Cases
from regard.attention.gates import Gate
from regard.attention.registry import find, mechanisms
from regard.attention.score_config import DifferentialConfig, TopKConfig

INDUCTOR = ("softmax", "elu", "gated-deltanet")
"""Compiled to machine code: one of each family. Of all, the compiler traces the graphs."""
ROUGH = {"polynomial", "fourier", "favor-trigonometric", "favor-hyperbolic"}
"""Kernel attention whose gradients are compared with differences in the slow tests alone.

In each run are those of `elu` and `favor-positive`; the others differ by the kernel's formula.
"""
PRECISIONS = (torch.float64, torch.float32, torch.bfloat16)


def each() -> Iterator[Any]:
    """Each mechanism in each precision; all but one are slow."""
    for name, dtype in product(mechanisms(), PRECISIONS):
        if name == "gated-softmax":  # softmax: the gate is the layer's
            continue
        fast = dtype == (torch.bfloat16 if name in ROUGH else torch.float64)
        yield pytest.param(
            name, dtype, marks=() if fast else pytest.mark.slow, id=f"{name}-{dtype}"
        )


@pytest.mark.filterwarnings(r"ignore:.*torch\.jit:DeprecationWarning")  # torch's own use of it
@pytest.mark.parametrize(("name", "dtype"), list(each()))
def test_every_mechanism_keeps_the_contract(name: str, dtype: torch.dtype) -> None:
    outcomes = list(check(mechanisms()[name], dtype=dtype))
    assert len(outcomes) > 50
    if name in BUILT_IN:
        assert any(outcome.check == "equals its reference" for outcome in outcomes)
    compiled = [outcome for outcome in outcomes if outcome.check.startswith("compiled")]
    assert len(compiled) == 2 * (dtype == torch.float32)
    assert [outcome for outcome in outcomes if outcome.failure] == []


VARIANTS: dict[str, tuple[str, AttentionConfig, int]] = {
    "differential, version 1": ("differential", DifferentialConfig(version=1), 250),
    "top-k, of an indexer": ("top-k", TopKConfig(k=3, indexer_heads=2, d_indexer=3), 200),
}
"""Mechanisms of other classes than the examples of the registry, and how many checks they pass."""


@pytest.mark.parametrize(("name", "config", "least"), VARIANTS.values(), ids=VARIANTS)
def test_variants_keep_the_contract(name: str, config: AttentionConfig, least: int) -> None:
    kind: Any = type(config.build(CHECKED_SHAPE))
    example = partial(config.build, CHECKED_SHAPE)
    known = replace(find(name), example=example, type=kind, reference=kind.reference)
    outcomes = list(check(known, dtype=torch.float64))
    assert len(outcomes) > least
    assert [outcome for outcome in outcomes if outcome.failure] == []


@pytest.mark.slow
def test_compiled_to_machine_code_they_keep_the_contract() -> None:
    """In a process of its own, as users check: a fault of machine code says where it was."""
    done = subprocess.run(
        [
            *(sys.executable, "-X", "faulthandler", "-m", "regard"),
            *("attention", "check", *INDUCTOR, "--precision", "float32", "--inductor"),
        ],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


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


@pytest.mark.parametrize(("low", "high"), [(3.0, 5.0), (-5.0, -2.0), (float("-inf"), -2.0)])
def test_the_contract_draws_gates_of_any_range(low: float, high: float) -> None:
    """randint raised, outside of any check."""
    mechanism = find("mamba2")
    attend = mechanism.example(CHECKED_SHAPE)
    attend.gates = (Gate("log_decay", low=low, high=high),)
    gate = Cases(mechanism, torch.float32, torch.device("cpu"), attend).plain().gates["log_decay"]
    assert low <= float(gate.min()) < float(gate.max()) <= high
