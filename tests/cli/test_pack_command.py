"""The command `regard pack`, and training on what it writes."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tiny import MODEL, STEPS, Command, refused, succeeded

PACK = ("pack", "text.txt", "--out", "packed", "--jobs", "1", "--tokenizer", "characters")
MODEL_OF_PACKED = [*MODEL[1:], *STEPS]


@pytest.fixture
def packed(regard: Command) -> Path:
    succeeded(regard(*PACK, "--validation", "0.25"))
    return Path("packed")


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
def test_a_packed_corpus_trains(regard: Command, packed: Path, start: list[str]) -> None:
    arguments = [*start, str(packed), "--out", "new", *MODEL_OF_PACKED, "--device", "cpu"]
    outcome = succeeded(regard(*arguments))
    assert "training documents: 6" in outcome.out
    assert Path("new/model.safetensors").exists()
    refused(regard(*arguments), "holds a run")
    succeeded(regard(*arguments, "--resume"))


def test_wrong_input_is_one_line(regard: Command) -> None:
    for arguments, says in [
        (["pack", "--out", "new"], "CORPUS"),
        (["pack", "text.txt"], "--out"),
        (["pack", "none.txt", "--out", "new"], "none.txt: no such file"),
        (["pack", "text.txt", "--out", "pairs.tsv"], "pairs.tsv: exists and holds something else"),
        (["pack", "text.txt", "--out", "new", "--jobs", "0"], "--jobs"),
        (["pack", "text.txt", "--out", "new", "--documents", "records"], "text.txt:1"),
        (["pretrain", "text.txt", "--out", "new", "--mix", "a=1"], "--mix: is for packed corpora"),
        (["train", "casing", "--out", "new", "--mix", "a=1"], "--mix: is for `train text`"),
    ]:
        refused(regard(*arguments), says)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def exceed(path: Path) -> None:
    ids = np.fromfile(path, "<u2")
    ids[0] = 999
    ids.tofile(path)


@pytest.mark.parametrize(
    ("damage", "says"), [(cut, "training.bin: has"), (exceed, "holds the id 999")]
)
def test_a_damaged_corpus_starts_no_training(
    regard: Command, packed: Path, damage: object, says: str
) -> None:
    assert callable(damage)
    damage(packed / "training.bin")
    refused(regard("pretrain", str(packed), "--out", "new", *MODEL_OF_PACKED), says)


def test_another_tokenizer_is_refused(regard: Command, packed: Path) -> None:
    succeeded(regard("pack", "pairs.tsv", "--out", "other", "--jobs", "1"))
    arguments = ["pretrain", str(packed), "--out", "new", "--tokenizer", "other"]
    refused(regard(*arguments, *MODEL_OF_PACKED), "was packed with another tokenizer")
    same = ["pack", "pairs.tsv", "--out", "third", "--jobs", "1", "--tokenizer", str(packed)]
    refused(regard(*same), "pairs.tsv:1: the vocabulary has no")


def test_a_full_disk_is_one_line(regard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        outcome = regard(*PACK)
    assert outcome.code == 2
    assert outcome.err == (
        "regard: packed: the disk is full; free space and repeat the command, which continues "
        "from what is written\n"
    )
    assert not Path("packed").exists()
    succeeded(regard(*PACK))
