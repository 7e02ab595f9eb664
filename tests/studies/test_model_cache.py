"""Models are trained once."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from plans import plan_task
from regard.config import override
from regard.files import cache_folder
from regard.runs.recipes import RECIPES
from regard.studies.model_cache import cached_checkpoints, cached_run
from regard.training.plan import Plan

TINY = ["model.n_layers=1", "model.d_model=16", "training.steps=3", "training.batch=4"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def planned(*settings: str) -> Plan:
    return plan_task(Path("nowhere"), override(RECIPES["reverse"], [*TINY, *settings]))


def test_a_model_is_trained_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_run(planned())
    assert not Path("nowhere").exists()
    monkeypatch.setattr(Plan, "execute", None)
    second = cached_run(planned())
    assert first.path == second.path
    assert [path for path in cache.iterdir() if path.is_dir()] == [first.path]
    for name, weights in first.model.state_dict().items():
        assert weights.equal(second.model.state_dict()[name])


def test_another_recipe_is_another_run() -> None:
    assert cached_run(planned()).path != cached_run(planned("seed=1")).path


def test_a_training_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[bool] = []
    whole = Plan.execute

    def stopped(self: Plan, settings: object, *, resume: bool = False) -> object:
        executed.append(self.run.path.name.endswith(".partial"))
        if len(executed) == 1:
            self.run.save_description()
            raise KeyboardInterrupt
        return whole(self, settings, resume=resume)  # type: ignore[arg-type]

    monkeypatch.setattr(Plan, "execute", stopped)
    with pytest.raises(KeyboardInterrupt):
        cached_run(planned())
    run = cached_run(planned())
    assert executed == [True, True]
    assert not run.path.name.endswith(".partial")


def test_a_stop_while_checkpoints_are_deleted_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(folder: Path, **_: bool) -> None:
        next(folder.glob("*/state.json")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stopped)
        with pytest.raises(KeyboardInterrupt):
            cached_run(planned())
    assert cached_run(planned()).path.is_dir()


def test_a_second_process_waits_for_the_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = cached_run(planned()).path
    unfinished = finished.rename(cache / "unfinished")
    monkeypatch.setattr(Plan, "execute", None)  # the second one must not train
    plan, first = planned(), FileLock(f"{finished}.lock")
    first.acquire()
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(cached_run, plan)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.3)
        unfinished.rename(finished)
        first.release()
        assert second.result(timeout=60).path == finished


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    assert cache_folder("studies") == Path("/there/regard/studies")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("studies").name == "studies"


def test_the_weights_of_each_checkpoint_are_kept() -> None:
    setting = "training.checkpoint_every=1"
    runs = cached_checkpoints(planned(setting))
    assert list(runs) == [1, 2, 3]
    (folder,) = {run.path for run in runs.values()}
    assert not list(folder.rglob("optimizer.safetensors"))
    last = cached_run(planned(setting))
    assert last.path != folder
    weights = [run.model.state_dict() for run in (*runs.values(), last)]
    for name, trained in weights[-1].items():
        assert trained.equal(weights[2][name])
    assert any(not weights[0][name].equal(weights[1][name]) for name in weights[0])


def test_places_do_not_name_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def child(folder: str) -> Plan:
        plan = planned()
        places = {"parent": folder, "run_folder": f"{folder}/run", "ancestors": [{"run": folder}]}
        plan.run.origin |= {"parent_weights": "0123", **places}
        return plan

    first = cached_run(child("/here")).path
    monkeypatch.setattr(Plan, "execute", None)
    assert cached_run(child("/there")).path == first
