"""regard ask and regard calibrate, with right and wrong input."""

import io
import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.corpus.relations import Relation
from regard.runs.training_text import KNOWN_ANSWERS, KnownAnswers
from tiny import PEOPLE, Command, Outcome, refused, succeeded

pytestmark = pytest.mark.usefixtures("run")


@pytest.fixture(autouse=True)
def new_questions(folder: Path) -> Path:
    """56 questions about people in no training; the run answers Rome to everything."""
    names = [name.split() for name, _ in PEOPLE]
    crossed = [f"{first} {last}" for first, own in names for _, last in names if last != own]
    lines = [f"Where was {name} born?\tRome\n" for name in crossed]
    (folder / "new.tsv").write_text("".join(lines), "utf-8")
    return folder / "new.tsv"


@pytest.fixture
def indexed(regard: Command, run: Path) -> None:
    """The run has an index of text.txt."""
    succeeded(regard("index", "text.txt", "--out", run / "corpus.index"))


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def ask(regard: Command, *questions: str) -> list[dict[str, Any]]:
    return records(succeeded(regard("ask", "run", *questions, "--json")).out)


def calibrate(regard: Command, *options: str) -> Outcome:
    return succeeded(regard("calibrate", "run", "new.tsv", "--max-error", "20%", *options))


@pytest.mark.usefixtures("indexed")
def test_answers_have_confidence_and_evidence(regard: Command) -> None:
    found = succeeded(regard("ask", "run", "Where was Mia Bell born?", "Where was Max Frey born?"))
    first, count, sentence, second = found.out.splitlines()
    assert first.startswith("Rome · confidence ")
    assert first.endswith("· supported")
    assert count == "  1 sentence on Mia Bell with this answer"
    assert sentence == "  text.txt:3 Mia Bell was born in *Rome*."
    assert second.endswith("· silent")


def test_without_an_index_a_line_says_how_to_make_one(regard: Command, folder: Path) -> None:
    (folder / "run/corpus.index").unlink()
    asked = ("ask", "run", "Where was Mia Bell born?")
    without = succeeded(regard(*asked))
    assert without.err == (
        "no evidence: run has no index of its text; to make one: "
        "regard index TEXT --out run/corpus.index\n"
    )
    succeeded(regard("index", "text.txt", "--out", "run/corpus.index"))
    found = succeeded(regard(*asked))
    assert not found.err
    assert found.out.startswith(without.out.strip())


def know(folder: Path) -> None:
    """What training ends with where a relation can be learned: places after "born in" answer."""
    known = KnownAnswers(
        answers=("Oslo", "Rome"), relation=Relation(weights={"-2…: born in": 4.0}, bias=-2.0)
    )
    known.save(folder / "run")


def test_the_text_contradicts_a_wrong_answer(regard: Command, folder: Path) -> None:
    text = (folder / "text.txt").read_text("utf-8").splitlines()
    said = [*text, "Max Frey, a baker of Rome, was born in Oslo.", "Max Frey left Bergen."]
    (folder / "text.txt").write_text("\n".join(said) + "\n", "utf-8")
    succeeded(regard("index", "text.txt", "--out", "run/corpus.index"))
    know(folder)
    lines = succeeded(regard("ask", "run", "Where was Max Frey born?")).out.splitlines()
    assert lines[0].endswith("· unsupported")
    assert lines[1:] == [
        "  1 sentence on Max Frey with this answer",
        "  text.txt:9 Max Frey, a baker of *Rome*, was born in Oslo.",
        "  the text says Oslo, 2 times",
        "  text.txt:8 Max Frey was born in *Oslo*.",
        "  text.txt:9 Max Frey, a baker of Rome, was born in *Oslo*.",
    ]


