"""Models of Hugging Face beside runs: looked at by their names alone, never fetched."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

import regard
from regard import edits
from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.explorer.look import look
from regard.serve.available_models import EXAMPLE, model_info
from tiny_explored import PAIRED, tiny_folder
from tiny_served import available, client, request_body, save_run

pytestmark = pytest.mark.usefixtures("offline")

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
        asked = request_body(model=1, text=TEXT, untrained=untrained)
        data = page.post("/look", json=asked).json()
        model = HuggingFaceModel.load(folder / family)
        expected = look(model.untrained() if untrained else model, TEXT).with_detail(()).data
        assert data["title"] == expected["title"] == f"{family}{', untrained' * untrained}: {TEXT}"
        maps = zip(data["panels"][0]["maps"], expected["panels"][0]["maps"], strict=True)
        for found, one in maps:
            assert found["layers"] == one["layers"]
        steps = page.post("/detail", json={**asked, "map": 0, "layer": 1, "head": 3}).json()
        assert steps["steps"][-1]["name"] == "weight"


def test_they_are_described_before_they_are_loaded(folder: Path) -> None:
    models = available(*(f"hf:{folder / family}" for family in FAMILIES))
    for one, family in zip(models, FAMILIES, strict=True):
        assert model_info(one) == {
            "name": family,
            "description": f"Hugging Face {family}",
            "example": EXAMPLE,
            "answers": False,
            "template": False,
            "generates": family in PAIRED,
            "seq2seq": family in PAIRED,
        }


def test_what_is_missing_is_refused_at_once(tmp_path: Path) -> None:
    for name, message in (
        ("nowhere", "hf:nowhere: is no folder, and not in Hugging Face's cache"),
        (str(tmp_path), r"it has no config\.json"),
    ):
        with pytest.raises(UserError, match=message):
            available(f"hf:{name}")


def test_no_message_shows_where_they_lie(folder: Path, offline: Path) -> None:
    """Whether the weights are damaged, or the tokenizer or a whole folder is gone."""
    cached(offline, "someone/some-model", folder / "bert")
    (snapshot,) = offline.glob("*/snapshots/*")
    page = client("hf:someone/some-model")
    (snapshot / "model.safetensors").write_bytes(b"no weights")
    answers = [page.post("/look", json=request_body(text=TEXT))]
    shutil.copy(folder / "bert" / "model.safetensors", snapshot)
    (snapshot / "tokenizer.json").unlink()
    answers.append(page.post("/look", json=request_body(text=TEXT)))
    (snapshot / "config.json").unlink()
    answers.append(page.post("/look", json=request_body(text=TEXT)))
    for answer in answers:
        assert answer.status_code == 422
        assert "someone/some-model: " in answer.json()["error"]
    shutil.rmtree(snapshot)
    answers += [page.post("/look", json=request_body(text=TEXT)), page.get("/models")]
    assert not any(str(offline.parent) in answer.text for answer in answers)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_generation_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / family, family, head=family == "gpt2")
    page = client(f"hf:{folder}")
    assert page.get("/models").json()[0]["generates"]
    answer = page.post("/generate", json=request_body(text=TEXT, max_new_tokens=4))
    *steps, end = map(json.loads, answer.text.splitlines())
    ids = tuple(step["token"] for step in steps)
    given = HuggingFaceModel.load(folder)
    model, tokenizer = cast(Any, given.model), cast(Any, given.tokenizer)
    start = tokenizer(TEXT, return_tensors="pt")
    expected = model.generate(**start, max_new_tokens=4, do_sample=False, num_beams=1)[0].tolist()
    before = 1 if family == "t5" else start["input_ids"].shape[1]
    assert list(ids) == [i for i in expected[before:] if i != tokenizer.eos_token_id]
    if ids:
        text = tokenizer.decode(expected[:before] if family == "gpt2" else [])
        assert steps[-1]["text"] == text + tokenizer.decode(list(ids))
    assert "end" in end
    nothing = edits.steer("decoder.1.residual", [0.0] * 16).to_toml()
    body = request_body(text=TEXT, max_new_tokens=4, edit=nothing)
    edited = [json.loads(line) for line in page.post("/generate", json=body).text.splitlines()]
    assert [line.get("token") for line in edited] == [*ids, None]
    data = page.post("/look", json=request_body(text=TEXT, generated=ids)).json()
    queries = data["panels"][0]["maps"][1 if family == "t5" else 0]["queries"]
    assert len(queries) == before + len(ids)


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_an_edited_model_is_the_imported_run(family: str, folder: Path) -> None:
    """One side is edited, the other isn't; an edit that adds nothing leaves what is generated."""
    stack = "encoder" if family == "bert" else "decoder"
    edit = edits.zero(f"{stack}.1.heads.0")
    page = client(folder / "run", f"hf:{folder / family}")
    own = page.post("/look", json=request_body(model=1, text=TEXT)).json()
    second = "in Rome" if family == "t5" else None
    body = request_body(model=1, text=TEXT, second=second)
    unedited = body | {"imported": True}
    sides = body | {"edit": edit.to_toml(), "compare": unedited}
    both = page.post("/look", json=sides).json()
    run = regard.load(f"hf:{folder / family}")
    for panel, given in zip(both["panels"], (edit, None), strict=True):
        expected = look(run, TEXT, second, edit=given).with_detail(()).data["panels"][0]
        assert panel["maps"][0]["layers"] == expected["maps"][0]["layers"]
    head = {"map": 0, "layer": 1, "head": 1}
    exact = page.post("/detail", json={**unedited, **head}).json()
    (of_run,) = look(run, TEXT, second).with_detail([(0, 1, 1)]).data["panels"][0]["details"]
    assert exact == of_run
    assert [panel["name"] for panel in both["panels"]] == [f"{family}, edited", family]
    assert page.post("/look", json=request_body(model=1, text=TEXT)).json() == own


def test_what_a_model_lacks_is_refused(folder: Path) -> None:
    page = client(f"hf:{folder / 'gpt2'}")
    answer = page.post("/generate", json=request_body(text=TEXT))
    assert answer.status_code == 422
    assert answer.json()["error"] == "gpt2: has no head that predicts the next token"
    answer = page.post("/look", json=request_body(text=TEXT, generated=[10**6]))
    assert "aren't in this model's vocabulary" in answer.json()["error"]


def test_a_tokenizer_in_lower_case_keeps_the_prompt_apart_from_the_first_token(
    tmp_path: Path,
) -> None:
    folder = tiny_folder(tmp_path / "gpt2", "gpt2", head=True)
    place = folder / "tokenizer.json"
    content = json.loads(place.read_text()) | {"normalizer": {"type": "Lowercase"}}
    place.write_text(json.dumps(content))
    body = {"model": 0, "text": "ADA was", "max_new_tokens": 2}
    lines = client(f"hf:{folder}").post("/generate", json=body).text.splitlines()
    first, second, _ = map(json.loads, lines)
    assert first["before"] == "ada was"
    assert second["before"] == first["text"]
