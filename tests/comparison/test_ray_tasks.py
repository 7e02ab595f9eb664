"""Ray: the extra is missing."""

import sys

import pytest

from regard.comparison.config import RayConfig
from regard.comparison.ray_tasks import connect_to_ray
from regard.errors import UserError


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[ray\]'"):
        connect_to_ray(RayConfig())
