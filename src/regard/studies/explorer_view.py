"""What a study gives to the explorer, so that a reader can look inside its heads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.explorer.look import View
from regard.runs.run import Run

SHOWN = 64
"""Keys that a reader may want to look at one by one."""


def if_readable(view: View) -> dict[str, Any] | None:
    """What a page shows of attention by hand; None where there are too many keys to look at."""
    most = max(len(one.keys) for side in view.panels for one in side.maps)
    return view.data if most <= SHOWN else None


def named(run: Run, name: str) -> Run:
    """A run by what it is, where a page would show the name of its folder."""
    return replace(run, path=Path(name))
