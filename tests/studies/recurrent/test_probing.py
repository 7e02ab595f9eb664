"""Probes of the states."""

from pathlib import Path

import pytest
import torch

from regard.studies.finding import Verdict
from regard.studies.recurrent.bottleneck import (
    DECODER,
    ENCODER,
    UNTRAINED,
    Probed,
    accuracy,
    judged_probes,
    probing,
    r_squared,
)
from regard.studies.recurrent.casing import ATTENTION, NONE

READ = {
    (side, what): 1.0 for side in (ENCODER, DECODER) for what in ("position", "task", "character")
}
WELL = {
    ATTENTION: Probed(read=READ | {(DECODER, "character"): 0.4}, last=[0.1, 0.9], guess=0.1),
    NONE: Probed(read=READ, last=[0.9, 0.4], guess=0.1),
    UNTRAINED: Probed(read=dict.fromkeys(READ, 0.1), last=[0.1, 0.1], guess=0.1),
}


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


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_probes(WELL))


@pytest.mark.parametrize("lost", list(READ))
def test_other_measurements_would_refute_it(lost: tuple[str, str]) -> None:
    network = NONE if lost == (DECODER, "character") else ATTENTION
    one = WELL[network]
    other = WELL | {network: one._replace(read=one.read | {lost: 0.3})}
    assert not all(number.holds for number in judged_probes(other))


def test_a_last_state_with_the_whole_text_would_refute_it() -> None:
    held = WELL[ATTENTION]._replace(last=[0.9, 0.9])
    assert not all(number.holds for number in judged_probes(WELL | {ATTENTION: held}))


def test_an_untrained_network_is_probed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    finding = probing(width=16, longest=8, steps=1)
    assert finding.verdict is Verdict.FAILS
    assert finding.table is not None
    assert [row[0] for row in finding.table.rows] == [ATTENTION] * 2 + [NONE] * 2 + [UNTRAINED] * 2


@pytest.mark.findings
def test_the_verdict(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path_factory.getbasetemp() / "casing"  # all studies ask the same networks
    monkeypatch.setenv("REGARD_CACHE", str(shared))
    assert probing().verdict is Verdict.HOLDS
