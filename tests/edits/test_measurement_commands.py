"""Commands of measurements write what the functions return: a page, a file and a table."""

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from regard.edits.effects import effects
from regard.edits.faithfulness import Faithfulness, faithfulness
from regard.edits.found import Effects
from regard.edits.lens import lens
from regard.edits.metrics import read_pairs
from regard.edits.page import Measured
from regard.edits.paths import Paths, paths
from regard.edits.table import text_table
from regard.runs.run import Run
from tiny import PEOPLE, Command, Outcome, refused, succeeded

HEADER = "clean\tcorrupt\tright\twrong\n"
NAMES = "decoder.0.residual.attention,decoder.0.feedforward"
Measure = Callable[..., Effects | Paths | Faithfulness]
MEASURES: dict[str, tuple[Measure, dict[str, Any]]] = {
    "effects --controls 3": (effects, {"controls": 3}),
    f"effects --by patching --sites {NAMES}": (
        effects,
        {"by": ["patching"], "sites": NAMES.split(",")},
    ),
    f"paths --receivers {NAMES}": (paths, {"receivers": NAMES.split(",")}),
    "faithfulness": (faithfulness, {}),
    "faithfulness --by attribution --steps 2 --sites layers": (
        faithfulness,
        {"by": "attribution", "steps": 2, "sites": "layers"},
    ),
}
"""A command with its options → the function, and its arguments."""


def write_pairs(folder: Path) -> Path:
    """Pairs of names of equal length, by letters."""
    path = folder / "effects.tsv"
    names = [name for name, _ in PEOPLE]
    clean = next(name for name in names if sum(len(n) == len(name) for n in names) > 1)
    corrupt = next(name for name in names if len(name) == len(clean) and name != clean)
    texts = [f"{name} was born in " for name in (clean, corrupt)]
    path.write_text(HEADER + "\t".join([*texts, "R", "."]) + "\n", "utf-8")
    return path


def require_shown(found: Measured, done: Outcome, page: Path) -> None:
    """Require that a command has printed a measurement, and written its page."""
    assert found.table() in done.out
    assert all(line in done.out for line in found.lines())
    html = page.read_text("utf-8")
    assert "<script" not in html
    for caption, rows in found.tables().items():
        assert caption in unescape(html)
        names = [row.get("site") or row["part"] for row in rows]
        assert all(name in unescape(html) for name in names)


@pytest.mark.parametrize("arguments", MEASURES)
def test_pairs_are_measured(arguments: str, regard: Command, run: Path) -> None:
    (command, *options), (measure, given) = arguments.split(), MEASURES[arguments]
    pairs = write_pairs(run.parent)
    done = succeeded(regard(command, run, pairs, *options, "--json", "found.json"))
    read = read_pairs(pairs)
    found = measure(Run.load(run), read.clean, read.corrupt, metric=read.metric, **given)
    assert json.loads((run.parent / "found.json").read_text("utf-8")) == found.rows()
    require_shown(found, done, run.parent / f"{command}.html")
    assert ("by attribution in 2 steps" in done.out) == ("--steps 2" in arguments)


def test_a_text_is_read_by_the_lens(regard: Command, run: Path) -> None:
    text = "Ada was born in"
    done = succeeded(regard("lens", run, text, "--json", "lens.json"))
    found = lens(Run.load(run), text)
    assert found.contributions is not None
    data = {"predictions": found.rows(), "contributions": found.contributions.rows()}
    assert json.loads((run.parent / "lens.json").read_text("utf-8")) == data
    require_shown(found, done, run.parent / "lens.html")
    page = (run.parent / "lens.html").read_text("utf-8")
    assert '<th scope="col" class="number">probability</th>' in page
    assert "<p>Each cell: " in page


FILES = [
    ("", "has no header; begin with the columns clean"),
    ("clean\tcorrupt\tright\n", "has no column wrong"),
    (HEADER, "has no row"),
    (HEADER + "a\tb\tc\n", "effects.tsv:2: has 3 cells, and the header 4"),
    (HEADER + "a\tb\t\tc\n", "effects.tsv:2: right is empty"),
]
OPTIONS: list[tuple[str, list[str], str]] = [
    ("effects", ["--by", ""], "by empty: there are patching"),
    ("effects", ["--out", "x.txt"], "choose a name with .html"),
    ("faithfulness", ["--sites", "head"], "there are heads, layers"),
]
"""What the functions refuse is tested beside them."""


def test_wrong_input_is_refused(regard: Command, run: Path) -> None:
    path = write_pairs(run.parent)
    for command, options, message in OPTIONS:
        refused(regard(command, run, path, *options), message)
    for content, message in FILES:
        path.write_text(content)
        refused(regard("effects", run, path), message)
    alone = "--right and --wrong belong together"
    refused(regard("lens", run, "Ada was", "--right", "Rome"), alone)


def test_pairs_may_hold_line_separators(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("clean\tcorrupt\tright\twrong\na\u2028b\tc\tx\ty\n", encoding="utf-8")
    assert read_pairs(file).clean == ("a\u2028b",)


def test_tables_have_no_minus_zero() -> None:
    rows = [{"site": "decoder.0.heads.0", "effect": effect} for effect in (-0.0, -0.0004, -0.004)]
    assert [line.split()[1] for line in text_table(rows).splitlines()[1:]] == [
        *("0.000", "0.000", "-0.004")
    ]
