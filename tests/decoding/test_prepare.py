"""Prepared models: the same numbers as the model itself, from the same tensors."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.profiler import ProfilerActivity, profile

from regard.attention import Softmax, State
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import GatedLinearConfig
from regard.decoding import generate_ids, search_ids
from regard.decoding.prepare import prepare
from regard.decoding.step import _tensors
from regard.models.builders import LanguageModel, SequenceToSequence, make_model
from regard.models.config import EncoderConfig, RecurrentConfig
from regard.models.head_config import LMHeadConfig
from regard.models.layers import Layer
from regard.models.transformer import Decoder
from regard.positions.config import (
    AlibiConfig,
    LearnedConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    SinusoidalConfig,
    T5BiasConfig,
)
from tiny_attentions import ATTENTIONS, STACKS, configured
from tiny_families import FAMILIES
from tiny_models import greedily, tiny_model

PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
NEW = 6
KINDS = (
    *("softmax", "argmax", "bigbird", "sliding-window", "elu", "favor-positive"),
    *("favor-hyperbolic", "gated-linear", "gated-deltanet", "kimi-delta", "rwkv7"),
)
PREPARED = [
    *(ATTENTIONS[kind] for kind in KINDS),
    configured("mamba2", output_gate=True),
    configured("deltanet", negative_eigenvalues=True),
    configured("gated-deltanet-2", output_gate=True),
]
POSITIONS: list[PositionsConfig] = [
    NoPositionsConfig(),
    SinusoidalConfig(),
    RotaryConfig(),
    RelativeBiasConfig(),
    ShawVectorsConfig(),
    T5BiasConfig(),
    AlibiConfig(),
]
MODELS: list[dict[str, Any]] = [
    *({"attention": attention, "positions": RotaryConfig()} for attention in PREPARED),
    *({"positions": positions} for positions in POSITIONS),
    {"qk_norm": True, "norm_type": "rms-norm", "activation": "silu", "gated": True},
    {"parallel_residual": True, "head_dim": 6, "qk_norm": True, "positions": RotaryConfig(dim=2)},
    {"positions": LearnedConfig(offset=2), "scale_embeddings": True},
    *STACKS,
]
DECODERS = [
    name
    for name, config in FAMILIES.items()
    if not isinstance(config, EncoderConfig)
    and not (isinstance(config, RecurrentConfig) and config.bidirectional)
]


@torch.no_grad()
def logits_of_steps(model: Any, prompts: Tensor) -> list[Tensor]:
    """Logits after a prompt and after each of a few tokens, by the states of a model."""
    states, logits = model.init_state(len(prompts), prompts.shape[1] + NEW), []
    score, states = model.extend(prompts, states)
    for step in range(NEW):
        logits.append(score)
        score, states = model.extend(prompts[:, step % 2, None], states)
    return logits


@pytest.mark.parametrize("settings", MODELS, ids=lambda given: str(next(iter(given.values()))))
def test_a_prepared_model_gives_the_numbers_of_the_model_itself(settings: dict[str, Any]) -> None:
    """Bit by bit; and what is decoded, batched, padded or by beams, is what the forward gives."""
    model, prompts = tiny_model(**settings), torch.tensor([[1, 2, 3], [4, 5, 6]])
    for rows in prompts, prompts[:1]:
        both = (logits_of_steps(m, rows) for m in (model, prepare(model)))
        for plain, prepared in zip(*both, strict=True):
            assert torch.equal(plain, prepared)
    expected = [greedily(model, prompt, NEW) for prompt in PROMPTS]
    assert [row.ids for row in generate_ids(model, PROMPTS, max_new_tokens=NEW)] == expected
    beams = search_ids(model, PROMPTS, beams=1, max_new_tokens=NEW)
    assert [best.ids for (best,) in beams] == expected


@pytest.mark.parametrize("family", DECODERS)
def test_every_family_decodes_the_same(family: str) -> None:
    """Bit by bit; and as the model computes whole rows."""
    model = make_model(FAMILIES[family], LMHeadConfig(), 11).double().eval()
    prompts, lengths = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([3, 2])
    generator: Any = model
    if isinstance(model, SequenceToSequence):
        with torch.no_grad():
            generator = model.condition(prompts, lengths)
    both = [torch.stack(logits_of_steps(m, prompts), 1) for m in (generator, prepare(generator))]
    assert torch.equal(*both)
    ids = torch.cat([prompts, *(prompts[:, step % 2, None] for step in range(NEW - 1))], 1)
    with torch.no_grad():
        sources = [prompts, lengths] if isinstance(model, SequenceToSequence) else []
        whole = model(*sources, ids)[:, prompts.shape[1] - 1 :]
    for found in both:
        torch.testing.assert_close(found, whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", DECODERS)
def test_every_family_decodes_the_same_under_autocast(family: str) -> None:
    """Up to rounding in bfloat16; states have the precision of the model's."""
    model = make_model(FAMILIES[family], LMHeadConfig(), 11).eval()
    prompts, lengths = torch.tensor([[1, 2, 3]]), torch.tensor([3])
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        generator: Any = model
        if isinstance(model, SequenceToSequence):
            generator = model.condition(prompts, lengths)
        kinds, logits = [], []
        for each in generator, prepare(generator):
            states = each.init_state(1, 4)
            _, states = each.extend(prompts, states)
            score, states = each.extend(prompts[:, :1], states)
            kinds.append([tensor.dtype for tensor in _tensors(states)])
            logits.append(score)
    assert kinds[0] == kinds[1]
    bound = 4 * torch.finfo(torch.bfloat16).eps * float(logits[0].abs().max())
    torch.testing.assert_close(*logits, rtol=0, atol=bound)


