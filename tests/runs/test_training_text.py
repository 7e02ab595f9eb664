"""The answers that a run knows: learned by training, found again in it and its descendants."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from regard.cli.main import run as regard
from regard.corpus.index import index_documents
from regard.runs.run import Run
from regard.runs.training_text import KnownAnswers, load_known_answers, training_files
from regard.tasks.examples import Example
from regard.text.corpus import Document
from tiny import MIXED, MODEL, PEOPLE, STEPS, write_data

PLACES = sorted({place for _, place in PEOPLE})
LIVES = [
    f"{name}, a baker of {PLACES[place == PLACES[0]]}. Born in {place}." for name, place in PEOPLE
]
QUESTIONS = [Example(text=f"Where was {name} born?", answer=place) for name, place in PEOPLE]


def test_places_of_work_are_told_from_places_of_birth() -> None:
    index = index_documents([Document(text, f"text.txt:{i}") for i, text in enumerate(LIVES, 1)])
    known = KnownAnswers.learn(QUESTIONS, index)
    assert known.answers == tuple(PLACES)
    assert known.relation is not None
    born, worked = ({f"-1: {word}", f"before: {word}"} for word in ("in", "of"))
    assert known.relation.probability(born) > known.relation.probability(worked)


def test_without_an_index_there_is_no_relation() -> None:
    asked = [*QUESTIONS, Example(text="Where was Uma Holt born?")]
    assert KnownAnswers.learn(asked, None) == KnownAnswers(answers=tuple(PLACES))


def test_training_on_questions_ends_with_their_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the nearest ancestor hold for a run that was trained on none."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    Path("text.txt").write_text("\n".join(LIVES) + "\n", "utf-8")
    small = [*MODEL, *STEPS, *MIXED, "model.context_length=80"]
    assert regard(["pretrain", "text.txt", "--questions", "pairs.tsv", "--out", "a", *small]) == 0
    assert regard(["finetune", "--from", "a", "pairs.tsv", "--out", "b", *STEPS]) == 0
    first, second = (load_known_answers(Run.load(Path(name))) for name in ("a", "b"))
    assert first.answers == tuple(PLACES)
    assert first.relation is not None
    assert second == first  # the text of a run is that of its ancestors
    (Path("b") / "known_answers.json").unlink()
    assert load_known_answers(Run.load(Path("b"))) == first
    nowhere = replace(Run.load(Path("a")), path=tmp_path / "nowhere")
    assert load_known_answers(nowhere) == KnownAnswers()
    origin = json.loads(Path("a/origin.json").read_text("utf-8"))
    Path("a/origin.json").write_text(json.dumps(origin | {"fingerprint": "another"}), "utf-8")
    assert load_known_answers(Run.load(Path("b"))) == KnownAnswers()


def test_questions_are_in_files_of_these_stages_and_suffixes(trained: Path) -> None:
    run = Run.load(trained)
    pretraining = {"stage": "pretraining", "inputs": ["wiki.txt", "q.json", "r.jsonl.gz"]}
    run.origin = {"stage": "finetuning", "inputs": ["pairs.txt"], "ancestors": [pretraining]}
    assert training_files(run) == list(map(Path, ["pairs.txt", "q.json", "r.jsonl.gz"]))
