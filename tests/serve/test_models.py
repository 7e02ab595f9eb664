"""Models in memory: few, and told about in one line when they fail."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from regard.errors import UserError
from regard.explorer.adapters import Adapter
from regard.runs.run import Run
from regard.serve.errors import ModelFailedError
from regard.serve.models import ModelCache, ModelKey
from tiny_served import available, save_run

CPU = torch.device("cpu")


def path_of(model: Run | Adapter) -> Path:
    assert isinstance(model, Run)
    return model.path


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were loaded, in turn."""
    names, load = list[str](), Run.load

    def noting(path: Path, *, device: torch.device | None = None) -> Run:
        names.append(path.name)
        return load(path, device=device)

    monkeypatch.setattr(Run, "load", noting)
    return names


def test_a_run_is_loaded_again_when_its_weights_change(tmp_path: Path, loaded: list[str]) -> None:
    path = save_run(tmp_path / "a")
    models = ModelCache(available(path), CPU)
    weights = path / "model.safetensors"
    for seconds in (0, 0, 1, 1):
        os.utime(weights, (seconds, seconds))
        models.use(ModelKey(0), path_of)
    assert loaded == ["a", "a"]


def test_the_runs_that_were_used_last_are_kept(tmp_path: Path, loaded: list[str]) -> None:
    models = ModelCache(available(*(save_run(tmp_path / name) for name in "abc")), CPU, size=2)
    for number in (0, 0, 1, 0, 1, 2, 1, 0):
        assert models.use(ModelKey(number), path_of).name == "abc"[number]
    assert loaded == ["a", "b", "c", "a"]


def test_a_model_before_its_training_is_one_of_those_that_are_kept(
    tmp_path: Path, loaded: list[str]
) -> None:
    models = ModelCache(available(*(save_run(tmp_path / name) for name in "ab")), CPU, size=2)
    fresh = [models.use(ModelKey(0, untrained=True), lambda model: model) for _ in range(2)]
    assert fresh[0] is fresh[1]
    assert models.use(ModelKey(0, untrained=True), path_of) == Path("a, untrained")
    assert models.use(ModelKey(0), path_of) == Path("a")
    assert loaded == ["a"], "to make it, the trained one was loaded"
    for which in (ModelKey(1), ModelKey(0)):
        models.use(which, path_of)
    assert models.use(ModelKey(0, untrained=True), lambda model: model) is not fresh[0]


def test_a_damaged_run_is_tried_again_when_it_is_mended(tmp_path: Path) -> None:
    path = save_run(tmp_path / "a")
    weights = (path / "model.safetensors").read_bytes()
    models = ModelCache(available(path), CPU)
    (path / "model.safetensors").write_bytes(weights[:100])
    with pytest.raises(UserError, match=r"^a/model\.safetensors: is damaged"):
        models.use(ModelKey(0), lambda run: run)
    (path / "model.safetensors").write_bytes(weights)
    assert models.use(ModelKey(0), path_of).name == "a"


def test_a_failing_model_is_told_of_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = ModelCache(available(save_run(tmp_path / "a")), CPU)
    error = RuntimeError(f"shapes 3 and 4\ndiffer in {tmp_path / 'a' / 'x.py'}")
    with pytest.raises(ModelFailedError) as failure:
        models.use(ModelKey(0), Mock(side_effect=error))
    assert str(failure.value) == "a failed: RuntimeError: shapes 3 and 4 differ in a/x.py"
    assert "Traceback" in caplog.text, "whoever started the server can see where"
    assert models.use(ModelKey(0), path_of).name == "a"