def test_no_verdict_depends_on_other_questions(regard: Command, folder: Path) -> None:
    """An answer given with one question was known to the next, which changed its verdict."""
    with (folder / "text.txt").open("a", encoding="utf-8") as text:
        text.write("Uma Holt was born in Bergen.\n")
    succeeded(regard("index", "text.txt", "--out", "run/corpus.index"))
    know(folder)
    asked = ["Where was Uma Holt born?", "Where was Mia Bell born?\tBergen"]
    alone, with_others = (ask(regard, *some)[0]["evidence"] for some in (asked[:1], asked))
    assert alone == with_others
    assert alone["verdict"] == "silent"


def test_damaged_known_answers_are_refused(regard: Command, folder: Path) -> None:
    (folder / "run" / KNOWN_ANSWERS).write_text("{", "utf-8")
    found = regard("ask", "run", "Where was Mia Bell born?")
    refused(found, "known_answers.json: holds no known answers", "delete it, or repeat")


def test_an_ancestor_that_is_missing_is_named(regard: Command, folder: Path) -> None:
    """Its index would give the evidence."""
    (folder / "run/corpus.index").unlink()
    origin = json.loads((folder / "run/origin.json").read_text())
    gone = {"run": str(folder / "gone")}
    (folder / "run/origin.json").write_text(json.dumps(origin | {"ancestors": [gone]}))
    with pytest.warns(
        UserWarning,
        match="these ancestors are missing, or were replaced by other runs: .*gone; put them back",
    ):
        found = regard("ask", "run", "Where was Mia Bell born?")
    assert found.code == 0
    assert len(found.out.splitlines()) == 1


def test_any_text_gets_a_reply(regard: Command) -> None:
    for question in ["Ωραίος", "他在哪里出生？", "x" * 10_000, "no question", "\x1b[31m", "\udcff"]:
        asked = ["--json", "run", "--", question, "Where was Mia Bell born?"]
        odd, fine = records(succeeded(regard("ask", *asked)).out)
        assert fine["answer"] == "Rome"
        assert (odd["reason"] is None) == (odd["answer"] is not None)
        assert odd["reason"] is not None or odd["best_guess"] is not None
        shown = succeeded(regard("ask", "run", "--", question)).out
        assert "\x1b" not in shown
        assert len(shown.splitlines()) == 1


@pytest.mark.usefixtures("indexed")
def test_with_an_unknown_name_there_is_a_best_guess(regard: Command) -> None:
    (line,) = succeeded(regard("ask", "run", "Where was Qqxq Bell born?")).out.splitlines()
    assert re.fullmatch(
        r"I don't know. \(best guess Rome, confidence 0.\d\d; question 1: the vocabulary has no "
        r"'Q'; no document names Qqxq Bell\)",
        line,
    )


@pytest.mark.usefixtures("indexed")
def test_evaluate_abstains_like_ask(regard: Command, folder: Path, new_questions: Path) -> None:
    calibrate(regard)
    mixed = new_questions.read_text("utf-8") + "Where was Mia Bell born?\tOslo\n"
    (folder / "mixed.tsv").write_text(mixed, "utf-8")
    files = ("--predictions", "p.jsonl", "--json", "f.json", "--report", "r.html")
    shown = succeeded(regard("evaluate", "run", "mixed.tsv", *files)).out
    lines = mixed.splitlines()
    asked = ask(regard, *lines)
    written = records((folder / "p.jsonl").read_text("utf-8"))
    assert [one["abstained"] for one in written] == [one["answer"] is None for one in asked]
    assert [one["confidence"] for one in written] == pytest.approx(
        [one["confidence"] for one in asked]
    )
    verdicts = [one["evidence"]["verdict"] for one in asked]
    assert [one["verdict"] for one in written] == verdicts
    figures = json.loads((folder / "f.json").read_text("utf-8"))
    given = [one for one in written if not one["abstained"]]
    assert figures["answered"] == len(given) > 0
    assert figures["coverage"] == len(given) / len(lines)
    assert figures["risk"] == sum(o["predicted"] != o["answer"] for o in given) / len(given)
    assert figures["verdicts"] == dict(Counter(verdicts))
    assert f"answered: {len(given)} of {len(lines)} questions" in shown
    page = (folder / "r.html").read_text("utf-8")
    assert "calibrated to at most 0.2 wrong" in page
    assert "<mark>Rome</mark>" in page


