"""The files of a run for transformers say what config.toml and the tokenizer say."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.config import override
from regard.runs.recipes import RECIPES
from regard.runs.transformers_files import transformers_files
from regard.text.tokenizer import train_tokenizer
from tiny import MODEL


def tables(recipe: str, settings: Sequence[str]) -> dict[str, Any]:
    chosen = override(RECIPES[recipe], ["tokenizer.kind=characters", *settings])
    files = transformers_files(chosen, train_tokenizer(chosen.tokenizer, ["abc"]))
    assert files.pop("modeling_regard.py")
    return {name: json.loads(content) for name, content in files.items()}


def test_a_language_model_has_sizes_and_special_ids() -> None:
    found = tables("default", MODEL)
    assert found["config.json"] == {
        "model_type": "regard",
        "vocab_size": 5,
        "max_position_embeddings": 48,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "is_encoder_decoder": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "auto_map": {
            "AutoConfig": "modeling_regard.RegardConfig",
            "AutoModelForCausalLM": "modeling_regard.RegardForCausalLM",
        },
    }
    assert found["generation_config.json"]["eos_token_id"] == [1]


def test_a_classifier_has_labels_and_generates_nothing() -> None:
    found = tables("classification", [*MODEL, 'head.labels=["no","yes"]'])
    assert set(found) == {"config.json"}
    assert found["config.json"]["id2label"] == {"0": "no", "1": "yes"}
    assert found["config.json"]["label2id"] == {"no": 0, "yes": 1}


@pytest.mark.parametrize("kind", ["encoder-decoder", "rnn-encoder-decoder"])
def test_a_target_begins_as_the_template_says(kind: str) -> None:
    begin = ["template.target='{bos}{target}{eos}'"]
    for settings, forced in ([], None), (begin, 1):
        found = tables("casing", [f"model.kind={kind}", *settings])
        assert found["config.json"]["is_encoder_decoder"]
        assert found["config.json"]["decoder_start_token_id"] == 1
        assert found["generation_config.json"].get("forced_bos_token_id") == forced


@pytest.mark.parametrize("kind", ["rnn", "fixed-window"])
def test_models_without_heads_or_layers_have_no_such_field(kind: str) -> None:
    found = tables("default", [f"model.kind={kind}"])
    assert "num_attention_heads" not in found["config.json"]


@pytest.mark.parametrize(
    ("recipe", "settings", "auto_class"),
    [
        ("casing", [], "AutoModelForSeq2SeqLM"),
        ("masked", [], "AutoModelForMaskedLM"),
        ("classification", ['head.labels=["no","yes"]'], "AutoModelForSequenceClassification"),
        ("tagging", ['head.labels=["no","yes"]'], "AutoModelForTokenClassification"),
        ("retrieval", [], None),
    ],
)
def test_a_run_names_the_class_that_loads_it(
    recipe: str, settings: list[str], auto_class: str | None
) -> None:
    named = tables(recipe, settings)["config.json"]["auto_map"]
    assert set(named) == {"AutoConfig", *filter(None, [auto_class])}


def test_a_run_has_all_files(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    expected = {"config.json", "generation_config.json", "modeling_regard.py", "config.toml"}
    assert expected <= names
