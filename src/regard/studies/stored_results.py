"""Findings of all studies with their usual parameters, that come with Regard.

So that reading the book needs no training. `make findings` makes them anew.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from regard.errors import UserError
from regard.explorer.page import page
from regard.files import write_file
from regard.studies.finding import Drawing, Evidence, Measurement, Table
from regard.studies.study import Finding, Study


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A finding without its figure, as JSON."""

    study: str
    parameters: dict[str, Any]
    seconds: float
    condition: str
    numbers: tuple[Measurement, ...]
    outside_condition: tuple[Measurement, ...]
    table: Table | None
    alt: str
    explorer_view: dict[str, Any] | None = None


def save_finding(finding: Finding, folder: Path) -> list[Path]:
    """Write NAME.json, NAME.csv, NAME.svg, NAME.png, and NAME.html where heads can be looked at.

    Returns where they are.
    """
    found = finding.evidence
    stored = _Stored(
        study=finding.study.name,
        parameters=dict(finding.parameters),
        seconds=round(finding.seconds, 1),
        condition=found.condition,
        numbers=found.numbers,
        outside_condition=found.outside_condition,
        table=found.table,
        alt=found.figure.alt,
        explorer_view=found.explorer_view,
    )
    contents = {
        "json": msgspec.json.format(msgspec.json.encode(stored), indent=1) + b"\n",
        "csv": found.csv().encode(),
        "svg": _standalone(found.figure.svg).encode(),
        "png": found.figure.png,
    }
    if found.explorer_view:
        contents["html"] = page(found.explorer_view).encode()
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder / f"{finding.study.name}.{ending}" for ending in contents]
    for place, content in zip(places, contents.values(), strict=True):
        write_file(place, content)
    return places


def load_finding(study: Study[Any], folder: Traversable | None = None) -> Finding:
    """A finding from a folder, else from those that come with Regard.

    Raises:
        UserError: it isn't there.
    """
    folder = folder or files("regard.studies") / "findings"
    place = folder / f"{study.name}.json"
    if not place.is_file():
        raise UserError(f"{place}: isn't there; `regard study run {study.name}` makes a finding")
    stored = msgspec.json.decode(place.read_bytes(), type=_Stored)
    svg = (folder / f"{study.name}.svg").read_text(encoding="utf-8")
    figure = Drawing(
        svg=svg[svg.index("<svg") :],
        png=(folder / f"{study.name}.png").read_bytes(),
        alt=stored.alt,
    )
    evidence = Evidence(
        numbers=stored.numbers,
        figure=figure,
        table=stored.table,
        condition=stored.condition,
        outside_condition=stored.outside_condition,
        explorer_view=stored.explorer_view,
    )
    return Finding(
        study=study, parameters=stored.parameters, evidence=evidence, seconds=stored.seconds
    )


def _standalone(svg: str) -> str:
    """An SVG element as a file of its own: its ink follows the reader's light or dark."""
    dark = "@media(prefers-color-scheme:dark){svg:root{color:#e4e8ec}}"
    style = f"<style>svg:root{{color:#1c2530}}{dark}</style>"
    end = svg.index(">") + 1
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg[:end] + style + svg[end:]
