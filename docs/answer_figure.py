"""Draw docs/figures/answer.svg: attention of a head while a model answers. `make figures`.

The weights and answers are those that the package stores of the study `recalled`.
"""

from base64 import b64decode
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.studies.finding import Finding
from regard.studies.registry import find_study

FIGURE = Path(__file__).parent / "figures" / "answer.svg"
LAYER, HEAD = 0, 0
WIDTH, HEIGHT, TOP, ROW = 390, 312, 46, 140
LETTER, GAP, MARGIN = 8.1, 9, 12
"""Widths in pixels: of a letter of 13.5 pixels, between tokens, and beside them."""
SECONDS = 1.0
"""Time for which a token reads; the last one, whose output is the answer, reads for longer."""
LAST = 5
TITLE = "A model answers about a person of its training text, and about one absent from it"
STYLE = """
svg { --page: #fff; --text: #1f2328; --quiet: #59636e; --line: #0969da; --wrong: #b35900 }
@media (prefers-color-scheme: dark) {
  svg { --page: #0d1117; --text: #f0f6fc; --quiet: #9198a1; --line: #4493f8; --wrong: #f0883e }
}
text { font: 13.5px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; fill: var(--text) }
.quiet { fill: var(--quiet); font: 12.5px system-ui, sans-serif }
.page { fill: var(--page) }
.arc { fill: none; stroke: var(--line) }
.reads { fill: none; stroke: var(--line); stroke-width: 1.5 }
.invented { fill: var(--wrong) }
"""


class Shown(NamedTuple):
    """A question as a head reads it, token by token, and the answer."""

    caption: str
    tokens: list[str]
    weights: Float[np.ndarray, "n n"]
    answer: str
    verdict: str
    invented: bool


def main() -> None:
    """Write the figure."""
    FIGURE.write_text(figure(), encoding="utf-8")


def figure() -> str:
    """Return the drawing, which moves unless the reader prefers that it doesn't."""
    shown = read(find_study("recalled").stored_result())
    steps = len(shown[0].tokens)
    parts = [part for i, one in enumerate(shown) for part in panel(one, TOP + i * ROW)]
    head = f"Layer {LAYER}, head {HEAD}: attention to the tokens before"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{1.3 * WIDTH:g}" role="img" aria-labelledby="title">',
            f'<title id="title">{TITLE}</title>',
            f"<style>{STYLE}{motion(steps)}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" class="page"/>',
            f'<text class="quiet" x="{MARGIN}" y="24">{head}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )


def read(finding: Finding) -> tuple[Shown, Shown]:
    """Return the answers about the first person of the text, and about the first absent one."""
    assert finding.explorer_view is not None, "the study has an attention view"
    assert finding.table is not None, "the study has a table of answers"
    known, absent = finding.explorer_view["panels"]
    rows = (dict(zip(finding.table.columns, row, strict=True)) for row in finding.table.rows)
    answers = {row["person"]: row for row in rows}
    return (
        _shown("In the training text:", known, answers),
        _shown("Absent from the training text:", absent, answers),
    )


def _shown(caption: str, panel: dict[str, Any], answers: dict[str, dict[str, str]]) -> Shown:
    head = panel["maps"][0]["layers"][LAYER]["heads"][HEAD]
    tokens = panel["maps"][0]["keys"]
    who = panel["text"].removeprefix("Where was ").removesuffix(" born?")
    found = answers[who]
    invented = found["kind"] == "absent"
    judged = "invented" if invented else found["kind"]
    verdict = f"{judged}; familiarity of the name {float(found['familiarity']):.1f}"
    verdict = verdict.replace("-", "−")
    return Shown(caption, tokens, weights(head, len(tokens)), found["answer"], verdict, invented)


def weights(head: dict[str, str], n: int) -> Float[np.ndarray, "n n"]:
    """Return the weights of a head from an attention page: see `regard.explorer.page.pack`."""
    low, high = np.frombuffer(b64decode(head["scales"]), "<f4").reshape(n, 2, 1).swapaxes(0, 1)
    values = np.frombuffer(b64decode(head["values"]), np.uint8).reshape(n, n)
    return low + (high - low) * values / 255


def panel(shown: Shown, top: float) -> Iterator[str]:
    """Yield a question: its tokens in a line, the arcs of each step above, and the answer below."""
    line, last = top + 84, len(shown.tokens) - 1
    yield f'<text class="quiet" x="{MARGIN}" y="{top + 6}">{shown.caption}</text>'
    middles, x = [], float(MARGIN)
    for token in shown.tokens:
        width = len(token) * LETTER
        middles.append(x + width / 2)
        yield f'<text x="{x:.1f}" y="{line}">{escape(token)}</text>'
        x += width + GAP
    for step, row in enumerate(shown.weights):
        yield f'<g class="step s{step}">'
        yield from arcs(middles, step, row, line - 16)
        half = len(shown.tokens[step]) * LETTER / 2 + 3
        box = f'x="{middles[step] - half:.1f}" y="{line - 14}" width="{2 * half:.1f}" height="20"'
        yield f'<rect class="reads" {box} rx="4"/>'
        yield "</g>"
    color = "invented" if shown.invented else "right"
    yield f'<g class="step s{last}"><text x="{MARGIN}" y="{line + 28}">→ {escape(shown.answer)}'
    yield f'<tspan class="quiet {color}" dx="10">{escape(shown.verdict)}</tspan></text></g>'


def arcs(middles: list[float], step: int, row: np.ndarray, line: float) -> Iterator[str]:
    """Yield an arc from a token to each earlier one, as thick as its weight is large."""
    for key in range(step):
        weight, start, end = float(row[key]), middles[step], middles[key]
        high = line - min(62, 14 + 0.2 * (start - end))
        path = f"M{start:.1f} {line}C{start:.1f} {high:.1f} {end:.1f} {high:.1f} {end:.1f} {line}"
        thick = f'stroke-width="{12 * weight:.2f}" stroke-opacity="{min(1, 0.25 + weight):.2f}"'
        yield f'<path class="arc" d="{path}" {thick}/>'


def motion(steps: int) -> str:
    """Return the styles that show one step after another; the last one stands without motion."""
    total = SECONDS * (steps - 1) + LAST
    rules = [f".step {{ opacity: 0 }} .s{steps - 1} {{ opacity: 1 }}"]
    moving = []
    for step in range(steps):
        start = 100 * SECONDS * step / total
        end = 100 * SECONDS * (step + 1) / total if step < steps - 1 else 100.0
        shown = f"{start:.2f}%, {end - 0.01:.2f}% {{ opacity: 1 }}"
        before = f"0%, {start - 0.01:.2f}% {{ opacity: 0 }} " if step else ""
        after = f" {end:.2f}%, 100% {{ opacity: 0 }}" if step < steps - 1 else ""
        rules.append(f"@keyframes k{step} {{ {before}{shown}{after} }}")
        moving.append(f".s{step} {{ animation: k{step} {total:g}s infinite step-end }}")
    motion = "\n".join(moving)
    return "\n".join([*rules, f"@media (prefers-reduced-motion: no-preference) {{\n{motion}\n}}\n"])


if __name__ == "__main__":
    main()
