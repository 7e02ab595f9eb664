"""Models of Hugging Face beside runs: looked at by their names alone, never fetched."""

import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from regard.errors import UserError
from regard.explorer.hugging_face import HuggingFaceModel
from regard.explorer.look import look
from regard.serve.about import describe
from regard.serve.models import Models, Which
from regard.serve.offers import HuggingFaceOffer
from tiny_explored import PAIRED, tiny_folder
from tiny_served import client, offered, save_run, wish

TEXT = "was born"
FAMILIES = ("gpt2", "bert", "t5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of Hugging Face, and a run. Not to be changed."""
    folder = tmp_path_factory.mktemp("served")
    for family in FAMILIES:
        tiny_folder(folder / family, family)
    save_run(folder / "run")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a network that mustn't be asked."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network is used"))
    return tmp_path / "cache"


def cached(cache: Path, name: str, folder: Path) -> None:
    """The cache's own layout: a folder of snapshots, and a file that names the newest."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    shutil.copytree(folder, place / "snapshots" / ("a" * 40))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_page_is_what_look_shows(family: str, folder: Path) -> None:
    page = client(folder / "run", f"hf:{folder / family}")
    for untrained in (False, True):
        data = page.post("/look", json=wish(model=1, text=TEXT, untrained=untrained)).json()
        model = HuggingFaceModel.load(folder / family)
        expected = look(model.untrained() if untrained else model, TEXT).in_steps(()).data
        assert data["title"] == expected["title"] == f"{family}{', untrained' * untrained}: {TEXT}"
        for found, one in zip(data["sides"][0]["maps"], expected["sides"][0]["maps"], strict=True):
            assert found["layers"] == one["layers"]
        steps = page.post(
            "/steps", json=wish(model=1, text=TEXT, untrained=untrained, map=0, layer=1, head=3)
        ).json()
        assert steps["steps"][-1]["name"] == "weight"


def test_they_are_described_before_they_are_loaded(folder: Path) -> None:
    for one, family in zip(offered(*(f"hf:{folder / f}" for f in FAMILIES)), FAMILIES, strict=True):
        assert describe(one) == {
            "name": family,
            "about": f"{family} of Hugging Face",
            "writes": False,
            "pair": family in PAIRED,
        }


def test_a_name_in_the_cache_stands_for_its_folder(folder: Path, cache: Path) -> None:
    cached(cache, "someone/some-model", folder / "gpt2")
    offers = offered("hf:someone/some-model")
    assert describe(offers[0])["name"] == "someone/some-model"
    title = Models(offers, torch.device("cpu")).use(Which(0), lambda model: look(model, TEXT).title)
    assert title == f"someone/some-model: {TEXT}"


@pytest.mark.parametrize("name", ["nowhere", "no/such/folder", "some/model", "~nobody/x", ""])
def test_what_is_missing_is_refused_at_once(name: str) -> None:
    with pytest.raises(UserError, match="is no folder, and not in Hugging Face's cache") as error:
        offered(f"hf:{name}")
    assert str(error.value).startswith(f"hf:{name}: ")
    assert "\n" not in str(error.value)


def test_a_folder_of_something_else_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it has no config\.json"):
        offered(f"hf:{tmp_path}")


def test_no_message_shows_where_they_lie(folder: Path, cache: Path) -> None:
    """Whether the weights are damaged, or the tokenizer or a whole folder is gone."""
    cached(cache, "someone/some-model", folder / "bert")
    (snapshot,) = cache.glob("*/snapshots/*")
    page = client("hf:someone/some-model")
    (snapshot / "model.safetensors").write_bytes(b"no weights")
    answers = [page.post("/look", json=wish(text=TEXT))]
    shutil.copy(folder / "bert" / "model.safetensors", snapshot)
    (snapshot / "tokenizer.json").unlink()
    answers.append(page.post("/look", json=wish(text=TEXT)))
    (snapshot / "config.json").unlink()
    answers.append(page.post("/look", json=wish(text=TEXT)))
    for answer in answers:
        assert answer.status_code == 422
        assert "someone/some-model: " in answer.json()["error"]
    shutil.rmtree(snapshot)
    answers += [page.post("/look", json=wish(text=TEXT)), page.get("/models")]
    assert not any(str(cache.parent) in answer.text for answer in answers)


def test_they_write_nothing(folder: Path) -> None:
    page = client(f"hf:{folder / 'gpt2'}")
    for place, more in (("/write", {}), ("/look", {"written": [3]})):
        answer = page.post(place, json=wish(text=TEXT, **more))
        assert answer.status_code == 422
        assert answer.json()["error"].startswith("gpt2: models of Hugging Face are looked at")


def test_offers_of_both_kinds_have_names_of_their_own(folder: Path, tmp_path: Path) -> None:
    run = save_run(tmp_path / "bert")
    offers = offered(run, f"hf:{folder / 'bert'}")
    assert [one.name for one in offers] == ["bert", "bert (2)"]
    assert [isinstance(one, HuggingFaceOffer) for one in offers] == [False, True]
