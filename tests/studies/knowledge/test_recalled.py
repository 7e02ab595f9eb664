"""Right, wrong and made up."""

from pathlib import Path

import pytest

from regard.evaluation.answers import Answer
from regard.evaluation.confidence import choose_signal
from regard.studies.finding import Verdict
from regard.studies.knowledge.recalled import by_text, judged, recalled


def answers(said: list[str], expected: list[str] | None, probability: list[float]) -> list[Answer]:
    return [
        Answer(
            question=f"Where was {i} born?",
            expected=expected[i] if expected else None,
            answered=place,
            signals={"probability": probability[i]},
        )
        for i, place in enumerate(said)
    ]


def holds(known: list[Answer], unknown: list[Answer]) -> bool:
    chosen = choose_signal(known, unknown)
    return all(n.holds for n in judged(known, unknown, {"Rome", "Oslo"}, chosen))


def test_what_the_claim_wants() -> None:
    places = ["Rome", "Oslo"] * 4
    right = answers(places, places, [0.9] * 8)
    assert holds(right, answers(places, None, [0.1] * 8))
    assert not holds(right, answers(places, None, [0.9] * 8)), "equally sure of both"
    assert not holds(right, answers(["Nowhere"] * 8, None, [0.1] * 8)), "no place"
    wrong = answers(places, places[::-1], [0.9] * 8)
    assert not holds(wrong, answers(places, None, [0.1] * 8)), "nothing is recalled"


def test_the_text_tells_where_made_up_answers_are_all_the_same() -> None:
    known = answers(["Rome", "Oslo", "Bern"], None, [1.0] * 3)
    assert by_text(known, answers(["Paris"] * 3, None, [1.0] * 3)) == 1
    assert by_text(known, answers(["Rome", "Oslo", "Bern"], None, [1.0] * 3)) == 0.5


@pytest.mark.slow
def test_the_verdict() -> None:
    finding = recalled()
    assert finding.verdict is Verdict.HOLDS
    assert finding.table is not None
    assert {row[0] for row in finding.table.rows} == {"right", "wrong", "made up"}


@pytest.mark.slow
def test_hardly_trained_it_has_nothing_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert recalled(people=80, steps=2).verdict is Verdict.FAILS
