"""The study `untrained`."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import Attention
from regard.models.builders import Model
from regard.studies.finding import Verdict
from regard.studies.trained_models.reading import WIDTH, plan_reader
from regard.studies.trained_models.untrained import kept_weights, measure, rescale, untrained

IDS, PLACE, OTHER, TARGET = [3, 4, 1, 5, 6, 7], 2, 4, 9


@pytest.fixture
def model() -> Model:
    return plan_reader(1, 0).run.model.double().eval()


def loss(model: Any) -> Tensor:
    return F.cross_entropy(model(torch.tensor([IDS]))[0, PLACE], torch.tensor(TARGET))


def test_the_gradient_by_a_weight_is_that_of_differences(model: Model) -> None:
    attention = next(module for module in model.modules() if isinstance(module, Attention))
    with kept_weights(model) as layers:
        loss(model).backward()
    _, gradient, _ = layers[0].found()

    def moved(step: float) -> float:
        def hook(module: Attention, args: tuple[Tensor, ...], kwargs: Any, _out: Tensor) -> Tensor:
            query, key, value = args
            weights = module.weights(query, key, **kwargs)
            weights[0, 1, PLACE, OTHER] += step
            return weights @ value

        handle = attention.register_forward_hook(hook, with_kwargs=True)
        with torch.no_grad():
            found = float(loss(model))
        handle.remove()
        return found

    step = 1e-5
    slope = (moved(step) - moved(-step)) / (2 * step)
    assert gradient[0, 1, PLACE, OTHER] == pytest.approx(slope, rel=1e-5, abs=1e-10)


def test_keeping_weights_changes_no_output(model: Model) -> None:
    before = loss(model)
    with kept_weights(model) as layers:
        assert loss(model).item() == pytest.approx(before.item(), abs=1e-12)
    assert len(layers) == 2


def test_scores_deviate_as_predicted_and_maps_are_even(model: Model) -> None:
    ids = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:24].tolist()
    found = measure(model, [(ids, 0, 5)], [7])
    assert found.spread == pytest.approx(WIDTH * 0.02**2, rel=0.2)
    assert found.entropy.min() > 0.999
    assert found.off < 1e-12
    rescale(model, 20)
    assert measure(model, [(ids, 0, 5)], [7]).entropy.min() < 0.7


@pytest.mark.slow
def test_the_verdict() -> None:
    assert untrained().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_large_weights_attend_at_once() -> None:
    assert untrained(std=0.3).verdict is Verdict.FAILS


@pytest.mark.slow
def test_hardly_trained_maps_stay_even(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert untrained(steps=2).verdict is Verdict.FAILS
