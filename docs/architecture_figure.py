"""Draw docs/figures/architecture.svg: path of data, and packages in layers. `make figures`."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

FIGURE = Path(__file__).parent / "figures" / "architecture.svg"
WIDTH, MARGIN, GAP = 960, 20, 12
TITLE = "Regard: the path of data from corpus to loss, and the packages in layers"

FLOW = (
    ("corpus", "text/"),
    ("token ids", "text/"),
    ("examples", "data/"),
    ("batch", "data/"),
    ("model", "models/"),
    ("loss", "models/"),
    ("step", "training/"),
    ("run folder", "runs/"),
)
"""Stages of a text in training, and the package of each."""

LAYERS = (
    ("use", (("cli/", "commands"),)),
    (
        "courses",
        (
            ("studies/", "measurements"),
            ("experiments/", "demo, birthplaces"),
            ("book/", "questions, lessons"),
            ("exercises/", "autograder"),
        ),
    ),
    (
        "applications",
        (
            ("api.py", "Python functions"),
            ("training/", "plans, loop"),
            ("evaluation/", "reports"),
            ("uncertainty/", "abstention"),
            ("serve/", "local page"),
            ("comparison/", "grids of runs"),
        ),
    ),
    (
        "runs",
        (
            ("runs/", "recipe, checkpoints"),
            ("huggingface/", "import, tokenizers"),
            ("decoding/", "sampling, beams"),
            ("explorer/", "pages"),
            ("edits/", "interventions"),
            ("corpus/", "search, evidence"),
        ),
    ),
    (
        "models",
        (
            ("models/", "bodies and heads"),
            ("data/", "datasets, batches"),
            ("text/", "tokenizer, template"),
            ("tasks/", "data and metrics"),
            ("metrics.py", "scores, intervals"),
        ),
    ),
    (
        "mechanisms",
        (
            ("attention/", "masks, mechanisms, contract"),
            ("positions/", "encodings"),
            ("derivations/", "results, line by line"),
            ("courses/", "questions as data"),
        ),
    ),
    (
        "base",
        (
            ("config.py", "structs, TOML"),
            ("errors.py", "one-line errors"),
            ("files.py", "atomic writes"),
            ("drawing.py", "figures"),
        ),
    ),
)
"""Packages from top to bottom: each imports only from its own layer and those below."""

STYLE = """
svg { --ink: #1c2530; --soft: #5b6673; --line: #9aa5b1; --box: #f3f6f9; --flow: #e3eefa; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e4e8ec; --soft: #a3adb8; --line: #5b6673; --box: #1f262e; --flow: #1d3046; }
}
text { font-family: system-ui, sans-serif; font-size: 13px; fill: var(--ink); }
.soft { font-size: 11px; fill: var(--soft); }
.code { font-family: ui-monospace, monospace; font-size: 12px; font-weight: 600; }
.file { font-family: ui-monospace, monospace; font-size: 11px; fill: var(--soft); }
rect { fill: var(--box); stroke: var(--line); }
.flow { fill: var(--flow); }
path { stroke: var(--line); stroke-width: 1.5; fill: none; marker-end: url(#tip); }
marker path { fill: var(--line); stroke: none; }
"""


def main() -> None:
    """Write the figure."""
    FIGURE.write_text(figure(), encoding="utf-8")


def figure() -> str:
    """Return the figure as SVG, for light and dark pages."""
    top = 128
    height = top + 74 * len(LAYERS) + 4
    parts = [_text(MARGIN, 24, "One text in training"), *_flow(34)]
    parts.append(_text(MARGIN, 114, "Packages: each imports from its own layer and those below"))
    for number, (name, boxes) in enumerate(LAYERS):
        parts += _layer(top + 74 * number, name, boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'role="img" aria-label="{TITLE}"><style>{STYLE}</style>'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _flow(y: int) -> Iterator[str]:
    """Boxes from left to right, with arrows between them."""
    gap = 18
    width = (WIDTH - 2 * MARGIN - gap * (len(FLOW) - 1)) / len(FLOW)
    for place, (name, file) in enumerate(FLOW):
        x = MARGIN + place * (width + gap)
        yield _box(x, y, width, 46, "flow")
        yield _text(x + width / 2, y + 20, name, anchor="middle")
        yield _text(x + width / 2, y + 36, file, "file", anchor="middle")
        if place:
            yield f'<path d="M{x - gap + 2:.0f},{y + 23} H{x - 2:.0f}"/>'


def _layer(y: int, name: str, boxes: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The packages of a layer side by side, with an arrow to the layer below."""
    left = MARGIN + 96
    width = (WIDTH - MARGIN - left - GAP * (len(boxes) - 1)) / len(boxes)
    yield _text(MARGIN, y + 30, name, "soft")
    if name != LAYERS[-1][0]:
        yield f'<path d="M{MARGIN + 30},{y + 40} V{y + 84}"/>'
    for place, (package, content) in enumerate(boxes):
        x = left + place * (width + GAP)
        yield _box(x, y, width, 54)
        yield _text(x + 7, y + 23, package, "code")
        yield _text(x + 7, y + 41, content, "soft")


def _box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<rect class="{kind}" {size} rx="6"/>'


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    at = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {at}>{escape(text)}</text>'


if __name__ == "__main__":
    main()
