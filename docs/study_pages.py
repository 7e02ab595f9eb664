"""Write a notebook for each theme. `make findings`."""

import json
from pathlib import Path
from typing import Any

from regard.studies.registry import THEMES, Theme

DOCS = Path(__file__).parent


def main() -> None:
    """Write them all."""
    (DOCS / "notebooks").mkdir(exist_ok=True)
    for theme in THEMES:
        text = json.dumps(notebook(theme), indent=1, ensure_ascii=False) + "\n"
        (DOCS / "notebooks" / notebook_name(theme)).write_text(text, encoding="utf-8")


def notebook_name(theme: Theme) -> str:
    """A theme's file."""
    return theme.name.replace(" ", "-") + ".ipynb"


def notebook(theme: Theme) -> dict[str, Any]:
    """Its studies, one after the other: the question, then the finding."""
    cells = [_text(f"# {theme.name.capitalize()}\n\n{theme.about}")]
    for study in theme.studies:
        name = study.name.replace("-", "_")
        call = f"{name}.stored_result()  # {name}() trains anew" if study.trains else f"{name}()"
        cells += [
            _text(f"## {study.question}\n\nAsked in {study.asked_in}."),
            _code(f"from regard.studies import {name}\n\n{call}"),
        ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "metadata": {}, "source": text} | nothing


if __name__ == "__main__":
    main()
