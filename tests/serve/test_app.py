"""The page and what it asks for, with and without good manners."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard import edits, sites
from regard.decoding.generate import generate
from regard.runs.run import Run
from regard.serve.schemas import MAX_BYTES, MAX_CHARACTERS
from regard.serve.security import HEADERS
from regard.serve.worker import Worker
from tiny_served import PORT, TEXT, client, request_body, save_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A decoder, an encoder, and a run whose weights are damaged."""
    folder = tmp_path_factory.mktemp("served")
    found = [save_run(folder / name, name) for name in ("decoder", "encoder")]
    broken = save_run(folder / "broken")
    (broken / "model.safetensors").write_bytes(b"no weights")
    return [*found, broken]


@pytest.fixture
def page(runs: list[Path]) -> TestClient:
    return client(*runs)


def test_the_page_and_its_parts(page: TestClient) -> None:
    for place, kind, holds in [
        ("/", "text/html", "<!doctype html>"),
        ("/serve.js", "text/javascript", 'from "./look.js"'),
        ("/look.js", "text/javascript", "export function render"),
        ("/reply.js", "text/javascript", "export function describe"),
        ("/serve.css", "text/css", "textarea"),
        ("/look.css", "text/css", ".regard-look"),
    ]:
        answer = page.get(place)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        assert holds in answer.text
        assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in answer.text


def test_runs_are_shown_by_name(page: TestClient, runs: list[Path]) -> None:
    answer = page.get("/models")
    assert [one["name"] for one in answer.json()] == ["decoder", "encoder", "broken"]
    assert str(runs[0].parent) not in answer.text


def test_a_text_is_looked_at_and_a_head_step_by_step(page: TestClient) -> None:
    data = page.post("/look", json=request_body()).json()
    assert data["title"] == f"decoder: {TEXT}"
    assert data["panels"][0]["details"] == []
    steps = page.post("/detail", json=request_body(map=0, layer=1, head=0)).json()
    assert steps["steps"][-1]["name"] == "weight"


def test_a_run_writes_line_by_line(page: TestClient) -> None:
    answer = page.post("/generate", json=request_body(max_new_tokens=4))
    *tokens, end = map(json.loads, answer.text.splitlines())
    assert len(tokens) <= 4
    assert all(set(line) == {"token", "name", "text", "candidates"} for line in tokens)
    assert "end" in end


EDIT = edits.zero("decoder.0.heads.0").to_toml()


def test_a_request_may_edit_the_model(page: TestClient) -> None:
    """One side is edited, the other isn't; afterwards, the model is as before."""
    own = page.post("/look", json=request_body()).json()
    both = page.post("/look", json=request_body(edit=EDIT, compare=request_body())).json()
    assert [panel["name"] for panel in both["panels"]] == ["decoder, edited", "decoder"]
    first, second = (panel["maps"] for panel in both["panels"])
    assert first != second
    assert page.post("/look", json=request_body()).json() == own
    steps = page.post("/detail", json=request_body(map=0, layer=1, head=0, edit=EDIT)).json()
    assert steps != page.post("/detail", json=request_body(map=0, layer=1, head=0)).json()


def test_an_edited_run_writes_what_generate_writes(runs: list[Path], page: TestClient) -> None:
    edit = edits.steer("decoder.1.residual.feedforward", [3.0, -3.0] * 8, at="each-new")
    body = request_body(max_new_tokens=5, edit=edit.to_toml())
    *tokens, _ = map(json.loads, page.post("/generate", json=body).text.splitlines())
    run = Run.load(runs[0])
    (text,) = generate(run, [TEXT], max_new_tokens=5, edit=edit)
    assert text != generate(run, [TEXT], max_new_tokens=5)[0]
    assert tokens[-1]["text"] == text
    ids = [line["token"] for line in tokens]
    seen = page.post("/look", json=request_body(generated=ids, edit=edit.to_toml()))
    assert seen.json()["panels"][0]["name"] == "decoder, edited"


def test_every_head_has_a_switch(runs: list[Path], page: TestClient) -> None:
    """Each is the edit that sets its head to zero, as `sites` names it."""
    layers = page.post("/heads", json={"model": 0}).json()
    heads = [one.name for one in sites(Run.load(runs[0])) if one.part == "heads"]
    assert [edit for layer in layers for edit in layer["edits"]] == [
        edits.zero(name).to_toml() for name in heads
    ]
    assert [layer["layer"] for layer in layers] == ["decoder.0", "decoder.1"]
    assert page.post("/heads", json={"model": 99}).status_code == 422


# What is refused


def test_wishes_out_of_bounds(page: TestClient, runs: list[Path]) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"model": 9}, 422, "no such model"),
        ({"edit": "[[edit"}, 422, "edit: isn't TOML"),
        ({"edit": '[[edit]]\nkind = "zero"'}, 422, "site"),
        ({"edit": edits.zero("decoder.9.heads.0").to_toml()}, 422, "is not in this model"),
        ({"edit": edits.zero("decoder.0.heads.0", at="cat").to_toml()}, 422, "no word 'cat'"),
        ({"edit": "x" * (MAX_CHARACTERS + 1)}, 400, "edit"),
        ({"model": -1}, 400, "invalid request"),
        ({"model": "../decoder"}, 400, "invalid request"),
        ({"model": "decoder"}, 400, "invalid request"),
        ({"path": "/etc"}, 400, "unknown field"),
        ({"text": ""}, 422, "a text is empty"),
        ({"text": "xyz"}, 422, "the vocabulary has no"),
        ({"text": TEXT * 20}, 422, "more than the model's context length"),
        ({"text": "t" * (MAX_CHARACTERS + 1)}, 400, "length"),
        ({"text": ["t"]}, 400, "invalid request"),
        ({"second": "t" * (MAX_CHARACTERS + 1)}, 400, "length"),
        ({"generated": [3] * 5000}, 400, "length"),
        ({"generated": [-3]}, 400, "invalid request"),
        ({"generated": [2**31 - 1]}, 422, "aren't in this model's vocabulary"),
    ]
    for body, code, says in cases:
        answer = page.post("/look", json=request_body(**body))
        assert answer.status_code == code, answer.text
        assert says in answer.json()["error"]
        assert str(runs[0].parent) not in answer.text


