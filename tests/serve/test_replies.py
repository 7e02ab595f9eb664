"""A reply on the page is what `ask` replies; nothing of this machine shows in it."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard import edits
from regard.api import generate
from regard.corpus.evidence import VERDICTS
from regard.corpus.index import RUN_INDEX
from regard.evaluation.answers import answer
from regard.runs.run import Run
from regard.runs.training_text import open_run_index
from regard.serve.handlers import MAX_PASSAGES
from regard.serve.schemas import MAX_CHARACTERS
from regard.tasks.examples import Example
from regard.uncertainty.calibration import calibrate_run, load_calibration, save_calibration
from regard.uncertainty.signals import OF_ANSWER, OWN, SIGNALS
from tiny import PEOPLE, Command, succeeded
from tiny_served import client, save_run

QUESTION = "Where was Mia Bell born?"
NEW = [
    Example(text=f"Where was {one.split()[0]} {other.split()[1]} born?", answer="Rome")
    for one, _ in PEOPLE
    for other, _ in PEOPLE
    if one != other
]


@pytest.fixture
def page(run: Path) -> TestClient:
    return client(run)


def body(text: str = QUESTION, **more: object) -> dict[str, object]:
    return {"model": 0, "text": text, **more}


@pytest.fixture
def indexed(regard: Command, folder: Path, run: Path) -> Path:
    """The run with an index of its text, given by an absolute path."""
    succeeded(regard("index", folder / "text.txt", "--out", run / RUN_INDEX))
    return run


def calibrate(run: Path) -> None:
    loaded = Run.load(run)
    calibration = calibrate_run(
        loaded, NEW, loaded.environment(), max_error=0.2, index=open_run_index(loaded)
    )
    save_calibration(run, calibration)


def replied(run: Path, examples: Sequence[Example]) -> object:
    loaded = Run.load(run)
    environment = loaded.environment()
    (reply,) = answer(
        loaded,
        examples,
        environment,
        calibration=load_calibration(run, environment),
        index=open_run_index(loaded),
    )
    return reply


def test_the_page_offers_to_ask_runs_that_answer(run: Path, tmp_path: Path) -> None:
    runs = [save_run(tmp_path / name, name) for name in ("decoder", "encoder", "encoder-decoder")]
    found = client(run, *runs).get("/models").json()
    assert [one["answers"] for one in found] == [True, False, False, False]


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_reply_is_that_of_ask(indexed: Path, page: TestClient, *, calibrated: bool) -> None:
    if calibrated:
        calibrate(indexed)
    found = page.post("/ask", json=body(expected="Rome")).json()
    reply = replied(indexed, [Example(text=QUESTION, answer="Rome")])
    assert found["calibrated"] is calibrated
    for name in ("question", "subject", "answer", "best_guess", "confidence", "reason"):
        assert found[name] == getattr(reply, name), name
    assert {one["name"]: one["value"] for one in found["signals"]} == reply.signals  # type: ignore[attr-defined]
    assert all(one["definition"] == SIGNALS[one["name"]] for one in found["signals"])
    assert found["evidence"]["verdict"] == "recalled"
    assert found["evidence"]["meaning"] == VERDICTS["recalled"]


@pytest.mark.parametrize(
    "edit",
    [
        edits.zero("decoder.0.heads.0", at="born"),
        edits.zero("decoder.0.heads.0", at=20),
        edits.patch("decoder.0.residual", "Where was Ida Holm born?"),
        edits.zero("decoder.0.heads.0", at="each-new"),
    ],
    ids=lambda edit: str(edit.at),
)
def test_an_edit_is_of_the_question(edit: edits.Edit, run: Path, page: TestClient) -> None:
    reply = page.post("/ask", json=body(edit=edit.to_toml()))
    assert reply.status_code == 200, reply.text
    (expected,) = generate(Run.load(run), [QUESTION], edit=edit)
    assert reply.json()["best_guess"] == expected.strip()
    names = [one["name"] for one in reply.json()["signals"]]
    assert [name for name in names if name in OWN] == list(OF_ANSWER)
    view = page.post("/look", json=body(edit=edit.to_toml(), generated=[]))
    assert view.status_code == 200, view.text


@pytest.mark.usefixtures("indexed")
def test_evidence_has_its_place_but_no_path(page: TestClient, folder: Path) -> None:
    answer = page.post("/ask", json=body())
    (passage,) = answer.json()["evidence"]["passages"]
    assert passage == {"place": "text.txt:3", "parts": ["Mia Bell was born in ", "Rome", "."]}
    assert str(folder) not in answer.text


def test_many_sentences_are_counted_and_some_shown(
    regard: Command, folder: Path, run: Path, page: TestClient
) -> None:
    many = "Mia Bell was born in Rome.\n" * (MAX_PASSAGES + 5)
    (folder / "many.txt").write_text(many, "utf-8")
    succeeded(regard("index", "many.txt", "--out", run / RUN_INDEX))
    evidence = page.post("/ask", json=body()).json()["evidence"]
    assert (evidence["sentences"], len(evidence["passages"])) == (MAX_PASSAGES + 5, MAX_PASSAGES)


def test_a_doubtful_question_gets_a_guess(run: Path, page: TestClient) -> None:
    loaded = Run.load(run)
    wrong = [Example(text=one.text, answer="unknown") for one in NEW]
    calibration = calibrate_run(loaded, wrong, loaded.environment(), max_error=0.05)
    save_calibration(run, calibration)
    found = page.post("/ask", json=body()).json()
    assert found["answer"] is None
    assert found["best_guess"] == "Rome"


def test_any_text_gets_a_reply(page: TestClient) -> None:
    for question in ["", " ", "Ωραίος", "x" * MAX_CHARACTERS, "\x1b[31m", "<b>"]:
        answer = page.post("/ask", json=body(question))
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["reason"] is None) == (found["answer"] is not None)


@pytest.mark.parametrize("name", [RUN_INDEX, "calibration.json"])
def test_damaged_files_are_named_without_their_path(name: str, run: Path, page: TestClient) -> None:
    (run / name).write_bytes(b"damaged")
    answer = page.post("/ask", json=body())
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(f"run/{name}: is ")
    assert str(run.parent) not in answer.text


def test_a_finetuned_run_reads_the_index_of_its_parent(indexed: Path, tmp_path: Path) -> None:
    child = Path(shutil.copytree(indexed, tmp_path / "child"))
    (child / RUN_INDEX).unlink()
    origin = json.loads((child / "origin.json").read_text())
    origin["ancestors"] = [{"run": str(indexed), "fingerprint": origin["fingerprint"]}]
    (child / "origin.json").write_text(json.dumps(origin))
    assert client(child).post("/ask", json=body()).json()["evidence"]["documents"] == 1
