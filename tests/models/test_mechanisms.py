"""Any mechanism with any position encoding: it decodes as it reads, or is refused with a reason."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import BigBird
from regard.attention.config import LayerShape, SoftmaxConfig
from regard.attention.feature_maps import RandomFeatures
from regard.attention.kernel_config import EluConfig, FavorPositiveConfig
from regard.attention.score_config import BigBirdConfig
from regard.errors import UnsupportedError
from regard.models.builders import LanguageModel
from regard.models.transformer import Decoder
from regard.positions.config import (
    AlibiConfig,
    InputPositionsConfig,
    LearnedConfig,
    NoPositionsConfig,
    OneHotConfig,
    PositionsConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    SinusoidalConfig,
    T5BiasConfig,
)
from tiny_attentions import ATTENTIONS as EVERY
from tiny_attentions import configured
from tiny_models import BLOCK, VOCABULARY, tiny_config, tiny_model

ATTENTIONS = {
    **{kind: config for kind, config in EVERY.items() if kind != "linformer"},
    "softmax, unscaled": configured("softmax", scaled=False),
    "gated-softmax, by head": configured("gated-softmax", gate="head"),
    "latent, of queries too": configured("latent", d_rope=4, d_query_latent=6),
    "differential, version 1": configured("differential", version=1),
    "top-k, of an indexer": configured("top-k", k=3, indexer_heads=2, d_indexer=5),
    "mamba2, gated": configured("mamba2", output_gate=True),
    "deltanet, negative": configured("deltanet", negative_eigenvalues=True),
}
POSITIONS: dict[str, PositionsConfig] = {
    "learned": LearnedConfig(),
    "learned, concatenated": LearnedConfig(combine="concatenate"),
    "sinusoidal": SinusoidalConfig(),
    "sinusoidal, concatenated": SinusoidalConfig(combine="concatenate", width=6),
    "one-hot": OneHotConfig(),
    "relative-bias": RelativeBiasConfig(),
    "relative-bias, clipped": RelativeBiasConfig(clip=2),
    "shaw-vectors": ShawVectorsConfig(clip=3),
    "t5-bias": T5BiasConfig(buckets=8, max_distance=12),
    "alibi": AlibiConfig(),
    "rotary": RotaryConfig(),
    "none": NoPositionsConfig(),
}
BIASES = {"relative-bias", "relative-bias, clipped", "t5-bias", "alibi"}
FITTING = [
    (attention, positions)
    for attention, positions in product(ATTENTIONS, POSITIONS)
    if (positions not in BIASES or ATTENTIONS[attention].supported.has("bias"))
    and (positions != "shaw-vectors" or ATTENTIONS[attention].supported.has("vectors"))
]
KINDS = {
    "input": [name for name, one in POSITIONS.items() if isinstance(one, InputPositionsConfig)],
    "bias": sorted(BIASES),
}
"""Positions that reach every mechanism in one way: each decodes with one of a kind."""
DECODED = [
    (attention, positions)
    for attention, positions in FITTING
    if all(
        positions not in kind
        or kind.index(positions) == list(ATTENTIONS).index(attention) % len(kind)
        for kind in KINDS.values()
    )
]
IDS = torch.randint(VOCABULARY, (2, BLOCK), generator=torch.Generator().manual_seed(0))


def logits_step_by_step(model: LanguageModel, ids: Tensor) -> Tensor:
    """A prompt of which the second row has but two tokens, then one token after the other."""
    states = model.init_state(2, BLOCK)
    keep = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    logits, states = model.extend(ids[:, :5], states, keep)
    steps = [logits]
    for step in range(BLOCK - 5):
        token = torch.stack([ids[0, 5 + step], ids[1, 2 + step]])
        logits, states = model.extend(token[:, None], states)
        steps.append(logits)
    return torch.stack(steps, 1)


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_it_decodes_as_it_reads(attention: str) -> None:
    for positions in (kind for name, kind in DECODED if name == attention):
        settings: dict[str, Any] = {
            "attention": ATTENTIONS[attention],
            "positions": POSITIONS[positions],
        }
        if ATTENTIONS[attention].supports.kv_heads:
            settings["n_kv_heads"] = 2
        model = tiny_model(**settings)
        assert isinstance(model.body, Decoder)
        for parameter in model.body.layers.parameters():
            parameter.mul_(0.3)  # so that random waves have positive sums
        whole, steps = model(IDS), logits_step_by_step(model, IDS)
        expected = torch.stack([whole[0, 4:], whole[1, 1 : BLOCK - 3]])
        assert float((steps - expected).abs().max()) <= 1e-10, positions


def test_what_does_not_fit_is_refused_when_the_model_is_made() -> None:
    unfit = [pair for pair in product(ATTENTIONS, POSITIONS) if pair not in FITTING]
    assert unfit
    for attention, positions in unfit:
        with pytest.raises(UnsupportedError, match=r"does not support .*; supported by: softmax"):
            tiny_model(attention=ATTENTIONS[attention], positions=POSITIONS[positions])


def draws(model: LanguageModel) -> list[Tensor]:
    modules = (module for module in model.modules() if isinstance(module, RandomFeatures))
    return [module.directions for module in modules]


def test_each_layer_draws_for_itself_and_the_seed_decides() -> None:
    one, again, other = (tiny_model(seed=s, attention=FavorPositiveConfig()) for s in (1, 1, 2))
    assert len(draws(one)) == 2
    assert not torch.equal(*draws(one))
    assert all(map(torch.equal, draws(one), draws(again)))
    assert not any(map(torch.equal, draws(one), draws(other)))


def test_layer_seeds_differ() -> None:
    shape = LayerShape(n_heads=1, n_kv_heads=1, n_value_heads=1, d_head=1, context_length=1)
    shapes = [replace(shape, layer=layer) for layer in range(100)]
    assert len({one.seeded(seed) for seed in range(10) for one in shapes}) == 1000


def tables(model: LanguageModel) -> list[Tensor]:
    big_birds = (module for module in model.modules() if isinstance(module, BigBird))
    return [module.table(4, BLOCK, causal=True, device=IDS.device) for module in big_birds]


def test_random_blocks_are_configuration_and_not_drawn_anew_with_the_weights() -> None:
    """A model that another seed trains on looks where it looked."""
    config = BigBirdConfig(block_size=1, window=1)
    one, two = tables(tiny_model(attention=config, seed=0))
    assert not torch.equal(one, two)
    assert all(map(torch.equal, tables(tiny_model(attention=config, seed=1)), (one, two)))
    other = tables(tiny_model(attention=BigBirdConfig(block_size=1, window=1, seed=1)))
    assert not torch.equal(other[0], one)


@pytest.mark.parametrize("positions", [LearnedConfig(), RotaryConfig()])
def test_a_token_beyond_the_block_is_an_error(positions: PositionsConfig) -> None:
    """Kernel attention has no cache that would be full, but positions end."""
    model = tiny_model(attention=EluConfig(), positions=positions)
    states = model.init_state(2, BLOCK)
    _, states = model.extend(IDS, states)
    with pytest.raises(IndexError):
        model.extend(IDS[:, :1], states)


def test_padding_may_stand_beyond_the_block() -> None:
    model = tiny_model(attention=EluConfig())
    _, states = model.extend(IDS[:, : BLOCK - 1], model.init_state(2, BLOCK))
    keep = torch.tensor([[True, False, False]] * 2)
    logits, _ = model.extend(IDS[:, :3], states, keep)
    assert bool(logits.isfinite().all())


def test_a_mechanism_in_a_file_initializes_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "from regard.attention import Softmax\n\n\n"
        "class Mine(Softmax):\n    name = 'mine'\n\n"
        "    def __init__(self, *, sharp: bool = True) -> None:\n"
        "        super().__init__(scaled=not sharp)\n"
        "        self.own = torch.nn.Linear(2, 2)\n"
        "        torch.nn.init.ones_(self.own.weight)\n"
    )
    mine = configured(f"{file}:Mine", sharp=True)
    model, same = tiny_model(attention=mine), tiny_model(attention=SoftmaxConfig(scaled=False))
    weights = {name: weight for name, weight in model.state_dict().items() if ".own." not in name}
    same.load_state_dict(weights)
    assert torch.equal(model(IDS), same(IDS))
    fresh = dict(LanguageModel(tiny_config(attention=mine), VOCABULARY).named_parameters())
    assert bool((fresh["body.layers.0.self_attention.attention.own.weight"] == 1).all())
