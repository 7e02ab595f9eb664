"""Answers about absent people: guesses, doubt and bias."""

from pathlib import Path

import pytest

from made_answers import made_answer
from regard.errors import UserError
from regard.evaluation.answers import Answer
from regard.studies.finding import Measurement
from regard.studies.knowledge.absent import (
    ANSWERED,
    CHANCE,
    CHILD,
    COMMON,
    CONFIDENCE,
    HOME,
    IN_DATA,
    ORPHAN,
    PROBABILITY,
    RIGHT,
    bias,
    born_elsewhere,
    by_text,
    counted,
    judged_guesses,
    judged_shares,
    judged_signals,
    named_aurocs,
    recalled,
)
from regard.studies.knowledge.fictional import homes, small_world
from tiny_studies import broken, needs_every_measurement

OTHER = {HOME: 0.45, CHANCE: 0.15, COMMON: 0.3, RIGHT: 0.15, CONFIDENCE: 0.8}
INFORMATIVE = {HOME: 0.65, CHANCE: 0.15, COMMON: 0.3, RIGHT: 0.55, CONFIDENCE: 0.9}


def test_fallback_needs_every_measurement() -> None:
    needs_every_measurement(
        judged_guesses,
        (OTHER, INFORMATIVE),
        (OTHER, INFORMATIVE | {RIGHT: 0.2}),
        (OTHER, INFORMATIVE | {HOME: 0.2}),
        (OTHER, INFORMATIVE | {CONFIDENCE: 0.1}),
        (OTHER | {HOME: 0.15}, INFORMATIVE),
        (OTHER | {COMMON: 0.05}, INFORMATIVE),
        (OTHER | {RIGHT: 0.5}, INFORMATIVE),
    )


def test_shares_are_counted() -> None:
    guesses = counted(
        ["Rome", "Rome", "Oslo", "Bern"],
        ["Rome", "Oslo", "Oslo", "Rome"],
        ["Bern", "Rome", "Rome", "Oslo"],
        "Rome",
    )
    assert guesses == {HOME: 0.5, CHANCE: 6 / 16, COMMON: 0.5, RIGHT: 0.25}


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


def judged(mentioned: list[Answer], absent: list[Answer]) -> list[Measurement]:
    kinds = {
        "right": [a for a in mentioned if a.correct],
        "wrong": [a for a in mentioned if not a.correct],
        "absent": absent,
    }
    aurocs = named_aurocs(mentioned, absent), named_aurocs(kinds["right"], kinds["wrong"])
    return list(judged_signals(kinds, {"Rome", "Oslo"}, *aurocs))


def test_recalled_needs_both_kinds_of_doubt() -> None:
    familiar = answers(PLACES, None, [0.9] * 7 + [0.4] * 5, [-1, -2] * 6)
    less_probable = answers(PLACES, None, [0.1] * 12, [-8.0] * 12)
    no_places = answers(["Nowhere"] * 12, None, [0.9] * 7 + [0.4] * 5, [-8.0] * 12)
    equally_sure = answers(PLACES, [*PLACES[:8], *["Bern"] * 4], [0.9] * 12, [-1, -2] * 6)
    all_right = answers(PLACES, PLACES, [0.9] * 12, [-1, -2] * 6)
    all_wrong = answers(PLACES, PLACES[::-1], [0.9] * 12, [-1, -2] * 6)
    needs_every_measurement(
        judged,
        (MENTIONED, ABSENT),
        *((MENTIONED, absent) for absent in (familiar, less_probable, no_places)),
        *((mentioned, ABSENT) for mentioned in (equally_sure, all_right, all_wrong)),
    )


def test_the_text_separates_different_answers() -> None:
    known = answers(["Rome", "Oslo", "Bern"], None, [1.0] * 3, [0.0] * 3)
    assert by_text(known, answers(["Paris"] * 3, None, [1.0] * 3, [0.0] * 3)) == 1
    assert by_text(known, answers(["Rome", "Oslo", "Bern"], None, [1.0] * 3, [0.0] * 3)) == 0.5


@pytest.mark.findings
def test_the_verdict() -> None:
    """Of three seeds: where few answers are wrong, the order of right and wrong ones is chance."""
    finding = recalled.over_seeds(range(3))
    assert finding.held >= 2
    for row in finding.rows:
        if not row.name.startswith("right / wrong: AUROC"):
            assert row.mark == "3 of 3", row.name
    assert finding.table is not None
    assert {row[0] for row in finding.table.rows} == {"right", "wrong", "absent"}


BIASED = {IN_DATA: 0.3, PROBABILITY: 0.28, ANSWERED: 0.6, CHILD: 0.8, ORPHAN: 0.05}


@pytest.mark.parametrize(
    ("change", "which"), [({PROBABILITY: 0.05}, 0), ({ANSWERED: 0.3}, 1), ({CHILD: 0.3}, 2)]
)
def test_each_source_of_bias_is_measured(change: dict[str, float], which: int) -> None:
    assert broken(judged_shares(BIASED)) == []
    assert [x.holds for x in judged_shares(BIASED | change)] == [i != which for i in range(3)]


def test_the_childs_questions_are_about_people_born_elsewhere() -> None:
    world = small_world(160, 0.8, 0)
    chosen, home = born_elsewhere(world), homes(world)
    assert chosen
    assert all(p.group == "qa_train" and p.place != home[p.name] for p in chosen)


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["correlation=1", "people=80"])
def test_nobody_born_elsewhere_stops_in_one_line(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"^bias: people: of .* nobody in QA training.*$"):
        bias.with_texts([changed])
