"""Findings on disk."""

from pathlib import Path

import pytest

from regard.errors import UserError
from regard.explorer.page import page
from regard.studies.single_head.one_head import averaging, products


def test_too_many_keys_are_not_shown_one_by_one(tmp_path: Path) -> None:
    (page_of_few,) = [place for place in averaging().save(tmp_path) if place.suffix == ".html"]
    many = averaging(n=65, t=9.0)
    assert many.explorer_view is None
    assert [place.suffix for place in many.save(tmp_path)][-1] == ".png"
    assert not page_of_few.exists(), "it showed other measurements"


def test_a_finding_comes_back_from_disk(tmp_path: Path) -> None:
    finding = products()
    saved = finding.save(tmp_path)
    assert [place.name for place in saved if place.suffix == ".html"] == ["products.html"]
    loaded = products.stored_result(tmp_path)
    assert loaded.numbers == finding.numbers
    assert loaded.table == finding.table
    assert loaded.verdict == finding.verdict
    assert loaded.svg() == finding.svg()
    assert loaded.caption == finding.caption
    assert loaded.explorer_view
    assert finding.explorer_view
    assert page(loaded.explorer_view) == page(finding.explorer_view)
    with pytest.raises(UserError, match=r"averaging\.json: no such file"):
        averaging.stored_result(tmp_path)
