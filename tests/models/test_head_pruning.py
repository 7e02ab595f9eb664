"""Heads that are removed: as if they were zero, in every mechanism and family."""

from typing import cast

import msgspec
import pytest
import torch

from regard.attention.config import AttentionConfig, config_type
from regard.attention.score_config import BigBirdConfig
from regard.edits.activations import text_inputs
from regard.edits.head_importance import group_layers, scaled
from regard.edits.places import intercept_places
from regard.errors import UnsupportedError
from regard.models.builders import SequenceToSequence, make_model
from regard.models.config import (
    DecoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_pruning import Kept, copy_kept, groups_of, pruned_config
from regard.models.pattern import LayerConfig
from regard.positions.config import AlibiConfig, RotaryConfig
from regard.runs.run import Run
from tiny_edited import MECHANISMS, family_run, mechanism_run, off, texts_of, tiny_run
from tiny_families import FAMILIES, SIZES

ROUNDING = 1e-12


def check(run: Run, kept: Kept) -> None:
    """The outputs of the pruned model are those of the whole one with the other heads at zero."""
    config = pruned_config(run.recipe.model, kept)
    model = make_model(config, run.recipe.head, run.tokenizer.size).double().eval()
    copy_kept(run.model, model, kept)
    factors = {
        place: torch.zeros(1, layer.groups).index_fill(1, torch.tensor(kept[layer.name]), 1)
        for place, layer in group_layers(run.model).items()
    }
    inputs, *_ = text_inputs(run, *texts_of(run))
    with torch.no_grad(), intercept_places(run.model, scaled(factors)):
        expected = run.model.body(*inputs)
    assert off(expected, run.model.body(*inputs)) > ROUNDING
    assert off(model.body(*inputs), expected) <= ROUNDING
    sizes = groups_of(model)
    assert sizes == {name: len(groups) for name, groups in kept.items()}


@pytest.mark.parametrize("kind", [kind for kind in MECHANISMS if kind != "bigbird"])
def test_a_group_of_one_layer_is_removed_from_every_mechanism(kind: str) -> None:
    config = cast("type[AttentionConfig]", config_type(kind.partition(",")[0]))
    shared = config.supports.kv_heads
    run = mechanism_run(kind, **({"n_heads": 4, "n_kv_heads": 2} if shared else {}))
    first, second = groups_of(run.model)
    check(run, {first: [1], second: [0, 1]})


def test_values_of_several_heads_share_a_key() -> None:
    run = mechanism_run("gated-deltanet", n_heads=4, n_kv_heads=2, n_value_heads=8, short_conv=2)
    check(run, {name: [1] for name in groups_of(run.model)})
    assert pruned_config(run.recipe.model, {n: [1] for n in groups_of(run.model)}) == (
        msgspec.structs.replace(
            run.recipe.model, n_heads=2, n_kv_heads=1, n_value_heads=4, head_dim=2
        )
    ), "layers that stay alike need no pattern"


@pytest.mark.parametrize(
    "family", ["decoder, canon", "decoder, hybrid", "encoder", "decoder, tied"]
)
def test_layers_of_every_family_lose_heads(family: str) -> None:
    run = family_run(family)
    kept = {name: [0] for name in groups_of(run.model)}
    check(run, kept)


def test_values_from_tables_lose_the_channels_of_heads() -> None:
    config = DecoderConfig(**SIZES, value_embedding=True, positions=RotaryConfig(), qk_norm=True)
    run = tiny_run(config)
    check(run, {"body.layers.0.self_attention": [0, 1], "body.layers.1.self_attention": [1]})


def test_a_decoder_layer_loses_heads_for_its_source_and_itself() -> None:
    decoder = TargetConfig(**SIZES | {"n_heads": 4})
    run = tiny_run(EncoderDecoderConfig(encoder=TransformerConfig(**SIZES), decoder=decoder))
    assert isinstance(run.model, SequenceToSequence)
    kept = {name: [1, 2] if "decoder" in name else [1] for name in groups_of(run.model)}
    kept["body.decoder.layers.0.cross_attention"] = [0, 3]
    check(run, kept)


REFUSED: dict[str, tuple[ModelConfig, str]] = {
    "alibi": (DecoderConfig(**SIZES, positions=AlibiConfig()), "positions.kind=alibi: all layers"),
    "bigbird": (
        DecoderConfig(**SIZES, attention=BigBirdConfig()),
        "attention.kind=bigbird: random blocks",
    ),
    "value residual": (DecoderConfig(**SIZES, value_residual=True), "value_residual = true"),
    "perceiver": (FAMILIES["perceiver"], "model.kind=perceiver: has no layers of different"),
    "a layer alone": (
        DecoderConfig(**SIZES, pattern=(LayerConfig(value_residual=True),)),
        "value_residual = true",
    ),
}


@pytest.mark.parametrize(("config", "message"), REFUSED.values(), ids=REFUSED)
def test_heads_that_layers_share_stay(config: ModelConfig, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        pruned_config(config, {})
    assert "\n" not in str(caught.value)
