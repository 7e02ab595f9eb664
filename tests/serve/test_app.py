"""The page and what it asks for, with and without good manners."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard import edits, sites
from regard.decoding.generate import generate
from regard.models.builders import LanguageModel
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


def test_an_edited_run_writes_line_by_line_what_generate_writes(
    runs: list[Path], page: TestClient
) -> None:
    edit = edits.steer("decoder.1.residual.feedforward", [3.0, -3.0] * 8, at="each-new")
    body = request_body(max_new_tokens=5, edit=edit.to_toml())
    *tokens, end = map(json.loads, page.post("/generate", json=body).text.splitlines())
    assert all(set(line) == {"token", "name", "before", "text", "candidates"} for line in tokens)
    assert "end" in end
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


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("/look", {"model": 9}, 422, "no such model"),
    ("/generate", {"model": 9}, 422, "no such model"),
    ("/look", {"edit": "[[edit"}, 422, "edit: isn't TOML"),
    ("/look", {"edit": '[[edit]]\nkind = "zero"'}, 422, "site"),
    ("/look", {"edit": "x" * (MAX_CHARACTERS + 1)}, 400, "edit"),
    ("/look", {"model": -1}, 400, "invalid request"),
    ("/look", {"model": "../decoder"}, 400, "invalid request"),
    ("/look", {"path": "/etc"}, 400, "unknown field"),
    ("/look", {"text": ""}, 422, "a text is empty"),
    ("/look", {"text": "t" * (MAX_CHARACTERS + 1)}, 400, "length"),
    ("/look", {"text": ["t"]}, 400, "invalid request"),
    ("/look", {"second": "t" * (MAX_CHARACTERS + 1)}, 400, "length"),
    ("/look", {"generated": [3] * 5000}, 400, "length"),
    ("/look", {"generated": [-3]}, 400, "invalid request"),
    ("/look", {"generated": [2**31 - 1]}, 422, "aren't in this model's vocabulary"),
    ("/look", {"layers": "x"}, 422, "Only layers x: is not a list of numbers such as 0,2-3"),
    ("/look", {"layers": "2"}, 422, "there are 2 layers of self-attention, numbered from 0, not 2"),
    ("/look", {"compare": request_body(model=9)}, 422, "other side: no such model"),
    ("/look", {"compare": request_body(model=1, text=TEXT * 9)}, 422, "other side: the text has"),
    ("/look", {"compare": request_body(compare=request_body())}, 400, "unknown field"),
    ("/detail", {"map": 0, "layer": 0, "head": 9}, 422, "is not among the heads on the page"),
    ("/detail", {"map": 0, "layer": 9, "head": 0}, 422, "is not among the heads on the page"),
    ("/detail", {"map": 9, "layer": 0, "head": 0}, 422, "is not among the heads on the page"),
    ("/generate", {"max_new_tokens": 0}, 400, "max_new_tokens"),
    ("/generate", {"max_new_tokens": 10**6}, 400, "max_new_tokens"),
    ("/generate", {"temperature": -1}, 400, "temperature"),
    ("/generate", {"seed": -1}, 400, "seed"),
    ("/generate", {"seed": 2**40}, 400, "seed"),
    ("/generate", {"model": 1}, 422, "encoder: this needs a causal language model"),
    ("/ask", {"model": 9}, 422, "no such model"),
    ("/ask", {"text": "t" * (MAX_CHARACTERS + 1)}, 400, "length"),
    ("/ask", {"expected": "t" * (MAX_CHARACTERS + 1)}, 400, "length"),
    ("/ask", {"index": "/etc/passwd"}, 400, "unknown field"),
    ("/ask", {}, 422, "decoder: isn't trained on questions"),
]


def test_requests_out_of_bounds(page: TestClient, runs: list[Path]) -> None:
    for place, body, code, says in REFUSED:
        answer = page.post(place, json=request_body(**body))
        assert answer.status_code == code, answer.text
        assert says in answer.json()["error"]
        assert str(runs[0].parent) not in answer.text


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
        for place in ("/look", "/detail", "/generate", "/ask"):
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
    assert page.get("/look").status_code == page.get("/ask").status_code == 405
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
    """A failure after the first token ends the reply with a line; one before it is the reply."""

    def fail(*_: object) -> None:
        raise RuntimeError("out of\nmemory")

    def fail_later(*given: Any) -> Any:
        calls.append(1)
        return extend(*given) if len(calls) <= 2 else fail()

    error, calls = {"error": "decoder failed: RuntimeError: out of memory"}, list[int]()
    method, extend = "regard.models.builders.LanguageModel.extend", LanguageModel.extend
    writing = request_body(max_new_tokens=9)
    with monkeypatch.context() as patched:
        patched.setattr("regard.explorer.adapters.capture_attention", fail)
        patched.setattr(method, fail)
        for place, body in (("/look", request_body()), ("/generate", writing)):
            answer = page.post(place, json=body)
            assert (answer.status_code, answer.json()) == (500, error)
        patched.setattr(method, fail_later)
        lines = [*map(json.loads, page.post("/generate", json=writing).text.splitlines())]
        assert ["token" in line for line in lines] == [True, True, False]
        assert lines[-1] == error
    assert page.post("/look", json=request_body()).status_code == 200


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
