"""The script that trains the book's live model."""

import sys
from importlib import import_module
from pathlib import Path

import torch

from regard.files import pack_tensors, read_tensors

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
live_model = import_module("live_model")


def test_it_trains_on_sentences_without_formulas() -> None:
    texts = list(live_model.paragraphs())
    assert sum(map(len, texts)) > 50_000
    for text in texts:
        assert not set(text) & set("$=_^{}0123456789")
        assert text[0].isupper()
        assert text[-1] in ".?"


def test_weights_are_rounded_and_metadata_is_kept(tmp_path: Path) -> None:
    (tmp_path / "float32").write_bytes(pack_tensors({"a": torch.tensor([1 / 3])}, {"for": "test"}))
    half = live_model.in_half(tmp_path / "float32")
    (tmp_path / "float16").write_bytes(half)
    assert read_tensors(tmp_path / "float16")["a"] == torch.tensor([1 / 3]).half()
    assert b'"for":"test"' in half
