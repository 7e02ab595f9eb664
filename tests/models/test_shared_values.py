"""Value residuals and value embeddings against their formulas."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.models.builders import LanguageModel
from regard.models.pattern import LayerConfig
from regard.positions.config import RotaryConfig
from tiny_models import VOCABULARY, tiny_config, tiny_model
from tiny_recurrent import close

IDS = torch.arange(9)[None] % VOCABULARY
OPTIONS: list[dict[str, Any]] = [
    {},
    {"positions": RotaryConfig()},
    {"n_kv_heads": 2, "canon": "ABCD"},
    {"attention": GatedDeltaNetConfig(), "short_conv": 3},
]


@torch.no_grad()
@pytest.mark.parametrize("options", OPTIONS)
def test_value_embeddings_are_added_to_the_values_of_their_layers(options: dict[str, Any]) -> None:
    pattern = (LayerConfig(value_embedding=True), LayerConfig())
    model = tiny_model(n_layers=3, pattern=pattern, **options)
    tables, ids = model.body.value_embeddings, IDS
    assert isinstance(tables, nn.ModuleDict)
    assert [*tables] == ["0", "2"]
    seen = values_of(model, ids)
    for table in tables.parameters():
        table.zero_()
    without = values_of(model, ids)
    model = tiny_model(n_layers=3, pattern=pattern, **options)
    vectors = model.body.get_submodule("value_embeddings.0")(ids)
    heads = vectors.unflatten(-1, (seen[0].shape[1], -1)).transpose(1, 2)
    assert close(seen[0] - without[0], heads)


def values_of(model: LanguageModel, ids: Tensor) -> list[Tensor]:
    found: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Tensor, ...], __: Tensor) -> None:
        found.append(given[2])

    layers: Any = model.body.layers
    handles = [layer.self_attention.attention.register_forward_hook(note) for layer in layers]
    model(ids)
    for handle in handles:
        handle.remove()
    return found


@torch.no_grad()
@pytest.mark.parametrize("options", OPTIONS)
def test_a_value_residual_mixes_the_values_of_the_first_layer(options: dict[str, Any]) -> None:
    """λ_1 v_1 + λ_2 v_l + E_l[t]: with weights (0, 1), the values are those of the layer alone."""
    model = tiny_model(n_layers=2, value_residual=True, value_embedding=True, **options)
    layers: Any = model.body.layers
    weights, tables = layers[1].self_attention.mixture.weights, model.body.value_embeddings
    assert isinstance(tables, nn.ModuleDict)
    assert layers[0].self_attention.mixture.weights is None
    mixed = values_of(model, IDS)
    weights.copy_(torch.tensor([0.0, 1.0]))
    alone = values_of(model, IDS)
    assert close(mixed[0], alone[0])
    first, second = (
        value - tables[str(i)](IDS).unflatten(-1, (value.shape[1], -1)).transpose(1, 2)
        for i, value in enumerate(alone)
    )
    weights.copy_(torch.tensor([2.0, 3.0]))
    assert close(values_of(model, IDS)[1] - alone[1], 2 * first + 2 * second)


def test_parameters_are_two_weights_for_each_later_layer_and_the_tables() -> None:
    pattern = (LayerConfig(value_embedding=True), LayerConfig(value_residual=False), LayerConfig())
    model = tiny_model(n_layers=6, pattern=pattern, value_residual=True)
    sizes = [sum(p.numel() for p in one.parameters()) for one in (model, tiny_model(n_layers=6))]
    assert sizes[0] - sizes[1] == 2 * VOCABULARY * 16 + 2 * 3
    fresh = LanguageModel(tiny_config(value_residual=True), VOCABULARY)
    layers: Any = fresh.body.layers
    assert layers[1].self_attention.mixture.weights.tolist() == [0.5, 0.5]
