"""Patterns: entries for layers, as data and as text."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.config import BUILT_IN, SoftmaxConfig
from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import DeltaNetConfig, GatedDeltaNetConfig
from regard.attention.score_config import SigmoidConfig
from regard.config import convert, override, parse_toml, to_toml
from regard.errors import UserError
from regard.models.config import DecoderConfig, EncoderDecoderConfig, TransformerConfig
from regard.models.pattern import (
    LayerConfig,
    concise,
    entry_of,
    expand,
    fold,
    from_text,
    period,
    to_text,
)
from regard.models.places import require_places
from regard.positions.config import NoPositionsConfig, RotaryConfig
from regard.runs.recipe import Recipe
from regard.runs.recipes import find_recipe
from regard.toml import to_commented_toml

ROTARY = "model.positions.kind=rotary"
KINDS = st.lists(st.tuples(st.sampled_from(sorted(BUILT_IN)), st.integers(1, 3)), min_size=1)


def changed(*settings: str) -> TransformerConfig:
    model = override(Recipe(), ["model.n_layers=6", *settings]).model
    assert isinstance(model, DecoderConfig)
    return model


def test_the_recipe_of_the_page_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/layers.md").read_text("utf-8")
    file = tmp_path / "recipe.toml"
    file.write_text(page.split("```toml")[1].split("```")[0], "utf-8")
    recipe = find_recipe(str(file))
    require_places(recipe.model)
    assert isinstance(recipe.model, DecoderConfig)
    assert [layer.window for layer in recipe.model.layers] == [0, 0, 0, 64, 0, 0, 0, 0]
    assert recipe.model.layers[4].positions == NoPositionsConfig()


def test_a_summary_names_each_mechanism() -> None:
    assert changed().summary.startswith("6 layers of softmax, ")
    mixed = changed("model.pattern=gated-deltanet*2+softmax+gated-deltanet")
    assert mixed.summary.startswith("6 layers of gated-deltanet and softmax, ")
    inherited = msgspec.structs.replace(
        changed("model.attention.kind=elu"), pattern=(LayerConfig(),)
    )
    assert inherited.summary.startswith("6 layers of elu, ")


@given(KINDS)
def test_a_text_stands_for_entries(kinds: list[tuple[str, int]]) -> None:
    text = "+".join(f"{kind}*{repeat}" if repeat > 1 else kind for kind, repeat in kinds)
    entries = from_text(text)
    assert [(e["attention"]["kind"], e.get("repeat", 1)) for e in entries] == kinds
    assert to_text(entries) == text
    model = override(Recipe(), ["model.n_layers=99", f"model.pattern={text}"])
    assert to_text(parse_toml(to_toml(model), where="here")["model"]["pattern"]) == text


@given(st.lists(st.sampled_from([4, 0, 7]), min_size=1, max_size=9))
def test_folding_undoes_expanding(windows: list[int]) -> None:
    entries = fold([{"window": window} for window in windows])
    assert all(a["window"] != b["window"] for a, b in pairwise(entries))
    assert [one["window"] for one in expand(entries, len(windows))] == windows
    pattern = [LayerConfig(**entry) for entry in entries]
    for layer, window in enumerate(windows):
        assert entry_of(pattern, layer).window == window
    for n in range(1, period(pattern)):  # none is shorter
        assert any(windows[i % n] != window for i, window in enumerate(windows))


def test_a_text_may_have_options() -> None:
    text = "deltanet{output_gate=true,negative_eigenvalues=true}*2+sigmoid{bias=1e+1}+elu"
    first, _, second, third, *_ = changed(f"model.pattern={text}").layers
    assert first.attention == DeltaNetConfig(output_gate=True, negative_eigenvalues=True)
    assert second.attention == SigmoidConfig(bias=10.0)
    assert third.attention == EluConfig()
    entries = from_text(text)
    assert to_text(entries) == text.replace("1e+1", "10.0")
    assert to_text(from_text("sigmoid{bias=10.0}")) == "sigmoid{bias=10.0}"


def test_entries_are_shown_as_they_are_written() -> None:
    """Tables of comparisons listed all options of a mechanism."""
    written = 'model.pattern=[{attention={kind="deltanet",output_gate=true},head_dim=16}]'
    model = override(Recipe(), ["model.n_layers=1", written])
    entries = parse_toml(to_toml(model), where="here")["model"]["pattern"]
    assert len(entries[0]["attention"]) > 2
    attention = {"kind": "deltanet", "output_gate": True}
    assert concise(entries) == [{"head_dim": 16, "attention": attention}]


def test_a_pattern_is_repeated_and_cut() -> None:
    config = changed("model.pattern=gated-deltanet*3+softmax")
    kinds = [type(layer.attention).__name__ for layer in config.layers]
    assert kinds == ["GatedDeltaNetConfig"] * 3 + ["SoftmaxConfig"] + ["GatedDeltaNetConfig"] * 2
    assert not any(layer.pattern for layer in config.layers)


def test_without_a_pattern_all_layers_are_the_model_s() -> None:
    config = changed("model.window=5")
    assert config.layers == [config] * 6


def test_unset_fields_are_the_model_s() -> None:
    entries = (LayerConfig(window=3, d_ff=7), LayerConfig(positions=NoPositionsConfig()))
    rotary = RotaryConfig(base=500.0)
    config = DecoderConfig(pattern=entries, window=9, gated=True, positions=rotary, n_kv_heads=2)
    first, second = config.layers[:2]
    assert (first.window, first.d_ff, first.positions) == (3, 7, rotary)
    assert (second.window, second.d_ff, second.positions) == (9, None, NoPositionsConfig())
    assert first.gated
    assert second.n_kv_heads == 2


def test_one_layer_is_changed() -> None:
    before = "model.pattern=gated-deltanet*2+softmax"
    config = changed(before, ROTARY, "model.layers.4.attention.negative_eigenvalues=true")
    expected = changed(before, ROTARY).layers
    attention = GatedDeltaNetConfig(negative_eigenvalues=True)
    assert [i for i in range(6) if config.layers[i] != expected[i]] == [4]
    assert config.layers[4].attention == attention
    config = changed(ROTARY, "model.layers.0.positions.base=99", "model.attention.scaled=false")
    assert config.layers[0].positions == RotaryConfig(base=99)
    assert all(layer.attention == SoftmaxConfig(scaled=False) for layer in config.layers)


def test_an_entry_is_changed_for_all_its_layers() -> None:
    config = changed("model.pattern=deltanet+softmax", "model.pattern.1.window=4")
    assert [layer.window for layer in config.layers] == [0, 4] * 3


@pytest.mark.parametrize("write", [to_toml, to_commented_toml])
def test_a_pattern_is_written_and_read(write: Any) -> None:
    settings = ["model.n_layers=6", ROTARY, "model.pattern=mamba2*2+softmax"]
    recipe = override(Recipe(), [*settings, "model.pattern.1.positions.kind=none"])
    values = parse_toml(write(recipe), where="here")
    assert values["model"]["pattern"][1]["positions"] == {"kind": "none"}
    assert convert(values, Recipe, where="here") == recipe


def test_parts_of_a_pair_have_patterns_and_cross_attention_that_each_layer_can() -> None:
    settings = ["kind=encoder-decoder", "encoder.pattern=softmax*2+elu", "decoder.n_layers=2"]
    settings += ["decoder.pattern=gated-deltanet+elu"]
    model = override(Recipe(), [f"model.{setting}" for setting in settings]).model
    assert isinstance(model, EncoderDecoderConfig)
    assert [type(layer.cross).__name__ for layer in model.decoder.layers] == [
        "SoftmaxConfig",
        "EluConfig",
    ]
    chosen = override(Recipe(), [*(f"model.{s}" for s in settings), CROSS]).model
    assert isinstance(chosen, EncoderDecoderConfig)
    assert {type(layer.cross).__name__ for layer in chosen.decoder.layers} == {"PolynomialConfig"}


CROSS = "model.decoder.cross_attention.kind=polynomial"


def test_a_bad_pattern_is_a_line() -> None:
    for settings, says in [
        (["pattern=sofmax*3"], "model.pattern[0].attention.kind: sofmax: no such mechanism"),
        (["pattern=softmax*0"], "model.pattern: softmax*0: '0' is no number of layers"),
        (["pattern=softmax*" + "9" * 5000], "is no number of layers"),
        (["pattern=+elu"], "model.pattern: '' in '+elu' is not an entry; write KIND, KIND*3"),
        (["pattern="], "model.pattern: '' in '' is not an entry"),
        (["pattern=elu{x=1"], "'elu{x=1' is not an entry"),
        (["pattern=top-k{k=}"], "isn't TOML"),
        (["pattern=top-k{k=0}"], "model.pattern[0].attention.k: expected an integer >= 1, not 0"),
        (
            ['pattern=top-k{kind="elu"}'],
            "the kind of 'top-k{kind=\"elu\"}' stands before its options",
        ),
        (["pattern=softmax*٣"], "'٣' is no number of layers"),
        (
            ["n_layers=999999999", "layers.0.window=3"],
            "at most 10,000 layers can be set one by one",
        ),
        (
            ["pattern=elu*999999999", "layers.0.window=3"],
            "the pattern has more layers than n_layers",
        ),
        (["pattern=top-k{z=1}"], "model.pattern[0].attention: object contains unknown field `z`"),
        (["pattern=softmax*9"], "model: pattern has 9 layers, and n_layers = 6"),
        (["pattern=3"], "model.pattern: expected a list"),
        (["layers.6.window=1"], "model.layers.6.window: the last entry is layers.5"),
        (
            ["layers.2.positons.base=3"],
            "no section 'positons'; there are: activation, attention, canon",
        ),
        (["layers.2=elu"], "model.layers.2: is a section, not a value"),
        (["layers.2.windo=1"], "did you mean window?"),
        (["pattern.0.window=1"], "model.pattern.0.window: pattern has no entries"),
        (["n_heads.0.window=1"], "n_heads has no entries; leave out .0"),
        (
            ["pattern=elu", "pattern.0.window=-1"],
            "model.pattern[0].window: expected an integer >= 0",
        ),
        (["pattern=elu", "pattern.0.n_kv_heads=3"], "model: pattern[0]: n_kv_heads = 3"),
        (["canon=BA"], "model: canon = 'BA': choose letters of ABCD, in this order"),
        (["canon_width=0"], "model.canon_width: expected an integer >= 1, not 0"),
        (["canon=ABCD", "short_conv=4"], "canon = ABCD and short_conv = 4 both convolve queries"),
        (["canon=B", "layers.2.short_conv=4"], "model: pattern[2]: canon = B and short_conv = 4"),
        (["ngrams=3"], "model.ngrams: is a section, not a value; write model.ngrams.FIELD=VALUE"),
        (["ngrams.longest=1"], "model.ngrams.longest: expected an integer >= 2, not 1"),
        (["ngrams.hashes=3"], "ngrams.hashes = 3 doesn't divide the width 256 of the embeddings"),
        (
            ["value_residual=true", "layers.2.n_kv_heads=2"],
            "pattern[2]: value_residual = true needs the 8 value heads of width 32 of the first",
        ),
        (["layers.2.canon=X"], "model: pattern[2]: canon = 'X': choose letters"),
        (["pattern=elu", "pattern.0.positions.kind=none"], "pattern[0].positions: layers can"),
        (
            ["positions.kind=alibi", "pattern=softmax", "pattern.0.n_heads=2"],
            "pattern[0].n_heads: all layers share the positions that are added to the scores",
        ),
        (["pattern=elu", "pattern.0.n_heads=3"], "model: pattern[0]: n_heads = 3 doesn't divide"),
        (["pattern=elu", "pattern.0.positions.kind=alibi"], "allowed: rotary, none"),
    ]:
        with pytest.raises(UserError) as refused:
            changed(*(f"model.{setting}" for setting in settings))
        assert says in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1
