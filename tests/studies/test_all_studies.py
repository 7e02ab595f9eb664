"""All studies that train nothing: fresh seeds, and any allowed parameters."""

import re
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from products import seen_products
from regard.errors import UserError
from regard.studies.registry import all_studies
from regard.studies.study import Study
from study_parameters import parameters
from tiny_studies import broken

STUDIES = [study for study in all_studies() if not study.trains]
LONG = {
    *("fourier-features", "favor", "word-order", "causal-sums", "encoder-gradient"),
    *("equal-heads", "trained-embeddings", "projection", "masked-autoencoder", "approximations"),
    *("complexity", "concepts"),
}
"""Studies that take seconds."""
DRAWN = [
    pytest.param(
        *(study, {"seed": seed}),
        id=f"{study.name}-{seed}",
        marks=[pytest.mark.findings] * (seed > 10 and study.name in LONG),
    )
    for study in STUDIES
    if "seed" in study.defaults and study.name != "fourier-features"
    for seed in (10, 11)
]
"""Studies with random numbers, each with fresh seeds; a long one has its second by command.

That of fourier-features has a test of its own (test_gaussian_kernel.py).
"""
DRAWN += [
    pytest.param(study, {}, id=study.name)
    for study in STUDIES
    if "seed" not in study.defaults and study.name in LONG
]


@pytest.mark.parametrize(
    "study", [study for study in STUDIES if study.name not in LONG], ids=lambda study: study.name
)
def test_the_verdict_is_the_stored_one(study: Study[Any]) -> None:
    with seen_products() as seen:
        found = study()
    assert seen <= {torch.float32, torch.float64}
    assert found.verdict is study.stored_result().verdict, broken(found.numbers)


@pytest.mark.slow
@pytest.mark.parametrize(("study", "chosen"), DRAWN)
def test_fresh_seeds_have_the_stored_verdict(study: Study[Any], chosen: dict[str, int]) -> None:
    found = study(**chosen)
    assert found.verdict is study.stored_result().verdict, broken(found.numbers)


def check(study: Study[Any], chosen: dict[str, Any]) -> None:
    """Require a finding, or an error of one line that names a parameter of the study.

    On the way, nothing is multiplied in less than float32.
    """
    error = None
    with seen_products() as seen:
        try:
            found = study(**chosen)
        except UserError as refused:
            error = str(refused)
    assert seen <= {torch.float32, torch.float64}
    if error is None:
        assert found.numbers
        assert found.json()
        assert found.csv()
    else:
        assert "\n" not in error
        assert any(re.search(rf"\b{name}\b", error) for name in study.defaults), error


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_allowed_parameters_give_a_finding_or_an_error(study: Study[Any]) -> None:
    """Defaults alone, which hypothesis draws first, are those of the tests above."""

    @given(chosen=parameters(study).filter(bool))
    @settings(max_examples=1 if study.name in LONG else 4, suppress_health_check=list(HealthCheck))
    def draw_and_check(chosen: dict[str, Any]) -> None:
        check(study, chosen)

    draw_and_check()
