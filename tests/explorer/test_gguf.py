"""Models in GGUF files that can't be read; one that can is in studies/trained_models."""

import sys
from pathlib import Path

import pytest

from regard.errors import UserError
from regard.explorer.huggingface import loading
from regard.explorer.huggingface.adapter import HuggingFaceModel


def test_a_broken_file_is_refused_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, or not")
    with pytest.raises(UserError, match=r"^/.*broken\.gguf: ") as refused:
        HuggingFaceModel.load(broken)
    assert len(str(refused.value).splitlines()) == 1


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(
        UserError, match=r"model\.gguf: needs gguf, .*pip install 'regard\[gguf\]'$"
    ):
        HuggingFaceModel.load(tmp_path / "model.gguf")


def test_another_file_or_a_folder_of_that_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").mkdir()
    assert loading.gguf_file(tmp_path / "model.gguf") is None
    assert loading.gguf_file(tmp_path / "missing.gguf") is None
    assert loading.gguf_file("gpt2") is None
