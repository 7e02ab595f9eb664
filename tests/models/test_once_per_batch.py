"""What layers share: masks are prepared once for a batch, and a GPU stops once for all of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from pretended_gpu import counted_stops, on_gpu
from regard.attention import Mask, flex
from regard.attention.config import AttentionConfig, SoftmaxConfig
from regard.attention.kernel_config import EluConfig, FourierConfig
from regard.attention.recurrent_config import Mamba2Config
from regard.attention.score_config import SlidingWindowConfig
from regard.attention.state import Memory
from regard.decoding.prepare import prepare
from regard.errors import NormalizerError
from regard.models.builders import LanguageModel
from regard.models.config import EncoderConfig, TargetConfig, TransformerConfig
from regard.models.pattern import LayerConfig
from regard.models.transformer import Decoder, Encoder
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
    pattern = tuple(LayerConfig(window=size) for size in windows)
    model = tiny_model(n_layers=LAYERS, pattern=pattern)
    made = counted(monkeypatch, Mask, "_to_dense")
    model.body(IDS, document_ids=DOCUMENTS)
    assert len(made) == masks


def test_an_encoder_makes_a_dense_mask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(EncoderConfig(n_layers=LAYERS, n_heads=2, d_model=16), VOCABULARY)
    made = counted(monkeypatch, Mask, "_to_dense")
    encoder(IDS, torch.tensor([3, BLOCK]))
    assert len(made) == 1


@torch.no_grad()
@pytest.mark.parametrize("attention", [SoftmaxConfig(), EluConfig()], ids=["softmax", "elu"])
def test_cross_attention_prepares_the_padding_of_a_source_once(
    monkeypatch: pytest.MonkeyPatch, attention: AttentionConfig
) -> None:
    config = TargetConfig(n_layers=LAYERS, n_heads=2, d_model=16, attention=attention)
    decoder = Decoder(config, VOCABULARY, source=TransformerConfig(n_heads=2, d_model=8))
    memories = decoder.encode_memory(torch.randn(2, 5, 8), torch.tensor([3, 5]))
    assert len({id(memory.mask) for memory in memories if isinstance(memory, Memory)}) <= 1
    made = counted(monkeypatch, Mask, "_to_dense")
    decoder(IDS, memories=memories)
    of_sources = [mask for mask in made if mask.shape[-1] == 5]
    assert len(of_sources) == (1 if isinstance(attention, SoftmaxConfig) else 0)
    arange = counted(monkeypatch, torch, "arange")
    decoder.encode_memory(torch.randn(2, 5, 8), torch.tensor([3, 5]))
    assert len(arange) == 1


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        ({}, 1),
        ({"pattern": (LayerConfig(window=4), LayerConfig(window=0), LayerConfig(window=4))}, 2),
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


def kernel_model() -> LanguageModel:
    return tiny_model(n_layers=LAYERS, attention=EluConfig())


def test_a_cpu_stops_for_the_normalizers_of_each_layer() -> None:
    model = kernel_model()
    with counted_stops() as stops:
        model.body(IDS)
    assert stops == ["_local_scalar_dense"] * LAYERS


@pytest.mark.parametrize(
    ("attention", "documents", "expected"),
    [
        (SoftmaxConfig(), False, 0),
        (EluConfig(), False, 1),  # for the normalizers of all layers
        (EluConfig(), True, 2),
        (Mamba2Config(), True, 1),
    ],
    ids=str,
)
def test_a_gpu_stops_once_for_all_layers(
    attention: AttentionConfig, documents: bool, expected: int
) -> None:
    model = tiny_model(n_layers=LAYERS, attention=attention)
    given = {"document_ids": on_gpu(DOCUMENTS)} if documents else {}
    with counted_stops() as stops:
        model.body(on_gpu(IDS), **given)
    assert stops == ["tolist"] * expected


@pytest.mark.parametrize("prepared", [False, True])
def test_a_gpu_stops_once_for_a_decoded_token(prepared: bool) -> None:
    model = prepare(kernel_model()) if prepared else kernel_model()
    with torch.inference_mode(), counted_stops() as stops:
        _, states = model.extend(on_gpu(IDS[:, :4]), model.init_state(2, 8))
        model.extend(on_gpu(IDS[:, 4:5]), states)
    assert stops == ["tolist"] * 2


def test_a_prompt_of_unequal_rows_stops_a_gpu_once_for_each_cache() -> None:
    model, mask = tiny_model(n_layers=LAYERS), torch.arange(4) < torch.tensor([[2], [4]])
    with torch.inference_mode(), counted_stops() as stops:
        model.extend(on_gpu(IDS[:, :4]), model.init_state(2, 8), on_gpu(mask))
    assert stops == ["tolist"] * LAYERS


def test_compiled_layers_that_count_are_one_graph() -> None:
    torch.compiler.reset()
    model, graphs = kernel_model(), CompileCounter()
    torch.compile(model.body, backend=graphs, fullgraph=True)(IDS)
    assert graphs.frame_count == 1


@pytest.mark.parametrize("prepared", [False, True])
def test_a_gpu_raises_in_evaluation_and_decoding(prepared: bool) -> None:
    model = tiny_model(n_layers=LAYERS, attention=FourierConfig())
    with pytest.raises(
        NormalizerError, match=r"in layers\.\d\.self_attention\.attention, the weights"
    ):
        model.body(on_gpu(IDS))
    model = prepare(model) if prepared else model
    with torch.inference_mode(), pytest.raises(NormalizerError, match=r"in layers\.\d"):
        model.extend(on_gpu(IDS), model.init_state(2, BLOCK))
