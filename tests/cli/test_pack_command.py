"""The command `regard pack`, and training on what it writes."""

import json
from pathlib import Path

import pytest

from tiny import MODEL, STEPS, Command, refused, succeeded

PACK = ("pack", "text.txt", "--out", "packed", "--jobs", "1", "--tokenizer", "characters")
MODEL_OF_PACKED = [*MODEL[1:], *STEPS]


def test_pack_prints_what_it_wrote(regard: Command) -> None:
    outcome = succeeded(regard(*PACK, "--validation", "0.25", "--json", "facts.json"))
    assert "training documents: 6" in outcome.out
    assert "validation documents: 2" in outcome.out
    assert "Packed corpus: packed" in outcome.out
    facts = json.loads(Path("facts.json").read_text())
    assert facts["training_documents"] == 6
    assert facts["documents"] == "lines"
    again = succeeded(regard(*PACK, "--validation", "0.25"))
    assert not again.new
    assert not again.changed


@pytest.mark.parametrize("start", [["pretrain"], ["train", "text"]])
def test_a_packed_corpus_trains(regard: Command, start: list[str]) -> None:
    succeeded(regard(*PACK, "--validation", "0.25"))
    arguments = [*start, "packed", "--out", "new", *MODEL_OF_PACKED, "--device", "cpu"]
    outcome = succeeded(regard(*arguments))
    assert "training documents: 6" in outcome.out
    assert Path("new/model.safetensors").exists()
    refused(regard(*arguments), "holds a run")
    succeeded(regard(*arguments, "--resume"))
