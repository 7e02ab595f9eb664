"""Models in GGUF files that can't be read; one that can is in studies/trained_models."""

import sys
from pathlib import Path
from threading import Event, Thread

import pytest
from transformers.utils import logging

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


def test_two_threads_leave_the_messages_of_transformers_as_they_were() -> None:
    """Each restores what it found, so the second must not begin within the first."""
    level, begun, may_end = logging.get_verbosity(), Event(), Event()

    def second() -> None:
        with loading.quiet():
            begun.set()
            may_end.wait(60)

    thread = Thread(target=second)
    logging.set_verbosity_info()
    info = logging.get_verbosity()
    try:
        with loading.quiet():
            thread.start()
            assert not begun.wait(0.2)
        assert begun.wait(60)
        may_end.set()
        thread.join(60)
        assert logging.get_verbosity() == info
    finally:
        may_end.set()
        logging.set_verbosity(level)
