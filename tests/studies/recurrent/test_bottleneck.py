"""The bottleneck."""

from math import nan
from pathlib import Path

import pytest
import torch

from regard.studies.finding import Verdict
from regard.studies.recurrent.bottleneck import (
    ATTENTION_LAST,
    HALF,
    LAST,
    Rewriting,
    bottleneck,
    error_by_hand,
    judged_rewriting,
    near_diagonal,
    networks,
)
from regard.studies.recurrent.casing import ATTENTION, NONE, Setup, right_case, right_texts
from regard.tasks.examples import Example

ALL = Rewriting(steps=[1, 2], right=[[0.9, 0.9], [1.0, 1.0]], case=[1.0, 1.0], near=0.9)
SOME = Rewriting(steps=[2, 4], right=[[0.4, 0.0], [0.9, 0.1]], case=[1.0, 1.0])
LESS = SOME._replace(right=[[0.1, 0.0], [0.4, 0.0]])
GATED = SOME._replace(right=[[0.5, 0.0], [1.0, 0.4]])
WELL = {
    ATTENTION: ALL,
    ATTENTION_LAST: ALL,
    NONE: SOME,
    LAST: SOME,
    HALF: LESS,
    f"{NONE}, gru": GATED,
    f"{NONE}, lstm": GATED,
}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_rewriting(WELL, "vanilla"))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (ATTENTION, ALL._replace(right=[[0.9, 0.9], [1.0, 0.5]])),
        (ATTENTION, ALL._replace(near=0.2)),
        (ATTENTION_LAST, ALL._replace(right=[[0.9, 0.9], [1.0, 0.5]])),
        (NONE, ALL._replace(near=nan)),
        (NONE, SOME._replace(right=[[0.9, 0.1], [0.9, 0.1]])),
        (NONE, SOME._replace(case=[1.0, 0.5])),
        (LAST, SOME._replace(case=[1.0, 0.5])),
        (HALF, SOME),
        (f"{NONE}, gru", SOME),
        (f"{NONE}, lstm", LESS),
    ],
)
def test_other_measurements_would_refute_it(name: str, other: Rewriting) -> None:
    assert not all(number.holds for number in judged_rewriting(WELL | {name: other}, "vanilla"))


@pytest.mark.slow
def test_vanilla_cells_are_the_default_and_the_others_are_measured_beside_them() -> None:
    assert Setup().cell == "vanilla"
    assert Setup().plan().run.recipe.model.cell == "vanilla"  # type: ignore[union-attr]
    cells = {(setup.cell, setup.place) for setup in networks(Setup()).values()}
    places = ("first", "last")
    assert cells == {(cell, place) for cell in ("vanilla", "gru", "lstm") for place in places}
    without = [setup.cell for setup in networks(Setup(cell="gru")).values() if setup.attention]
    assert without == ["gru", "gru"]


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


def test_attention_by_hand_is_the_models() -> None:
    setup = Setup(attention=True, width=16, longest=8)
    assert error_by_hand(setup.plan().run, setup.texts(8, 5)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "steps"), [("vanilla", 1), pytest.param("lstm", 3, marks=pytest.mark.slow)]
)
def test_nothing_is_written_without_training(
    cell: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    finding = bottleneck(cell=cell, width=16, longest=8, steps=steps)  # type: ignore[arg-type]
    assert finding.verdict is Verdict.FAILS
    assert finding.table is not None
    last = {row[4] for row in finding.table.rows if row[0] == NONE}
    assert last == {str(steps)}


@pytest.mark.findings
def test_the_verdict(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path_factory.getbasetemp() / "casing"  # all studies ask the same networks
    monkeypatch.setenv("REGARD_CACHE", str(shared))
    assert bottleneck().verdict is Verdict.HOLDS
