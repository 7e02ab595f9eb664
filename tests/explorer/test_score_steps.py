"""Each step leads to the next, for every mechanism and position encoding."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard import edits
from regard.attention import Bias, Differential, KernelAttention, Linformer, RelativeVectors
from regard.attention.config import BUILT_IN, SoftmaxConfig
from regard.attention.contract_cases import HEADS, Cases, D
from regard.attention.gated import RecurrentAttention
from regard.attention.registry import Mechanism, find, mechanisms
from regard.attention.score_config import (
    TopKConfig,
)
from regard.explorer.intercept import (
    AttentionRecord,
    capture_attention,
    intercept,
    recorded,
    score_steps,
)
from regard.explorer.look import look
from regard.positions import Alibi, RelativeBias, ShawVectors, T5Bias
from tiny_edited import TEXT, mechanism_run
from tiny_models import tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])


def test_the_keys_of_an_indexer_alone_are_shown() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=TopKConfig(k=3, indexer_heads=2)), IDS)
    found = dict(score_steps(captured, 0, 1))
    assert_close(found["masked"].softmax(-1), found["weight"])


def test_weights_follow_from_capped_scores() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=SoftmaxConfig(softcap=0.5)), IDS)
    steps = dict(score_steps(captured, 0, 1))
    assert_close(steps["masked"].softmax(-1), steps["weight"])
    assert float(steps["softcap 0.5"].abs().max()) <= 0.5


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
        group = captured.weights.shape[1] // captured.key.shape[1]
        query, key = captured.head_queries[row, head], captured.key[row, head // group]
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


def test_edited_weights_have_no_steps_from_scores() -> None:
    view = look(mechanism_run("softmax"), TEXT, edit=edits.zero("decoder.0.scores.0"))
    steps = score_steps(view.panels[0].maps[0].layers[0].record, 0, 0)
    assert [name for name, _ in steps] == ["q·k", "weight, edited"]
    others = score_steps(view.panels[0].maps[0].layers[0].record, 0, 1)
    assert [name for name, _ in others] == ["q·k", "÷ √d", "masked", "weight"]
