"""Two sides on a page, and a choice of layers and heads, are what `look` shows of them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from regard.explorer import page as pages
from regard.explorer.look import look, untrained
from regard.explorer.page import View
from regard.serve.schemas import ModelInput
from tiny_served import TEXT, client, new_run, request_body, save_run

OTHER = "the god ran"
OTHERS: dict[str, dict[str, Any]] = {
    "another model": {"model": 1, "text": TEXT},
    "before its training": {"model": 0, "text": TEXT, "untrained": True},
    "another text": {"model": 0, "text": OTHER},
    "all of them": {"model": 1, "text": OTHER, "second": "ran", "untrained": True},
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A decoder and an encoder."""
    folder = tmp_path_factory.mktemp("served")
    return client(*(save_run(folder / name, name) for name in ("decoder", "encoder")))


def expected(one: ModelInput) -> View:
    name = ("decoder", "encoder")[one.model]
    run = new_run(name, Path(name))
    return look(untrained(run) if one.untrained else run, one.text, one.second)


@pytest.mark.parametrize("beside", OTHERS.values(), ids=list(OTHERS))
def test_both_sides_are_what_look_shows(beside: dict[str, Any], page: TestClient) -> None:
    """With the exact steps of either side."""
    sides = [expected(ModelInput(**one)) for one in (request_body(), beside)]
    shown = sides[0].beside(sides[1]).with_detail(()).data
    found = page.post("/look", json=request_body(compare=beside)).json()
    assert found == msgspec.json.decode(msgspec.json.encode(shown))
    for asked, view in zip((request_body(), beside), sides, strict=True):
        steps = page.post("/detail", json={**asked, "map": 0, "layer": 1, "head": 0}).json()
        (side,) = view.with_detail([(0, 1, 0)]).data["panels"]
        assert steps == side["details"][0]


def test_a_word_is_compared(page: TestClient) -> None:
    beside = OTHERS["another text"]
    data = page.post("/look", json=request_body(compare=beside, word="d")).json()
    assert data["words"][0]["pairs"][0] == [TEXT.index("d"), OTHER.index("d")]
    answer = page.post("/look", json=request_body(compare=beside, word="cat"))
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("the word “cat” isn't in “")


# Some layers and heads


def test_layers_and_heads_are_chosen_on_both_sides(page: TestClient) -> None:
    wished = request_body(compare=OTHERS["another model"], layers="1", heads="1, 0")
    for side in page.post("/look", json=wished).json()["panels"]:
        (layer,) = side["maps"][0]["layers"]
        assert layer["name"] == "1"
        assert [head["name"] for head in layer["heads"]] == ["1", "0"]


def test_steps_are_those_of_the_chosen_head(page: TestClient) -> None:
    """Heads are counted among those that are shown."""
    place = {"map": 0, "layer": 1, "head": 1}
    exact = page.post("/detail", json=request_body(**place)).json()
    first = {"map": 0, "layer": 0, "head": 0}
    chosen = page.post("/detail", json=request_body(**first, layers="1", heads="1")).json()
    assert {**chosen, **place} == exact


def test_what_is_too_large_is_told_with_a_way_that_the_page_has(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = expected(ModelInput(model=0, text=TEXT)).panels[0].maps
    size = pages._bytes(one)
    monkeypatch.setattr(pages, "LARGEST", size - 1)
    refused = page.post("/look", json=request_body())
    assert refused.status_code == 422
    assert "“Only layers” or “Only heads”" in refused.json()["error"]
    assert "--" not in refused.json()["error"]
    assert page.post("/look", json=request_body(layers="1")).status_code == 200
    both = request_body(layers="1", compare=request_body(text=OTHER))
    assert page.post("/look", json=both).status_code == 422, "two sides are twice as much"
    assert page.post("/look", json={**both, "heads": "1"}).status_code == 200
    monkeypatch.setattr(pages, "LARGEST_STEPS", 100)
    answer = page.post("/detail", json=request_body(map=0, layer=0, head=0, layers="1"))
    assert answer.status_code == 422
    assert answer.json()["error"].endswith("choose a shorter text")
