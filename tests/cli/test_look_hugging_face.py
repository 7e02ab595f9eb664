"""regard look and regard head-scores on models of Hugging Face."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from regard import edits
from tiny import Command, refused, succeeded
from tiny_explored import tiny_folder

TEXT = "Ada was born"


@pytest.fixture
def bert(folder: Path) -> str:
    return f"hf:{tiny_folder(folder / 'bert', 'bert')}"


def test_models_stand_side_by_side(regard: Command, folder: Path, bert: str) -> None:
    other = f"hf:{tiny_folder(folder / 'gpt2', 'gpt2')}"
    flags = ("--compare", other, "--compare-untrained", "--compare-text", "in Rome")
    succeeded(regard("look", bert, TEXT, *flags, "--detail", "1.2"))
    page = (folder / "look.html").read_text(encoding="utf-8")
    assert page.count('"maps":') == 4
    assert '"name":"gpt2"' in page
    assert '"name":"bert, untrained"' in page


def test_edits_and_effects_are_those_of_the_imported_run(regard: Command, folder: Path) -> None:
    model = tiny_folder(folder / "gpt2", "gpt2")
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(model)
    file = folder / "edit.toml"
    file.write_text(edits.zero("decoder.1.heads.0", at="Ada").to_toml())
    succeeded(regard("look", f"hf:{model}", TEXT, "--edit", file, "--compare-edit"))
    page = (folder / "look.html").read_text(encoding="utf-8")
    assert '"name":"gpt2, edited"' in page
    assert '"name":"gpt2"' in page
    pairs = f"clean\tcorrupt\tright\twrong\n{TEXT}\tIda was born\tx\ty\n"
    (folder / "pairs.tsv").write_text(pairs)
    found = succeeded(regard("effects", f"hf:{model}", "pairs.tsv", "--controls", "2"))
    assert "decoder.1.heads.3" in found.out
    found = succeeded(regard("paths", f"hf:{model}", "pairs.tsv", "--senders", "layers"))
    assert "decoder.1.feedforward" in found.out


def test_patterns_are_listed_of_the_model_and_of_its_like_untrained(
    regard: Command, folder: Path, bert: str
) -> None:
    entropies = []
    for flags in ((), ("--untrained",)):
        outcome = succeeded(regard("head-scores", bert, TEXT, "--json", "found.json", *flags))
        heads = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        assert len(heads) == 8
        entropies.append(sum(head["entropy"] for head in heads) / 8)
        assert f"share of uniform: {entropies[-1]:.3f}" in outcome.out
    assert entropies[0] < 0.9
    assert entropies[1] >= 0.95


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("command", ["look", "head-scores"])
def test_what_cannot_be_opened_is_refused_in_one_line(
    command: str, regard: Command, folder: Path
) -> None:
    refused(regard(command, "hf:nowhere", TEXT), "hf:nowhere: is no folder", "--download")
    refused(regard(command, f"hf:{folder}", TEXT), "no config.json")
    refused(regard(command, "hf:", TEXT), "hf:: ")
    refused(regard("look", "nowhere", TEXT), "is not a run folder")
