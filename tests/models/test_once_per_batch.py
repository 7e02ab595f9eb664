"""What layers share: masks are prepared once for a batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pretended_gpu import on_gpu
from regard.attention import Mask, flex
from regard.attention.config import SlidingWindowConfig
from regard.models.config import EncoderConfig
from regard.models.transformer import Encoder
from tiny_models import BLOCK, VOCABULARY, tiny_model

LAYERS = 3
IDS = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))
DOCUMENTS = (torch.arange(BLOCK) // 5).expand(2, -1)


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Let a function note its results."""
    results: list[Any] = []
    function: Callable[..., Any] = getattr(owner, name)

    def noting(*args: Any, **options: Any) -> Any:
        results.append(function(*args, **options))
        return results[-1]

    monkeypatch.setattr(owner, name, noting)
    return results


@pytest.mark.parametrize(
    ("windows", "masks"), [((), 1), ((4, 4, 4), 1), ((4, 0, 4), 2)], ids=["none", "one", "two"]
)
def test_a_cpu_makes_a_dense_mask_once(
    monkeypatch: pytest.MonkeyPatch, windows: tuple[int, ...], masks: int
) -> None:
    model = tiny_model(n_layers=LAYERS, windows=windows)
    made = counted(monkeypatch, Mask, "_to_dense")
    model.body(IDS, document_ids=DOCUMENTS)
    assert len(made) == masks


def test_an_encoder_makes_a_dense_mask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(EncoderConfig(n_layers=LAYERS, n_heads=2, d_model=16), VOCABULARY)
    made = counted(monkeypatch, Mask, "_to_dense")
    encoder(IDS, torch.tensor([3, BLOCK]))
    assert len(made) == 1


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        ({}, 1),
        ({"windows": (4, 0, 4)}, 2),
        ({"attention": SlidingWindowConfig(size=3)}, 1),
    ],
    ids=["softmax", "windows", "sliding window"],
)
def test_a_gpu_makes_a_block_mask_once(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], masks: int
) -> None:
    def run(function: Callable[..., Any], compiles: bool, *args: Any, **given: Any) -> Any:
        assert compiles
        return function(*args, **given)

    def attend(_query: Tensor, _key: Tensor, value: Tensor, **given: Any) -> Tensor:
        used.append(given["block_mask"])
        return value

    used: list[Any] = []
    monkeypatch.setattr(flex, "_run", run)
    monkeypatch.setattr(flex, "flex_attention", attend)
    made = counted(monkeypatch, flex, "create_block_mask")
    model = tiny_model(dtype=torch.float32, n_layers=LAYERS, n_heads=2, d_model=32, **options)
    model.body(on_gpu(IDS), document_ids=DOCUMENTS)
    assert len(used) == LAYERS
    assert len(made) == len({id(mask) for mask in used}) == masks