@pytest.mark.parametrize("settings", MODELS, ids=lambda given: str(next(iter(given.values()))))
def test_the_last_hidden_state_is_that_of_all(settings: dict[str, Any]) -> None:
    """Of rows of equal and of unequal length, at first and after other tokens."""
    body = tiny_model(**settings).body
    assert isinstance(body, Decoder)
    ids, real = (
        torch.tensor([[1, 2, 3], [4, 5, 6]]),
        torch.tensor([[True] * 3, [True, False, False]]),
    )
    with torch.no_grad():
        all_states, last_states = (body.init_state(2, 9) for _ in range(2))
        for mask, ends in ((None, [2, 2]), (real, [2, 0]), (None, [2, 2])):
            hidden, all_states = body.extend(ids, all_states, mask)
            last, last_states = body.extend(ids, last_states, mask, last=True)
            expected = hidden[torch.arange(2), torch.tensor(ends)]
            torch.testing.assert_close(last[:, 0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("shape", [(12,), (2, 1, 6), (3, 5, 1), (2, 3, 2**14)], ids=str)
def test_gelu_of_few_and_of_many_numbers(shape: tuple[int, ...], approximate: str) -> None:
    x, gelu = torch.randn(shape), nn.GELU(approximate)
    found = prepare(gelu)(x)
    torch.testing.assert_close(found, gelu(x))
    assert found.is_contiguous()
    torch.testing.assert_close(prepare(gelu)(x[..., ::2]), gelu(x[..., ::2]))


class Zero(Softmax):
    """A custom mechanism whose outputs are zero."""

    def _extend(self, *args: Any, **gates: Any) -> tuple[Tensor, State]:
        out, state = super()._extend(*args, **gates)
        return torch.zeros_like(out), state


class Shaped(nn.Module):
    """A custom layer that relies on rows of tokens."""

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        return x.new_ones(b, n, d)


def test_custom_mechanisms_and_layers_are_used() -> None:
    model = tiny_model(n_layers=1)
    body = model.body
    assert isinstance(body, Decoder)
    layer = body.layers[0]
    assert isinstance(layer, Layer)
    layer.self_attention.attention, layer.feed_forward = Zero(), cast(Any, Shaped())
    (expected,) = generate_ids(model, PROMPTS[:1], max_new_tokens=NEW)
    assert generate_ids(model, PROMPTS, max_new_tokens=NEW)[0] == expected
    layer.self_attention.attention = Softmax()
    layer.self_attention.o_proj.requires_grad_(requires_grad=False).weight.zero_()
    assert generate_ids(model, PROMPTS[:1], max_new_tokens=NEW) == [expected]


def test_tensors_are_shared_and_the_model_stays_as_it_is() -> None:
    model = tiny_model()
    before = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    view = prepare(model)
    assert isinstance(view, LanguageModel)
    assert view.head.weight is model.head.weight
    assert type(model) is LanguageModel
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == before


def test_hooks_are_called() -> None:
    """With the shapes of the model itself: of one token a row, after those of the prompts."""
    model = tiny_model()
    body = model.body
    assert isinstance(body, Decoder)
    hooked, shapes = body.layers[0].get_submodule("feed_forward"), list[torch.Size]()
    hooked.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    for prompts in PROMPTS, PROMPTS[:1]:
        shapes.clear()
        generate_ids(model, prompts, max_new_tokens=NEW)
        assert shapes[1:] == [(len(prompts), 1, body.width)] * (NEW - 1)


def test_hooks_of_recurrent_layers_are_called() -> None:
    model, calls = make_model(FAMILIES["rnn, gru"], LMHeadConfig(), 11), []
    assert isinstance(model, LanguageModel)
    model.body.embedding.register_forward_hook(lambda *_: calls.append(1))
    generate_ids(model, PROMPTS, max_new_tokens=NEW)
    assert len(calls) == NEW


def test_parametrized_weights_are_computed_once() -> None:
    calls = []

    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            calls.append(1)
            return 2 * weight

    model, twice = tiny_model(), tiny_model()
    with torch.no_grad():
        twice.head.weight.mul_(2)
    parametrize.register_parametrization(model.head, "weight", Doubled())
    calls.clear()
    found = generate_ids(model, PROMPTS, max_new_tokens=NEW)
    assert found == generate_ids(twice, PROMPTS, max_new_tokens=NEW)
    assert len(calls) == 1


def test_autocast_finds_the_weights_of_products_converted() -> None:
    """In inference mode it doesn't keep them."""
    layer, x = nn.Linear(5, 3), torch.randn(2, 5)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        prepared = prepare(layer)
        assert prepared.weight.dtype == torch.bfloat16
        assert torch.equal(prepared(x), layer(x))
    assert layer.weight.dtype == torch.float32


def test_keys_and_values_are_kept_in_the_precision_of_products() -> None:
    """And what is decoded with them is what the forward gives, within that precision."""
    model, ids = tiny_model().float(), torch.tensor([[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1]])
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        prepared = prepare(model)
        logits, states = prepared.extend(ids[:, :3], prepared.init_state(2, 7))
        assert states.layers[0].keys.dtype == torch.bfloat16
        found = [logits]
        for token in ids[:, 3:].split(1, 1):
            logits, states = prepared.extend(token, states)
            found.append(logits)
        expected = model(ids)[:, 2:]
    eps = torch.finfo(torch.bfloat16).eps
    scale = float(expected.abs().max())
    torch.testing.assert_close(torch.stack(found, 1), expected, rtol=0, atol=8 * eps * scale)


def operators(settings: dict[str, Any], n_layers: int, new: int) -> int:
    """Operators for so many new tokens, with those inside others: each takes its microsecond."""
    model = tiny_model(n_layers=n_layers, **settings)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        generate_ids(model, [[1, 2, 3]], max_new_tokens=new)
    return sum(event.name.startswith("aten::") for event in recorded.events())


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 107), ({"attention": EluConfig()}, 134), ({"attention": GatedLinearConfig()}, 154)],
    ids=["softmax", "elu", "gated-linear"],
)
def test_a_layer_takes_few_operators_for_a_token(settings: dict[str, Any], most: int) -> None:
    """Counted by what another layer and four more tokens add: time is for the benchmarks."""
    deep, shallow = (
        operators(settings, n_layers, 8) - operators(settings, n_layers, 4) for n_layers in (2, 1)
    )
    assert deep - shallow <= 4 * most


def test_what_is_no_module_stays_as_it_is() -> None:
    model = object()
    assert prepare(model) is model
