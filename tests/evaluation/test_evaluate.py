"""Choosing a signal on one half and measuring it on the other."""

import csv
import json
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_answers import made_answer
from regard.corpus.index import index_documents
from regard.decoding.generate import Generated, generate_answers
from regard.errors import UserError
from regard.evaluation.answers import Answer, answer
from regard.evaluation.evaluate import (
    Evaluation,
    choose_signal,
    evaluate_questions,
    save_answers,
    signal_aurocs,
)
from regard.evaluation.report import evaluation_report
from regard.metrics import accuracy
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.text.corpus import Document
from regard.uncertainty import signals
from regard.uncertainty.abstention import Guarantee
from regard.uncertainty.calibration import calibrate_run
from tiny import BIOGRAPHIES, PEOPLE


def answers(n: int, **signals: np.ndarray) -> list[Answer]:
    return [
        made_answer(str(i), "", None, **{name: float(of[i]) for name, of in signals.items()})  # type: ignore[arg-type]
        for i in range(n)
    ]


def test_the_telling_signal_is_chosen() -> None:
    draw = np.random.default_rng(0)
    trusted = answers(60, good=draw.normal(3, 1, 60), noise=draw.normal(0, 1, 60))
    doubted = answers(80, good=draw.normal(0, 1, 80), noise=draw.normal(0, 1, 80))
    chosen = choose_signal(trusted, doubted)
    assert chosen.signal == "good"
    assert chosen.auroc == chosen.all_aurocs["good"] > 0.9


def test_the_best_of_many_useless_signals_is_not_reported_as_good() -> None:
    """Chosen and reported on the same people, the best of 200 would seem to tell."""
    draw = np.random.default_rng(1)
    names = [f"noise {i}" for i in range(200)]
    trusted = answers(30, **{name: draw.normal(size=30) for name in names})
    doubted = answers(30, **{name: draw.normal(size=30) for name in names})
    reported = [choose_signal(trusted, doubted, seed=seed).auroc for seed in range(20)]
    assert float(np.mean(reported)) == pytest.approx(0.5, abs=0.1)


def test_every_signal_has_its_auroc_on_all_answers() -> None:
    trusted = answers(3, good=np.array([3.0, 4, 5]), bad=np.array([0.0, 0, 2]))
    doubted = answers(2, good=np.array([1.0, 2]), bad=np.array([1.0, 1]))
    found = signal_aurocs(trusted, doubted)
    areas = {name: area.value for name, area in found.items()}
    assert areas == {"confidence": 0.5, "good": 1, "bad": 1 / 3}
    assert found["good"].low < 1
    assert signal_aurocs(trusted, doubted[:1]) == {}
    with pytest.raises(ValueError, match="at least two"):
        choose_signal(trusted, doubted[:1])


def given_answer(*, right: bool, abstained: bool) -> Answer:
    return made_answer("?", "Rome" if right else "Oslo", "Rome", abstained=abstained)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_risk_is_that_of_the_answers_given(kinds: list[tuple[bool, bool]]) -> None:
    found = Evaluation(
        answers=[given_answer(right=right, abstained=abstained) for right, abstained in kinds],
        accuracy=accuracy([right for right, _ in kinds]),
        confidence=None,
        guarantee=Guarantee(
            max_error=0.2, level=0.95, threshold=0.5, questions=9, answered=9, wrong=0
        ),
    )
    rights = [right for right, abstained in kinds if not abstained]
    assert found.risk == (rights.count(False) / len(rights) if rights else None)
    figures = found.figures()
    assert figures["answered"] == len(rights)
    assert figures["coverage"] == len(rights) / len(kinds)
    assert f"answered: {len(rights)} of {len(kinds)} questions" in found.lines()[1]


def test_answers_are_written_by_the_name_of_the_file(tmp_path: Path) -> None:
    answers = [given_answer(right=False, abstained=True), given_answer(right=True, abstained=False)]
    for name in ("p.txt", "p.csv", "p.jsonl"):
        save_answers(answers, tmp_path / name)
    assert (tmp_path / "p.txt").read_text("utf-8") == "Oslo\nRome\n"
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["abstained"] for row in rows] == ["True", "False"]
    records = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text("utf-8").splitlines()]
    assert [one["predicted"] for one in records] == ["Oslo", "Rome"]


def test_an_empty_question_has_no_signal_to_choose(trained: Path) -> None:
    run = Run.load(trained)
    questions = [Example(text=f"Where was {name} born?", answer="Rome") for name, _ in PEOPLE]
    guesses = answer(run, questions, run.environment())
    asked = [
        Example(text=question.text, answer=guess.answered if right else "elsewhere")
        for question, guess in zip(questions, guesses, strict=True)
        for right in (True, False)
    ] + [Example(text=" ", answer="Rome")]
    found = evaluate_questions(run, asked, run.environment())
    assert found.accuracy
    assert found.accuracy.value == len(questions) / len(asked)
    assert found.confidence
    signal = "weakest token"
    found = replace(found, confidence=replace(found.confidence, signal=signal))
    made = evaluation_report(run, found, run.environment(), source="pairs.tsv", seconds=1.0)
    wrong = next(table for table in made.tables if table.title == "Wrong")
    assert wrong.rows[-1].confidence == -inf
    assert wrong.rows[-1].answer.question == " "


def test_questions_in_memory_that_calibrate_nothing(trained: Path) -> None:
    run = Run.load(trained)
    asked = Example(text="Ada?", answer="Rome")
    for questions, says in (([], "^there are no questions"), ([asked], "^'Ada[?]': .* at least 3")):
        with pytest.raises(UserError, match=says):
            calibrate_run(run, questions, run.environment(), max_error=0.2)


def test_a_calibrated_run_generates_its_answers_once(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.load(trained)
    names = [name.split() for name, _ in PEOPLE]
    documents = [Document(text, f"text.txt:{i}") for i, text in enumerate(BIOGRAPHIES, 1)]
    asked = [
        Example(text=f"Where was {one[0]} {other[1]} born?", answer="Rome")
        for one in names
        for other in names
        if one != other
    ] + [Example(text=" ", answer="Rome")]
    index = index_documents(documents)
    calibration = calibrate_run(run, asked[:-1], run.environment(), max_error=0.2, index=index)
    replies = answer(run, asked, run.environment(), calibration=calibration, index=index)
    generated: list[list[int]] = []

    def counted(run: Run, rows: list[list[int]], *, max_new_tokens: int) -> list[Generated]:
        generated.extend(rows)
        return generate_answers(run, rows, max_new_tokens=max_new_tokens)

    monkeypatch.setattr(signals, "generate_answers", counted)
    found = evaluate_questions(
        run, asked, run.environment(), calibration=calibration, index=index
    ).answers
    assert len(generated) == len(asked) - 1, "an empty question is not read"
    assert {one.abstained for one in found} == {False, True}
    assert found == replies
