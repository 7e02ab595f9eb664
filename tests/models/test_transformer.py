"""The Transformer: its formula, its size, its beginnings, and logits that a cache can't change."""

from math import erf, log, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import reference
from regard.dropout import Dropout
from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.positions.config import LearnedConfig, NoPositionsConfig, RotaryConfig
from tiny_models import BLOCK, VOCABULARY, tiny_config, tiny_model

COURSE = DecoderConfig(
    context_length=128, n_layers=4, n_heads=8, d_model=256, positions=LearnedConfig()
)
VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {"positions": LearnedConfig()},
    "rotary": {"positions": RotaryConfig(base=50.0)},
    "no positions": {"positions": NoPositionsConfig(), "activation": "relu"},
    "shared keys": {"positions": RotaryConfig(), "n_kv_heads": 2, "activation": "relu2"},
    "one key head, tied": {"n_kv_heads": 1, "tie_head": True, "d_ff": 24},
}
ALL_VARIANTS = pytest.mark.parametrize("variant", VARIANTS)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def fresh(config: DecoderConfig, vocabulary: int) -> LanguageModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LanguageModel(config, vocabulary)


# The formula


def by_definition(model: LanguageModel, config: DecoderConfig, text: list[int]) -> Tensor:
    """Logits of one text in float64, written out from the formulas."""
    weights = {name: value.double() for name, value in model.state_dict().items()}
    n, heads, kv_heads, d = len(text), config.n_heads, config.kv_heads, config.d_head
    causal = torch.ones(1, heads, n, n).tril().bool()

    def linear(name: str, x: Tensor) -> Tensor:
        product: Tensor = x @ weights[f"{name}.weight"].T
        return product.add(weights.get(f"{name}.bias", torch.zeros(())))

    def normalized(name: str, x: Tensor) -> Tensor:
        centered = x - x.mean(-1, keepdim=True)
        unit = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        scaled: Tensor = unit * weights[f"{name}.weight"]
        return scaled.add(weights[f"{name}.bias"])

    def turned(x: Tensor) -> Tensor:
        if not isinstance(config.positions, RotaryConfig):
            return x
        numbers = torch.complex(x[..., : d // 2], x[..., d // 2 :])
        rates = [config.positions.base ** (-2 * i / d) for i in range(d // 2)]
        angles = torch.arange(n)[:, None] * torch.tensor(rates, dtype=torch.float64)
        product = numbers * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([product.real, product.imag], -1)

    def attended(name: str, x: Tensor) -> Tensor:
        projected = linear(f"{name}.qkv_proj", x).view(n, -1, d).transpose(0, 1)[None]
        query, key = turned(projected[:, :heads]), turned(projected[:, heads : heads + kv_heads])
        value = projected[:, heads + kv_heads :]
        out = reference.gather(reference.softmax(query, key, causal), value)
        return linear(f"{name}.o_proj", out[0].transpose(0, 1).reshape(n, -1))

    x = weights["body.embedding.weight"][text]
    if isinstance(config.positions, LearnedConfig):
        x = x + weights["body.absolute.vectors"][:n]
    for layer in (f"body.layers.{i}" for i in range(config.n_layers)):
        x = x + attended(f"{layer}.self_attention", normalized(f"{layer}.norm_attention", x))
        wide = linear(f"{layer}.feed_forward.up_proj", normalized(f"{layer}.norm_feed_forward", x))
        wide = wide.clone().apply_(lambda z: ACTIVATIONS[config.activation](z))
        x = x + linear(f"{layer}.feed_forward.down_proj", wide)
    return linear("head", normalized("body.norm", x))


ACTIVATIONS = {
    "gelu": lambda z: z * (1 + erf(z / sqrt(2))) / 2,
    "relu": lambda z: max(z, 0.0),
    "relu2": lambda z: max(z, 0.0) ** 2,
}


@ALL_VARIANTS
@torch.no_grad()
def test_it_is_the_formula(variant: str) -> None:
    text = [3, 1, 4, 1, 5, 9, 2, 6]
    model, config = tiny_model(**VARIANTS[variant]), tiny_config(**VARIANTS[variant])
    logits, expected = model(torch.tensor([text]))[0], by_definition(model, config, text)
    # Two layers of half a dozen steps, each summing up to 64 rounded products.
    bound = 1024 * torch.finfo(torch.float64).eps * float(expected.abs().max())
    assert float((logits - expected).abs().max()) <= bound


# Its size and its beginning


def test_the_course_s_model_has_its_number_of_parameters() -> None:
    assert parameters(fresh(COURSE, 256)) == 3_323_392


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"tie_head": True}, -VOCABULARY * 16),
        ({"positions": RotaryConfig()}, -BLOCK * 16),
        ({"positions": NoPositionsConfig()}, -BLOCK * 16),
        # Each of two layers loses the keys and values of three of four heads of width 4.
        ({"n_kv_heads": 1}, -2 * 2 * 3 * 4 * (16 + 1)),
        # … and gains or loses rows of one matrix, columns of another, and their biases.
        ({"d_ff": 50}, 2 * (50 - 64) * (16 + 16 + 1)),
    ],
    ids=str,
)
def test_each_choice_costs_the_parameters_that_it_must(
    settings: dict[str, Any], difference: int
) -> None:
    plain = parameters(fresh(tiny_config(), VOCABULARY))
    assert parameters(fresh(tiny_config(**settings), VOCABULARY)) == plain + difference


