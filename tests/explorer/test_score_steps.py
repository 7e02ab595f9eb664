"""Each step leads to the next, for every mechanism and position encoding."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention import Bias, Differential, KernelAttention, Linformer, RelativeVectors
from regard.attention.config import BUILT_IN, SoftmaxConfig
from regard.attention.contract_cases import HEADS, Cases, D
from regard.attention.gated import RecurrentAttention
from regard.attention.kernel_config import EluConfig
from regard.attention.registry import Mechanism, find, mechanisms
from regard.attention.score_config import (
    ArgmaxConfig,
    TopKConfig,
)
from regard.explorer.attention_maps import PositionInfo
from regard.explorer.intercept import (
    AttentionRecord,
    capture_attention,
    intercept,
    recorded,
    score_steps,
)
from regard.positions import Alibi, RelativeBias, Rotary, ShawVectors, T5Bias, frequencies, rotate
from regard.positions.config import (
    AlibiConfig,
    RotaryConfig,
)
from tiny_models import tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
EXACT: dict[str, dict[str, Any]] = {
    "rotary, shared keys": {"positions": RotaryConfig(), "n_kv_heads": 2},
    "alibi": {"positions": AlibiConfig()},
    "unscaled": {"attention": SoftmaxConfig(scaled=False)},
}


@pytest.mark.parametrize("variant", EXACT)
def test_the_steps_end_in_the_weights(variant: str) -> None:
    for captured in capture_attention(tiny_model(dtype=torch.float64, **EXACT[variant]), IDS):
        for row, head in ((0, 0), (1, 3)):
            found = dict(score_steps(captured, row, head))
            torch.testing.assert_close(found["masked"].softmax(-1), found["weight"])
            assert ("+ position" in found) == (captured.bias is not None)
            assert ("÷ √d" in found) == (variant != "unscaled")


def test_argmax_takes_the_largest_of_what_is_shown() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=ArgmaxConfig()), IDS)
    found = dict(score_steps(captured, 0, 1))
    chosen = found["weight"].argmax(-1)
    assert chosen.equal(found["masked"].argmax(-1))


def test_the_keys_of_an_indexer_alone_are_shown() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=TopKConfig(k=3, indexer_heads=2)), IDS)
    found = dict(score_steps(captured, 0, 1))
    assert_close(found["masked"].softmax(-1), found["weight"])


def test_of_a_kernel_products_and_weights_are_shown() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=EluConfig()), IDS)
    assert [name for name, _ in score_steps(captured, 0, 0)] == ["q·k", "weight"]


CPU = torch.device("cpu")
POSITIONS: dict[str, Bias | RelativeVectors | None] = {
    "none": None,
    "alibi": Alibi(heads=HEADS),
    "t5": T5Bias(heads=HEADS, buckets=8, max_distance=16),
    "relative bias": RelativeBias(heads=HEADS, clip=5),
    "shaw": ShawVectors(d=D, clip=3),
}


BIASES = ("alibi", "t5", "relative bias")
"""Each mechanism that adds a bias is shown one of them."""


def seen(
    mechanism: Mechanism, positions: Bias | RelativeVectors | None
) -> Iterator[AttentionRecord]:
    """What a mechanism does under every mask that it honors, with shared keys and without."""
    attend = mechanism.example().double().eval()
    for case in Cases(mechanism, torch.float64, CPU, mechanism.example()).supported():
        if positions is not None and (case.bias is not None or case.value.shape[-1] != D):
            continue
        given = {
            "mask": case.mask,
            "bias": case.bias if positions is None else positions,
            "gates": case.gates,
        }
        with recorded(partial(intercept, nn.ModuleDict({"attention": attend}))) as captured:
            attend(case.query, case.key, case.value, **given)
        yield from captured


def supports(mechanism: Mechanism, bias: Bias | RelativeVectors | None) -> bool:
    wanted = "vectors" if isinstance(bias, RelativeVectors) else "bias"
    return bias is None or mechanism.type.supports.has(wanted)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "positions"),
    [
        (name, kind)
        for i, name in enumerate(BUILT_IN)
        for kind in ("none", "shaw", BIASES[i % len(BIASES)])
        if supports(find(name), POSITIONS[kind])
    ],
)
def test_each_step_follows_from_the_last(name: str, positions: str) -> None:
    for captured in seen(find(name), POSITIONS[positions]):
        row, head = 1, 2
        found = dict(score_steps(captured, row, head))
        group = captured.query.shape[1] // captured.key.shape[1]
        query, key = captured.query[row, head], captured.key[row, head // group]
        assert_close(found["q·k"], query @ key.mT)
        assert_close(found["weight"], captured.weights[row, head])
        has_scores = captured.score_attention is not None
        assert has_scores == (name not in IMPLIED)
        if has_scores:
            attend = captured.score_attention
            assert attend is not None
            # Latents and rotary keys are wider than the queries and keys that they stand for.
            width = attend.scale_dim or D
            first = "÷ √d" if width == D else f"× {width**-0.5:.4g}"
            if name == "synthesizer":
                first = "learned scores"
            else:
                assert_close(found[first], found["q·k"] / width**0.5)
            scores = found.get("+ position", found[first])
            gated = found.get("+ gates", scores)
            masked = found.get("masked", gated)
            assert_close(masked, gated.masked_fill(masked.isinf(), float("-inf")))
            normalized = attend.normalize_scores(masked[None, None], ~masked.isinf()[None, None])
            assert_close(normalized[0, 0], found["weight"])
        else:
            assert list(found) == ["q·k", "weight"]


IMPLIED = {
    name
    for name, one in mechanisms().items()
    if issubclass(one.type, Differential | KernelAttention | Linformer | RecurrentAttention)
}


@torch.no_grad()
def test_the_output_holds_vectors_of_distances() -> None:
    for captured in seen(find("softmax"), POSITIONS["shaw"]):
        out = captured.mechanism(
            captured.query, captured.key, captured.value, mask=captured.mask, bias=captured.bias
        )
        assert_close(captured.output_from(captured.weights)[1, 2], out[1, 2])


def test_queries_and_keys_are_turned_back() -> None:
    rotary = Rotary(frequencies(D, 10_000.0), length=8)
    cos, signed_sin = (part[0, 0] for part in rotary(torch.arange(8)[None], torch.float64))
    x = torch.randn(3, 8, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = rotate(x[None], (cos[None, None], signed_sin[None, None]))[0]
    before = PositionInfo(rotation=(cos, signed_sin)).before_rotation(turned)
    assert before is not None
    assert_close(before, x)
    assert PositionInfo().before_rotation(x) is None
