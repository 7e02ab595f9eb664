"""The bottleneck, and probes of the states."""

from math import nan

import pytest
import torch

from regard.studies.recurrent.bottleneck import (
    ATTENTION_LAST,
    DECODER,
    ENCODER,
    HALF,
    LAST,
    UNTRAINED,
    Probed,
    Rewriting,
    accuracy,
    error_by_hand,
    judged_probes,
    judged_rewriting,
    near_diagonal,
    networks,
    r_squared,
)
from regard.studies.recurrent.casing import ATTENTION, NONE, Setup, right_case, right_texts
from regard.tasks.examples import Example
from tiny_studies import needs_every_measurement


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


def states_with(*values: torch.Tensor) -> torch.Tensor:
    """States that hold these values along random directions, and noise."""
    generator = torch.Generator().manual_seed(1)
    states = 0.01 * torch.randn(*values[0].shape, 16, generator=generator)
    for one in values:
        direction = torch.randn(16, generator=generator)
        states = states + one[..., None] * direction
    return states


def test_a_probe_finds_what_is_there_and_nothing_else() -> None:
    generator = torch.Generator().manual_seed(2)
    place = torch.arange(10).expand(90, 10)
    task = torch.randint(2, (90, 1), generator=generator).expand(90, 10)
    both, none = states_with(place, task), states_with(torch.zeros(90, 10))
    assert r_squared(both, place) > 0.99
    assert accuracy(both, task) == 1
    assert r_squared(none, place) < 0.1
    # A coin told 300 times, in 30 rows of ten: four standard errors of 30 coins.
    assert accuracy(none, task) < 0.5 + 4 * 0.5 / 30**0.5


def test_bottleneck_needs_every_measurement() -> None:
    every = Rewriting(steps=[1, 2], right=[[0.9, 0.9], [1.0, 1.0]], case=[1.0, 1.0], near=0.9)
    some = Rewriting(steps=[2, 4], right=[[0.4, 0.0], [0.9, 0.1]], case=[1.0, 1.0])
    fewer = some._replace(right=[[0.1, 0.0], [0.4, 0.0]])
    gated = some._replace(right=[[0.5, 0.0], [1.0, 0.4]])
    gru, lstm = f"{NONE}, gru", f"{NONE}, lstm"
    found = {ATTENTION: every, ATTENTION_LAST: every, NONE: some, LAST: some, HALF: fewer}
    found |= {gru: gated, lstm: gated}
    others = (
        (ATTENTION, every._replace(right=[[0.9, 0.9], [1.0, 0.5]])),
        (ATTENTION, every._replace(near=0.2)),
        (ATTENTION_LAST, every._replace(right=[[0.9, 0.9], [1.0, 0.5]])),
        (NONE, every._replace(near=nan)),
        (NONE, some._replace(right=[[0.9, 0.1], [0.9, 0.1]])),
        (NONE, some._replace(case=[1.0, 0.5])),
        (LAST, some._replace(case=[1.0, 0.5])),
        (HALF, some),
        (gru, some),
        (lstm, fewer),
    )
    needs_every_measurement(
        judged_rewriting,
        (found, "vanilla"),
        *((found | {name: other}, "vanilla") for name, other in others),
    )


def test_probing_needs_every_measurement() -> None:
    read = {
        (side, what): 1.0
        for side in (ENCODER, DECODER)
        for what in ("position", "task", "character")
    }
    attention = Probed(read=read | {(DECODER, "character"): 0.4}, last=[0.1, 0.9], guess=0.1)
    none = Probed(read=read, last=[0.9, 0.4], guess=0.1)
    untrained = Probed(read=dict.fromkeys(read, 0.1), last=[0.1, 0.1], guess=0.1)
    found = {ATTENTION: attention, NONE: none, UNTRAINED: untrained}

    def without(lost: tuple[str, str]) -> dict[str, Probed]:
        network = NONE if lost == (DECODER, "character") else ATTENTION
        one = found[network]
        return found | {network: one._replace(read=one.read | {lost: 0.3})}

    needs_every_measurement(
        judged_probes,
        (found,),
        *((without(lost),) for lost in read),
        (found | {ATTENTION: attention._replace(last=[0.9, 0.9])},),
    )