@pytest.mark.parametrize("tied", [False, True])
def test_weights_begin_as_in_gpt_2(tied: bool) -> None:
    model = fresh(DecoderConfig(n_layers=2, tie_head=tied), 256)
    for name, parameter in model.state_dict().items():
        if name.endswith("bias") or "absolute" in name:
            assert not parameter.any(), name
        elif "norm" in name:
            assert bool((parameter == 1).all()), name
        else:
            # Five standard errors of mean and standard deviation.
            error = 5 * 0.02 / parameter.numel() ** 0.5
            assert abs(float(parameter.mean())) <= error, name
            assert abs(float(parameter.std()) - 0.02) <= error / sqrt(2), name


def test_an_untrained_model_knows_nothing() -> None:
    model = fresh(COURSE, 256).eval()
    ids = torch.randint(256, (4, 65), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    # Weights of 0.02 give normalized states of width 256 logits of deviation s = 0.32, which cost
    # s²/2 = 0.05; the mean of 256 such losses is off by 0.02.
    assert abs(float(loss) - log(256) - 0.05) <= 5 * 0.02


# Dropout


def test_dropout_is_off_in_evaluation() -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    wet, dry = tiny_model(dropout=0.5), tiny_model(dropout=0.0)
    wet.load_state_dict(dry.state_dict())
    # Exact: the same operations on the same shapes.
    assert torch.equal(wet(ids), dry(ids))


def test_dropout_is_everywhere_in_training() -> None:
    """Embeddings, attention weights and both branches of each layer."""
    model, ids = tiny_model(dropout=0.5).train(), torch.tensor([[1, 2, 3, 4]])
    calls: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            assert module.p == 0.5
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.allclose(model(ids), model(ids))
    places = ("self_attention.attention.dropout", "dropout_attention", "dropout_feed_forward")
    layers = [f"body.layers.{i}.{place}" for i in (0, 1) for place in places]
    assert calls == ["body.dropout", *layers] * 2


# A cache changes nothing


def test_more_than_the_block_is_refused() -> None:
    model = tiny_model()
    model.init_state(1, BLOCK)
    with pytest.raises(
        ValueError, match=f"{BLOCK + 1} tokens don't fit the model's context length of {BLOCK}"
    ):
        model.init_state(1, BLOCK + 1)


# Compiled


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["learned", "shared keys"])
def test_compiled_without_a_break_it_is_the_same(variant: str) -> None:
    model = tiny_model(**VARIANTS[variant])
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    weights = list(model.parameters())
    results = []
    for run in (compiled, model):
        logits = run(ids)
        results.append([logits, *torch.autograd.grad(logits.logsumexp(-1).sum(), weights)])
    for one, other in zip(*results, strict=True):
        # Sums of a few hundred products, perhaps in another order.
        largest = max(1.0, float(other.detach().abs().max()))
        bound = 1024 * torch.finfo(torch.float64).eps * largest
        assert float((one - other).detach().abs().max()) <= bound
