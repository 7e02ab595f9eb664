"""What tests of studies share."""

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures, which take most of a study's time, where a test is about numbers alone."""
    monkeypatch.setattr("regard.studies.finding.to_svg", lambda *_, **__: "<svg>")
    monkeypatch.setattr("regard.studies.finding.to_png", lambda *_: b"")
