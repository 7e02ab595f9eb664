"""The page of a comparison: one offline file with its table and charts. Doesn't import torch."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.comparison.export import SHORT, failure_lines, readable, save_tables, seed_notes
from regard.comparison.folder import Cell
from regard.comparison.grid import short_name
from regard.comparison.table import Candidate, Comparison, Row
from regard.files import inert, offline_page, packaged_text, write_file
from regard.training.loggers import read_metrics

PAGE = "report.html"
POINTS = 40
"""Largest number of points of a learning curve."""


def summarize(out: Path) -> Comparison:
    """Write tables and page of the current results.

    Raises:
        UserError: the folder isn't a comparison.
    """
    comparison = Comparison.load(out)
    save_tables(comparison)
    save_page(comparison)
    return comparison


def save_page(comparison: Comparison) -> Path:
    """Write the page into the comparison's folder and return its path."""
    path = comparison.out / PAGE
    write_file(path, page(comparison).encode())
    return path


def page(comparison: Comparison) -> str:
    """Return a self-contained page."""
    return offline_page(
        "comparison/static/compare.html",
        title=f"Comparison {comparison.out.name}",
        style=packaged_text("comparison/static/compare.css"),
        script=packaged_text("comparison/static/compare.js"),
        summary=escape(_summary(comparison)),
        data=inert(page_data(comparison)),
    )


def page_data(comparison: Comparison) -> dict[str, Any]:
    """Return the data of the page as plain values."""
    columns, cells = readable(comparison)
    return {
        "score": comparison.score,
        "within": comparison.sweep.within,
        "columns": columns,
        "costs": {name: short for name, short in SHORT.items() if name != "tokens_per_second"},
        "rows": [
            {
                "name": row.name,
                "cells": texts,
                "test": record["test"],
                "costs": {name: record[name] for name in SHORT},
                "curves": {path: _curve(row, path) for path in comparison.sweep.tune},
                "learning": _learning(row.chosen),
            }
            for (row, record), texts in zip(comparison.by_score(), cells, strict=True)
        ],
        "tuned": {path: short_name(path) for path in comparison.sweep.tune},
        "failures": failure_lines(comparison),
    }


def _summary(comparison: Comparison) -> str:
    ended = sum(cell.outcome is not None for cell in comparison.cells)
    tuned = ", ".join(comparison.sweep.tune)
    chosen = f" Chosen by mean validation score over seeds: {tuned}." if tuned else ""
    return (
        f"{ended} of {len(comparison.cells)} cells have ended. Scores are means over seeds with "
        f"95 % intervals of Student's t; differences to the baseline are paired by seed.{chosen}"
        f"{''.join(f' {note.capitalize()}.' for note in seed_notes(comparison))}"
    )


def _curve(row: Row, path: str) -> dict[str, Any]:
    """Return mean validation scores of a tuned axis, its window, and whether an edge is best."""
    curve = row.curve(path)
    return {
        "values": list(curve),
        "means": [_rounded(score) for score in curve.values()],
        "window": row.window(path),
        "chosen": row.chosen.values[path] if row.chosen else None,
        "edge": path in row.edges,
    }


def _learning(chosen: Candidate | None) -> dict[str, Any]:
    """Return the mean training loss over the finished seeds of the chosen values, by step."""
    finished = chosen.by_seed("test") if chosen else {}
    found = [_losses(cell) for cell in chosen.cells if cell.seed in finished] if chosen else []
    steps = sorted(set.intersection(*map(set, found))) if found else []
    kept = _thinned(steps)
    return {
        "steps": kept,
        "losses": [_rounded(fmean(losses[step] for losses in found)) for step in kept],
    }


def _losses(cell: Cell) -> dict[int, float]:
    records = read_metrics(cell.path / "metrics.jsonl")
    return {record["step"]: record["loss"] for record in records}


def _thinned(steps: Sequence[int]) -> list[int]:
    """Return at most POINTS steps, evenly spaced, including the first and the last."""
    if len(steps) <= POINTS:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (POINTS - 1))] for i in range(POINTS)]


def _rounded(value: float | None) -> float | None:
    """Return a value with four significant digits, which keeps the page small."""
    return None if value is None else float(f"{value:.4g}")
