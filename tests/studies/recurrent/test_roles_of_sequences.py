"""Source, target and teacher forcing."""

from pathlib import Path

import pytest
import torch

from regard.runs.run import Run
from regard.studies.finding import Verdict
from regard.studies.recurrent.casing import ATTENTION, NONE, Rows, Setup, answers
from regard.studies.recurrent.encoder_decoder import (
    Roles,
    forced_ids,
    free_ids,
    judged_roles,
    roles_of_sequences,
)

LOSSES = (0.1, 3.0, 0.5)
ALL = Roles(LOSSES, torch.ones(4), torch.ones(4))
SOME = Roles(
    LOSSES,
    torch.tensor([1, 0.9, 0.9, 0.9]),
    torch.tensor([1, 0.8, 0.6, 0.4]),
)
WELL = {NONE: SOME, ATTENTION: ALL}
SETUP = Setup(attention=True, width=16, longest=8)


@pytest.fixture(scope="module")
def run() -> Run:
    return SETUP.plan().run


def test_the_first_character_is_the_same_either_way(run: Run) -> None:
    rows = Rows.of(run, SETUP.texts(8, 20))
    assert forced_ids(run, rows)[:, 0].equal(free_ids(run, rows)[:, 0])


def test_free_running_is_what_the_model_answers(run: Run) -> None:
    texts = SETUP.texts(8, 10)
    ids = free_ids(run, Rows.of(run, texts))
    for row, text in zip(ids.tolist(), answers(run, texts), strict=True):
        # An answer ends with the first mark, and may be longer than what was asked for.
        written = run.tokenizer.decode(row).split("⁇")[0]
        assert text.startswith(written)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (NONE, ALL),
        (ATTENTION, SOME),
        (NONE, SOME._replace(losses=(0.1, 0.2, 0.5))),
        (NONE, SOME._replace(free=torch.tensor([0.9, 0.8, 0.6, 0.4]))),
    ],
)
def test_other_measurements_would_refute_the_claim(name: str, other: Roles) -> None:
    assert all(number.holds for number in judged_roles(WELL))
    assert not all(number.holds for number in judged_roles(WELL | {name: other}))


def test_without_training_there_is_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert roles_of_sequences(width=16, longest=8, steps=1).verdict is Verdict.FAILS


@pytest.mark.findings
def test_the_verdict(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path_factory.getbasetemp() / "casing"  # all studies ask the same networks
    monkeypatch.setenv("REGARD_CACHE", str(shared))
    assert roles_of_sequences().verdict is Verdict.HOLDS
