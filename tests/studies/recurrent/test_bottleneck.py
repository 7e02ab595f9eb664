"""The bottleneck."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.studies.finding import Verdict
from regard.studies.recurrent.bottleneck import Measured, bottleneck, judged, near_diagonal
from regard.studies.recurrent.casing import Setup, right_case, right_texts
from regard.tasks.examples import Example

ALL = Measured(right={4: 1.0, 24: 1.0}, case=1.0, near=0.9)
WELL = {
    "attention": ALL,
    "attention, token last": ALL,
    "none": Measured(right={4: 0.9, 24: 0.0}, case=1.0),
    "none, half as wide": Measured(right={4: 0.4, 24: 0.0}, case=1.0),
    "none, a quarter as wide": Measured(right={4: 0.1, 24: 0.0}, case=1.0),
    "none, token last": Measured(right={4: 0.9, 24: 0.0}, case=1.0),
}


def test_what_the_claim_wants() -> None:
    assert all(number.holds for number in judged(WELL))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("attention", replace(ALL, right={4: 1.0, 24: 0.5})),
        ("attention", replace(ALL, near=0.2)),
        ("none", ALL),
        ("none", replace(WELL["none"], case=0.5)),
        ("none, half as wide", WELL["none"]),
        ("none, a quarter as wide", WELL["none"]),
    ],
)
def test_other_measurements_would_refute_it(name: str, other: Measured) -> None:
    assert not all(number.holds for number in judged(WELL | {name: other}))


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_diagonal_begins_behind_the_task_token(place: str) -> None:
    setup = Setup(place=place)  # type: ignore[arg-type]
    source = 4 + 10
    weights = torch.zeros(1, 11, source)
    for written in range(10):
        weights[0, written, written + setup.shift] = 1
    assert near_diagonal(weights, setup) == 1
    even = torch.full((1, 11, source), 1 / source)
    # Three characters are near, but two where the diagonal meets an end of the source.
    assert near_diagonal(even, setup) == pytest.approx(29 / 10 / source)


def test_answers_are_compared_in_full_and_by_case() -> None:
    asked = [Example(text="<U> ab", answer="AB"), Example(text="<L> ab c", answer="ab c")]
    assert right_texts(["AB", "ab c"], asked) == 1
    assert right_texts(["AC", "ab c"], asked) == 0.5
    assert right_case(["XY", "zzz"], asked) == 1
    assert right_case(["Xy", "zz 4"], asked) == 0.75


@pytest.mark.parametrize("place", ["first", "last"])
def test_texts_are_new_and_of_one_length(place: str) -> None:
    setup = Setup(place=place, longest=8)  # type: ignore[arg-type]
    texts = setup.texts(8, 20)
    assert {len(question.answer or "") for question in texts} == {8}
    assert setup.lengths == [4, 8]
    for question in texts:
        text = question.text[setup.shift :][:8]
        assert text.lower() == (question.answer or "").lower()


@pytest.mark.slow
def test_nothing_is_written_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert bottleneck(width=16, longest=8, steps=1).verdict is Verdict.FAILS


@pytest.mark.findings
def test_the_verdict(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path_factory.getbasetemp() / "casing"  # all studies ask the same networks
    monkeypatch.setenv("REGARD_CACHE", str(shared))
    assert bottleneck().verdict is Verdict.HOLDS
