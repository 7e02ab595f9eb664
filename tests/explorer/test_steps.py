"""Each step leads to the next, for every mechanism and position encoding."""

from typing import Any

import pytest
import torch

from regard.explorer.capture import capture_attention
from regard.explorer.steps import steps
from regard.models.config_attention import (
    ArgmaxConfig,
    BigBirdConfig,
    EluConfig,
    SlidingWindowConfig,
    SoftmaxConfig,
)
from regard.models.config_positions import (
    AlibiConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    T5BiasConfig,
)
from tiny_models import tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
EXACT: dict[str, dict[str, Any]] = {
    "learned": {},
    "rotary, shared keys": {"positions": RotaryConfig(), "n_kv_heads": 2},
    "alibi": {"positions": AlibiConfig()},
    "t5": {"positions": T5BiasConfig()},
    "relative bias": {"positions": RelativeBiasConfig()},
    "shaw": {"positions": ShawVectorsConfig()},
    "unscaled": {"attention": SoftmaxConfig(scaled=False)},
    "window": {"attention": SlidingWindowConfig(size=3)},
    "bigbird": {"attention": BigBirdConfig(block=2)},
}


@pytest.mark.parametrize("variant", EXACT)
def test_the_steps_end_in_the_weights(variant: str) -> None:
    for captured in capture_attention(tiny_model(dtype=torch.float64, **EXACT[variant]), IDS):
        for row, head in ((0, 0), (1, 3)):
            found = dict(steps(captured, row, head))
            torch.testing.assert_close(found["masked"].softmax(-1), found["weight"])
            assert ("+ position" in found) == (captured.bias is not None)
            assert ("÷ √d" in found) == (variant != "unscaled")


def test_argmax_takes_the_largest_of_what_is_shown() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=ArgmaxConfig()), IDS)
    found = dict(steps(captured, 0, 1))
    chosen = found["weight"].argmax(-1)
    assert chosen.equal(found["masked"].argmax(-1))


def test_of_a_kernel_products_and_weights_are_shown() -> None:
    (captured, *_) = capture_attention(tiny_model(attention=EluConfig()), IDS)
    assert [name for name, _ in steps(captured, 0, 0)] == ["q·k", "weight"]