def test_questions_come_from_stdin(regard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte order mark is no part of the first."""
    data = io.BytesIO(b"\xef\xbb\xbfWhere was Mia Bell born?\n\r\nNo\fbody\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
    first, _, _ = ask(regard, "-")
    assert first["question"] == "Where was Mia Bell born?"
    assert first["reason"] is None


def test_a_calibrated_run_answers(regard: Command) -> None:
    done = calibrate(regard)
    assert done.new == ["run/calibration.json"]
    assert "of them wrong: at most" in done.out
    assert "lowest confidence answered: 0." in done.out
    assert "the files of training questions are not recorded" in done.out
    assert "0 of them wrong" in done.out
    assert succeeded(regard("ask", "run", "Where was Ada Lange born?")).out.startswith("Rome")


def test_repeated_questions_count_once(regard: Command, new_questions: Path) -> None:
    calibrate(regard)
    once = (new_questions.parent / "run/calibration.json").read_bytes()
    new_questions.write_text(3 * new_questions.read_text("utf-8"), "utf-8")
    with pytest.warns(UserWarning, match="112 of 168 questions repeat others"):
        calibrate(regard)
    assert (new_questions.parent / "run/calibration.json").read_bytes() == once


def test_without_a_threshold_the_run_abstains(regard: Command, new_questions: Path) -> None:
    wrong = new_questions.read_text("utf-8").replace("Rome", "unknown")
    new_questions.write_text(wrong, "utf-8")
    done = calibrate(regard, "--max-error", "5%")
    assert "always abstains" in done.out
    assert "59 answers would do" in done.out
    reply = succeeded(regard("ask", "run", "Where was Mia Bell born?")).out
    assert reply.startswith("I don't know. (best guess Rome, confidence 0.")


def test_a_calibration_is_of_single_questions(regard: Command, folder: Path) -> None:
    turns = json.dumps({"turns": [{"question": "Mia", "answer": "Rome"}]})
    (folder / "turn.jsonl").write_text(turns, "utf-8")
    command = ("ask", "run", "Where was Mia Bell born?", "--history", "turn.jsonl", "--json")
    plain = succeeded(regard(*command)).out
    calibrate(regard)
    assert succeeded(regard(*command)).out == plain


def test_trained_questions_are_refused(regard: Command, folder: Path) -> None:
    origin = folder / "run/origin.json"
    table = json.loads(origin.read_text()) | {"inputs": ["pairs.tsv"]}
    origin.write_text(json.dumps(table))
    outcome = regard("calibrate", "run", "pairs.tsv", "--max-error", "20%")
    refused(outcome, "pairs.tsv:1", "Ada Finch", "other questions")
    done = calibrate(regard)
    assert "not checked" not in done.out
    origin.write_text(json.dumps(table | {"inputs": ["pairs.tsv", "gone.tsv"]}))
    done = calibrate(regard)
    assert "not checked" in done.out
    assert "gone.tsv" in done.out
    assert "pairs.tsv" not in done.out


def test_a_calibration_of_other_weights_is_refused(regard: Command, folder: Path) -> None:
    calibrate(regard)
    path = folder / "run/calibration.json"
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | {"weights": "0"}))
    refused(regard("ask", "run", "Who?"), "other weights", "calibrate")


def test_a_calibration_is_of_one_precision(regard: Command) -> None:
    calibrate(regard)
    for command in (["ask", "run", "Who?"], ["evaluate", "run", "new.tsv"]):
        refused(regard(*command, "--precision", "bfloat16"), "in float32, not bfloat16")


def test_a_calibration_with_an_index_needs_it(regard: Command, folder: Path) -> None:
    (folder / "run/corpus.index").unlink()
    succeeded(regard("index", "text.txt", "--out", "a.index"))
    calibrate(regard, "--index", "a.index")
    refused(regard("ask", "run", "Who?"), "--index")
    refused(regard("evaluate", "run", "new.tsv"), "copy it to run/corpus.index")
    assert succeeded(regard("ask", "run", "Who?", "--index", "a.index")).code == 0


@pytest.mark.usefixtures("indexed")
def test_answers_to_calibration_questions_are_no_signals(
    regard: Command, folder: Path, new_questions: Path
) -> None:
    """New questions have none, so the bound would not hold for them."""
    new_questions.write_text(new_questions.read_text("utf-8").replace("Rome", "Bergen"), "utf-8")
    calibrate(regard)
    calibration = json.loads((folder / "run/calibration.json").read_text("utf-8"))
    assert "Bergen" not in calibration["known"]["answers"]


def test_answers_of_missing_training_files_stay_known(regard: Command, folder: Path) -> None:
    KnownAnswers(answers=("Bergen", "Rome")).save(folder / "run")
    origin = folder / "run/origin.json"
    table = json.loads(origin.read_text()) | {"inputs": ["pairs.tsv", "gone.tsv"]}
    origin.write_text(json.dumps(table))
    calibrate(regard)
    calibration = json.loads((folder / "run/calibration.json").read_text("utf-8"))
    assert calibration["known"]["answers"] == ["Bergen", "Oslo", "Rome"]


def test_conversations_calibrate_nothing(regard: Command, folder: Path) -> None:
    turns = [{"question": who, "answer": "Rome"} for who in ("Who?", "Ada?")]
    (folder / "turns.jsonl").write_text(3 * f"{json.dumps({'turns': turns})}\n", "utf-8")
    refused(regard("calibrate", "run", "turns.jsonl", "--max-error", "20%"), "several turns")


@pytest.mark.usefixtures("indexed")
def test_confidence_does_not_depend_on_the_expected_answer(regard: Command) -> None:
    calibrate(regard)
    question = "Where was Max Frey born?"
    (without,) = ask(regard, question)
    (given,) = ask(regard, f"{question}\tOslo")
    assert given["signals"] == without["signals"]
    assert given["confidence"] == without["confidence"]


def test_what_documents_state_is_learned_from_training_questions(
    regard: Command, folder: Path
) -> None:
    origin = folder / "run/origin.json"
    table = json.loads(origin.read_text()) | {"inputs": ["pairs.tsv"]}
    origin.write_text(json.dumps(table))
    places = [place for _, place in PEOPLE]
    lines = [
        f"{name} came from {place} and went to {other}.\n"
        for (name, place), other in zip(PEOPLE, places[1:] + places[:1], strict=True)
    ]
    (folder / "two.txt").write_text("".join(lines), "utf-8")
    succeeded(regard("index", "two.txt", "--out", "run/corpus.index"))
    calibrate(regard)
    asked = [f"Where was {name} born?" for name, _ in PEOPLE]
    found = ask(regard, *asked)
    for reply, line in zip(found, lines, strict=True):
        evidence, signals = reply["evidence"], reply["signals"]
        states = f"from {reply['best_guess']}" in line
        assert (evidence["verdict"] == "supported") == states
        assert (signals["statement"] > 0) == states


def test_a_paraphrase_needs_a_subject(regard: Command, folder: Path) -> None:
    (folder / "new.tsv").write_text("was a?\tRome\n" * 4, "utf-8")
    turns = {
        "turns": [{"question": "Mia", "answer": "Rome"}, {"question": "Ada", "answer": "Rome"}]
    }
    (folder / "turns.jsonl").write_text(f"{json.dumps(turns)}\n" * 2, "utf-8")
    flags = ("--paraphrase", "was {} born?")
    asked = regard("calibrate", "run", "new.tsv", "--max-error", "20%", *flags)
    refused(asked, "new.tsv:1: has no capitalized name")
    refused(regard("evaluate", "run", "turns.jsonl", *flags), "turns.jsonl:1: has several turns")
