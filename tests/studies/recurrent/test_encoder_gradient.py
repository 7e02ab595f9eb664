"""The gradient that reaches the encoder."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.runs.run import Run
from regard.studies.finding import Verdict
from regard.studies.recurrent.casing import ATTENTION, NONE, Rows, Setup, body_of, loss
from regard.studies.recurrent.encoder_decoder import (
    Gradients,
    at_inference,
    encoded,
    encoder_gradient,
    gradient,
    gradients,
    judged_gradients,
)

EVEN = Gradients(torch.ones(5), torch.ones(5))
WELL = {
    NONE: Gradients(torch.tensor([1e-6, 1e-4, 1e-2, 0.1, 1.0]), torch.zeros(5)),
    ATTENTION: EVEN,
}


@pytest.fixture(scope="module", params=[False, True])
def asked(request: pytest.FixtureRequest) -> tuple[Run, Rows]:
    setup = Setup(attention=request.param, width=16, longest=8)
    run = setup.plan().run
    return run, Rows.of(run, setup.texts(8, 4))


@pytest.mark.slow
def test_the_loss_is_the_models_own(asked: tuple[Run, Rows]) -> None:
    run, rows = asked
    scores: Tensor = run.model(rows.source, rows.lengths, rows.ids)
    expected = -scores.log_softmax(-1).gather(-1, rows.labels[..., None]).mean()
    _, memory = encoded(run, rows)
    assert loss(run, rows, memory).item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss(run, rows).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_gradient_is_that_of_the_characters(asked: tuple[Run, Rows]) -> None:
    """By differences, of one character of one text."""
    (run, rows), place, step = asked, 6, 1e-6
    run = replace(run, model=copy.deepcopy(run.model).double())
    one = Rows(rows.source[:1], rows.lengths[:1], rows.ids[:1], rows.labels[:1])
    characters, memory = encoded(run, one)
    found = gradient(loss(run, one, memory), characters)[place]
    change = torch.zeros_like(characters)
    body_of(run).encoder.embedding.register_forward_hook(lambda *call: call[-1] + change)

    def changed(entry: int, by: float) -> float:
        change[0, place, entry] = by
        value = loss(run, one, encoded(run, one)[1]).item()
        change[0, place, entry] = 0
        return value

    slopes = [
        (changed(entry, step) - changed(entry, -step)) / (2 * step)
        for entry in range(characters.shape[-1])
    ]
    assert found.item() == pytest.approx(torch.tensor(slopes).norm().item(), rel=1e-4)


def test_without_attention_the_last_state_is_the_only_way(asked: tuple[Run, Rows]) -> None:
    run, rows = asked
    cut = gradients(run, rows).cut
    assert bool((cut == 0).all()) == (body_of(run).attention is None)


def test_answering_changes_all_but_the_weights(asked: tuple[Run, Rows]) -> None:
    texts = Setup(width=16, longest=8).texts(8, 4)
    assert all(number.holds for number in at_inference(asked[0], texts))
    same = {number.name: number.holds for number in at_inference(asked[0], texts[:1] * 2)}
    assert [name for name, holds in same.items() if not holds] == [
        f"change of the {part} by another text" for part in ("source", "last state", "output")
    ]


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_gradients(WELL))
    assert not all(number.holds for number in judged_gradients(WELL | {NONE: EVEN}))
    assert not all(number.holds for number in judged_gradients(WELL | {ATTENTION: WELL[NONE]}))
    elsewhere = WELL[NONE]._replace(cut=torch.ones(5))
    assert not all(number.holds for number in judged_gradients(WELL | {NONE: elsewhere}))


@pytest.mark.slow
def test_a_short_text_fails() -> None:
    short = encoder_gradient(width=16, longest=8)
    assert short.verdict is Verdict.FAILS, "a short text's first character is near its last"
