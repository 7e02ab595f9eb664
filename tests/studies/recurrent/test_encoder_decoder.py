"""Gradients, positions and teacher forcing of an encoder and a decoder."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.positions import OneHot
from regard.runs.run import Run
from regard.studies.recurrent.casing import ATTENTION, NONE, Rows, Setup, answers, body_of, loss
from regard.studies.recurrent.encoder_decoder import (
    ONE_HOT,
    SINES,
    WITHOUT,
    Gradients,
    Roles,
    add_positions,
    at_inference,
    encoded,
    forced_ids,
    free_ids,
    gradient,
    gradients,
    judged_encodings,
    judged_gradients,
    judged_roles,
    one_hot_is_learned,
    placed_run,
)
from tiny_studies import broken, needs_every_measurement

SETUPS = {attention: Setup(attention=attention, width=16, longest=8) for attention in (False, True)}


@cache
def untrained(attention: bool) -> Run:
    return SETUPS[attention].plan().run


@pytest.fixture(params=SETUPS)
def asked(request: pytest.FixtureRequest) -> tuple[Run, Rows]:
    run = untrained(request.param)
    return run, Rows.of(run, SETUPS[request.param].texts(8, 4))


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
    texts = SETUPS[False].texts(8, 4)
    assert broken(at_inference(asked[0], texts)) == []
    assert broken(at_inference(asked[0], texts[:1] * 2)) == [
        f"change of the {part} by another text" for part in ("source", "last state", "output")
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_one_hot_position_is_a_learned_one(seed: int) -> None:
    assert broken(one_hot_is_learned(seed)) == []


def test_positions_stand_beside_the_embeddings() -> None:
    setup = Setup(attention=True, width=64, longest=8)
    run = setup.plan().run
    rows = Rows.of(run, setup.texts(8, 3))
    embedding = body_of(run).encoder.embedding
    before = embedding(rows.source)
    add_positions(run, OneHot(length=20, d=20))
    after = embedding(rows.source)
    assert after[..., :-20].equal(before[..., :-20])
    assert after[..., -20:].equal(torch.eye(20)[:12].expand(3, -1, -1))


@pytest.mark.slow
def test_a_kept_run_gets_its_positions_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    setup = Setup(attention=True, width=64, longest=8, steps=1)
    rows = Rows.of(setup.plan().run, setup.texts(8, 3))
    encoding = OneHot(length=20, d=20)
    hidden = [
        body_of(placed_run(setup, ONE_HOT, encoding)).encoder(rows.source, rows.lengths)
        for _ in range(2)
    ]
    plain = body_of(setup.run()).encoder(rows.source, rows.lengths)
    # Exact: the same operations on the same shapes.
    assert hidden[0].equal(hidden[1])
    assert not hidden[0].equal(plain)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_free_running_begins_as_teacher_forcing_and_is_what_the_model_answers() -> None:
    run, texts = untrained(attention=True), SETUPS[True].texts(8, 20)
    rows = Rows.of(run, texts)
    ids = free_ids(run, rows)
    assert forced_ids(run, rows)[:, 0].equal(ids[:, 0])
    for row, text in zip(ids.tolist(), answers(run, texts), strict=True):
        # An answer ends with the first mark, and may be longer than what was asked for.
        written = run.tokenizer.decode(row).split("⁇")[0]
        assert text.startswith(written)


def test_encoder_gradient_needs_every_measurement() -> None:
    even = Gradients(torch.ones(5), torch.ones(5))
    falling = Gradients(torch.tensor([1e-6, 1e-4, 1e-2, 0.1, 1.0]), torch.zeros(5))
    needs_every_measurement(
        judged_gradients,
        ({NONE: falling, ATTENTION: even},),
        ({NONE: even, ATTENTION: even},),
        ({NONE: falling, ATTENTION: falling},),
        ({NONE: falling._replace(cut=torch.ones(5)), ATTENTION: even},),
    )


def test_encodings_needs_every_measurement() -> None:
    right = dict.fromkeys((WITHOUT, ONE_HOT, SINES), (1.0, 0.5))
    turned = torch.tensor([0.5, 0.4, 0.0])
    needs_every_measurement(
        judged_encodings,
        (right, turned, 2),
        (right | {SINES: (0.2, 0.0)}, turned, 2),
        (right, torch.zeros(3), 2),  # no column is learned, as the course says
        (right, torch.ones(3), 2),  # nor are all
    )


def test_roles_of_sequences_needs_every_measurement() -> None:
    losses = (0.1, 3.0, 0.5)
    every = Roles(losses, torch.ones(4), torch.ones(4))
    forced, free = torch.tensor([1, 0.9, 0.9, 0.9]), torch.tensor([1, 0.8, 0.6, 0.4])
    some = Roles(losses, forced, free)
    needs_every_measurement(
        judged_roles,
        ({NONE: some, ATTENTION: every},),
        ({NONE: every, ATTENTION: every},),
        ({NONE: some, ATTENTION: some},),
        ({NONE: some._replace(losses=(0.1, 0.2, 0.5)), ATTENTION: every},),
        ({NONE: some._replace(free=torch.tensor([0.9, 0.8, 0.6, 0.4])), ATTENTION: every},),
    )
