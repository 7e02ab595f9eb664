"""That pages of attention are measured as they say, at a small size; no times are asserted."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from benchmark_files import look

TINY = msgspec.structs.replace(look.SIZE, n_layers=2, n_heads=3, d_model=12)


def measured(**changes: Any) -> Any:
    given = {"tokens": 128, "heads": 144, "bytes": 4_000_000, "first_paint": [0.5, 1.0, 9.0]}
    hover = {"matrix": [0.05], "words": [0.01]}
    return look.Measured(**{**given, "hover": hover, **changes})


def test_a_claim_is_about_bytes_and_medians() -> None:
    assert look.claims(measured()) == {"bytes": True, "first paint": True, "hover": True}
    worse = measured(bytes=4_000_001, first_paint=[1.1], hover={"matrix": [0.01], "words": [0.06]})
    assert look.claims(worse) == {"bytes": False, "first paint": False, "hover": False}


@pytest.mark.filterwarnings("ignore")  # what a peer warns of when imported isn't ours
def test_both_pages_hold_the_same_weights() -> None:
    pytest.importorskip("bertviz")
    view = look.view_of(TINY, 9)
    page = look.bertviz_page(view)
    params, _ = json.JSONDecoder().raw_decode(page, page.index('{"attention": '))
    theirs = torch.tensor(params["attention"][0]["attn"])
    layers = view.panels[0].maps[0].layers
    assert torch.equal(theirs, torch.cat([layer.record.weights for layer in layers]))


@pytest.mark.slow
def test_a_page_is_measured_in_the_browser(tmp_path: Path) -> None:
    with look.chromium() as browser:
        if browser is None:
            pytest.skip("needs Chromium and Playwright")
        found = look.in_browser(browser, look.view_of(TINY, 40), tmp_path / "look.html", 1)
    assert (found.tokens, found.heads) == (40, 6)
    assert found.bytes == (tmp_path / "look.html").stat().st_size
    assert len(found.first_paint) == 1
    assert all(len(times) == look.MOVES for times in found.hover.values())
    assert all(time > 0 for times in found.hover.values() for time in times)
    assert json.dumps(asdict(found))
