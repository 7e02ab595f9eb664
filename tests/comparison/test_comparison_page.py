"""The page is one safe file of bounded size, and says what the table says."""

import json
import re
from pathlib import Path

import pytest

from regard.comparison.page import page, page_data, save_page
from regard.comparison.table import Comparison
from tiny_comparisons import DIVERGED, KIND, LR, finished, made_up, with_metrics

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    outcomes = {
        (kind, lr, seed): finished(score + seed / 100, score)
        for kind, score in (("softmax", 0.9), (HOSTILE, 0.5))
        for lr in (1e-4, 1e-3, 1e-2)
        for seed in range(2)
    }
    outcomes |= {("elu", 1e-3, 0): DIVERGED}
    return made_up(outcomes, out=tmp_path)


def test_nothing_on_the_page_ends_its_script(comparison: Comparison) -> None:
    text = page(comparison)
    assert HOSTILE not in text
    assert text.count("</script>") == 2
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(data) == page_data(comparison)


def test_the_page_asks_for_nothing(comparison: Comparison) -> None:
    text = page(comparison)
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:)', text)


def test_curves_are_those_of_the_table(comparison: Comparison) -> None:
    data = page_data(comparison)
    assert [row["name"] for row in data["rows"]] == ["softmax", HOSTILE, "elu"]
    curve = data["rows"][0]["curves"][LR]
    assert curve["values"] == ["0.0001", "0.001", "0.01"]
    assert curve["means"] == [0.905] * 3
    assert (curve["chosen"], curve["edge"]) == ("0.001", False)
    assert data["rows"][2]["curves"][LR]["means"] == [None]
    assert data["failures"] == [
        f"{KIND}=elu, {LR}=0.001, seed 0: diverged at step 3: step 3: loss nan"
    ]


def test_learning_curves_are_means_and_short(tmp_path: Path) -> None:
    outcomes = {("softmax", 1e-3, seed): finished(0.5, 0.5) for seed in range(2)}
    comparison = made_up(outcomes | {("softmax", 1e-3, 2): None}, out=tmp_path)  # one still trains
    with_metrics(comparison, steps=500)
    learning = page_data(comparison)["rows"][0]["learning"]
    assert (learning["steps"][0], learning["steps"][-1]) == (1, 500)
    assert len(learning["steps"]) == 40
    assert learning["losses"][0] == 1.5  # the losses of step s are (1 + seed) / s


def test_a_page_of_a_thousand_cells_is_small(tmp_path: Path) -> None:
    """The bound of the promise: 3 MB."""
    outcomes = {
        (f"kind-{kind}", lr, 0): finished(0.123456789, 0.987654321)
        for kind in range(250)
        for lr in (1e-4, 1e-3, 1e-2, 1e-1)
    }
    comparison = made_up(outcomes, out=tmp_path)
    with_metrics(comparison, steps=100)
    assert save_page(comparison).stat().st_size <= 3e6
