"""Right, wrong and invented answers."""

from pathlib import Path

import pytest

from made_answers import made_answer
from regard.evaluation.answers import Answer
from regard.studies.finding import Verdict
from regard.studies.knowledge.absent import by_text, judged_signals, named_aurocs, recalled

PLACES = ["Rome", "Oslo"] * 6


def answers(
    said: list[str],
    expected: list[str] | None,
    probability: list[float],
    familiarity: list[float],
) -> list[Answer]:
    return [
        made_answer(
            f"Where was {i} born?",
            place,
            expected[i] if expected else None,
            confidence=probability[i],
            familiarity=familiarity[i],
            agreement=1.0,
        )
        for i, place in enumerate(said)
    ]


MENTIONED = answers(PLACES, [*PLACES[:8], *["Bern"] * 4], [0.9] * 7 + [0.4] * 5, [-1, -2] * 6)
ABSENT = answers(PLACES, None, [0.9] * 7 + [0.4] * 5, [-8.0] * 12)


def holding(mentioned: list[Answer], absent: list[Answer]) -> bool:
    kinds = {
        "right": [a for a in mentioned if a.correct],
        "wrong": [a for a in mentioned if not a.correct],
        "absent": absent,
    }
    absence, wrongness = (
        named_aurocs(mentioned, absent),
        named_aurocs(kinds["right"], kinds["wrong"]),
    )
    return all(n.holds for n in judged_signals(kinds, {"Rome", "Oslo"}, absence, wrongness))


def test_the_claim_needs_both_kinds_of_doubt() -> None:
    assert holding(MENTIONED, ABSENT)
    familiar = answers(PLACES, None, [0.9] * 7 + [0.4] * 5, [-1, -2] * 6)
    assert not holding(MENTIONED, familiar), "absent names are as familiar"
    doubtful = answers(PLACES, None, [0.1] * 12, [-8.0] * 12)
    assert not holding(MENTIONED, doubtful), "probability separates absent people too"
    nowhere = answers(["Nowhere"] * 12, None, [0.9] * 7 + [0.4] * 5, [-8.0] * 12)
    assert not holding(MENTIONED, nowhere), "no place"
    sure = answers(PLACES, [*PLACES[:8], *["Bern"] * 4], [0.9] * 12, [-1, -2] * 6)
    assert not holding(sure, ABSENT), "equally sure of right and wrong"
    all_right = answers(PLACES, PLACES, [0.9] * 12, [-1, -2] * 6)
    assert not holding(all_right, ABSENT), "no wrong answers to rank"
    all_wrong = answers(PLACES, PLACES[::-1], [0.9] * 12, [-1, -2] * 6)
    assert not holding(all_wrong, ABSENT), "nothing is recalled"


def test_the_text_separates_different_answers() -> None:
    known = answers(["Rome", "Oslo", "Bern"], None, [1.0] * 3, [0.0] * 3)
    assert by_text(known, answers(["Paris"] * 3, None, [1.0] * 3, [0.0] * 3)) == 1
    assert by_text(known, answers(["Rome", "Oslo", "Bern"], None, [1.0] * 3, [0.0] * 3)) == 0.5


@pytest.mark.slow
def test_the_verdict() -> None:
    """Of three seeds: where few answers are wrong, the order of right and wrong ones is chance."""
    finding = recalled.over_seeds(range(3))
    assert finding.held >= 2
    for row in finding.rows:
        if not row.name.startswith("right / wrong: AUROC"):
            assert row.mark == "3 of 3", row.name
    assert finding.table is not None
    assert {row[0] for row in finding.table.rows} == {"right", "wrong", "absent"}


@pytest.mark.slow
def test_hardly_trained_it_recalls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert recalled(people=80, steps=2).verdict is Verdict.FAILS