def test_writing_out_of_bounds(page: TestClient) -> None:
    for body in [
        {"max_new_tokens": 0},
        {"max_new_tokens": 10**6},
        {"temperature": -1},
        {"seed": -1},
        {"seed": 2**40},
    ]:
        assert page.post("/generate", json=request_body(**body)).status_code == 400


def test_what_cannot_write_says_so_before_it_begins(page: TestClient) -> None:
    answer = page.post("/generate", json=request_body(model=1))
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("encoder: this needs a causal language model")


def test_large_requests_are_refused(page: TestClient) -> None:
    answer = page.post(
        "/look", content=b" " * (MAX_BYTES + 1), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


def test_only_json_is_read(page: TestClient) -> None:
    """What a form of another page can send without asking first."""
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""]:
        answer = page.post(
            "/look", content=json.dumps(request_body()), headers={"content-type": kind}
        )
        assert answer.status_code == 415


def test_strangers_reach_no_model(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for headers in [{"origin": "http://evil.example"}, {"host": "evil.example"}]:
        monkeypatch.setattr(Run, "load", lambda *_, **__: pytest.fail("a model was loaded"))
        for place in ("/look", "/detail", "/generate"):
            assert page.post(place, json=request_body(), headers=headers).status_code == 403


def test_there_are_no_other_places(page: TestClient) -> None:
    for place in [
        *("/config.toml", "/../pyproject.toml", "/..%2fpyproject.toml", "/static/look.js"),
        *("/%2e%2e/config.toml", "/models/../../etc/passwd", "/models/0"),
    ]:
        answer = page.get(f"http://127.0.0.1:{PORT}{place}")
        assert answer.status_code == 404
        assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


def test_other_methods_are_refused(page: TestClient) -> None:
    assert page.get("/look").status_code == 405
    assert page.post("/models", json={}).status_code == 405
    answer = page.options("/look", headers={"access-control-request-method": "POST"})
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


# What fails


def test_a_broken_run_shows_its_reason_and_the_server_lives_on(
    page: TestClient, runs: list[Path]
) -> None:
    for place, more in (
        ("/look", {}),
        ("/detail", {"map": 0, "layer": 0, "head": 0}),
        ("/generate", {}),
    ):
        answer = page.post(place, json=request_body(model=2, **more))
        assert answer.status_code == 422
        (line,) = answer.json()["error"].splitlines()
        assert line.startswith("broken/model.safetensors: is damaged")
        assert str(runs[2].parent) not in answer.text
    assert page.post("/look", json=request_body()).status_code == 200


def test_a_failing_model_shows_its_reason_and_the_server_lives_on(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of\nmemory")

    with monkeypatch.context() as patched:
        patched.setattr("regard.explorer.run_adapter.capture_attention", fail)
        answer = page.post("/look", json=request_body())
    assert answer.status_code == 500
    assert answer.json() == {"error": "decoder failed: RuntimeError: out of memory"}
    assert page.post("/look", json=request_body()).status_code == 200


def test_a_failure_on_the_way_ends_the_writing_with_its_reason(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, calls = "regard.models.builders.LanguageModel.extend", list[int]()
    from regard.models.builders import LanguageModel

    real = LanguageModel.extend

    def failing(*args: object) -> object:
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("broken wire")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(extend, failing)
    first, second, last = page.post(
        "/generate", json=request_body(max_new_tokens=9)
    ).text.splitlines()
    assert json.loads(last) == {"error": "decoder failed: RuntimeError: broken wire"}
    assert "token" in json.loads(first)
    assert "token" in json.loads(second)


def test_a_failure_before_the_first_token_is_no_success(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a line in a reply of status 200."""

    def failing(*_: object) -> None:
        raise RuntimeError("broken wire")

    monkeypatch.setattr("regard.models.builders.LanguageModel.extend", failing)
    answer = page.post("/generate", json=request_body(max_new_tokens=9))
    assert answer.status_code == 500
    assert answer.json() == {"error": "decoder failed: RuntimeError: broken wire"}


def test_a_client_that_leaves_while_it_asks_is_no_error(runs: list[Path]) -> None:
    """It printed a traceback for each."""
    app, sent = client(*runs).app, list[dict[str, object]]()
    received = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, object]:
        return received.pop() if received else {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/generate", "headers": headers}
    asyncio.run(app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 400


def test_a_full_queue_is_a_clear_answer(runs: list[Path]) -> None:
    worker = Worker(queue_size=1)
    page = client(*runs, worker=worker)
    with worker.slot():
        for place in ("/look", "/generate"):
            answer = page.post(place, json=request_body())
            assert answer.status_code == 503
            assert "try again" in answer.json()["error"]
    assert page.post("/look", json=request_body()).status_code == 200
