"""Draw the architectures of docs/models.md, into docs/figures."""

from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

FIGURES = Path(__file__).parent / "figures"
ATTENTION, PLAIN, EDGE = "#bcd7f0", "#eeeeee", "#f7dcb4"
COLORS = {"attention": ATTENTION, "tokens": EDGE, "head": EDGE}
"""By a word of a box's text; all others are plain."""
WIDE, HIGH, GAP = 2.6, 0.55, 0.35


@dataclass(frozen=True)
class Stack:
    """Boxes from the bottom to the top, of which some are repeated."""

    boxes: tuple[str, ...]
    repeated: tuple[int, int] | None = None
    """The first and the last box of what is repeated."""
    times: str = "× layers"


@dataclass(frozen=True)
class Picture:
    """Stacks side by side, and arrows from a box of one to a box of another."""

    stacks: tuple[Stack, ...]
    arrows: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()


ENCODER = Stack(
    ("tokens, positions, segments", "attention to all tokens", "feed-forward", "head"), (1, 2)
)
DECODER = Stack(("tokens, positions", "attention to tokens before", "feed-forward", "head"), (1, 2))
READS = Stack(("tokens of the source", "attention to all tokens", "feed-forward"), (1, 2))
WRITES = Stack(
    (
        "tokens of the target",
        "attention to tokens before",
        "attention to the source",
        "feed-forward",
        "head",
    ),
    (1, 3),
)
STATES = Stack(("tokens of the source", "states, one or both ways"), (1, 1))
WRITTEN = Stack(
    ("tokens of the target", "states", "attention to the source's states", "head"), (1, 1)
)
PICTURES = {
    "encoder": Picture((ENCODER,)),
    "decoder": Picture((DECODER,)),
    "encoder-decoder": Picture((READS, WRITES), (((0, 2), (1, 2)),)),
    "rnn": Picture(
        (Stack(("tokens", "states, one or both ways", "head"), (1, 1)), STATES, WRITTEN),
        (((1, 1), (2, 1)), ((1, 1), (2, 2))),
    ),
}


def draw(picture: Picture) -> Figure:
    """All stacks."""
    tallest = max(len(stack.boxes) for stack in picture.stacks)
    size = (3.5 * len(picture.stacks), 0.3 + tallest * (HIGH + GAP))
    figure = Figure(figsize=size, layout="constrained")
    panel = figure.subplots()
    panel.set(xlim=(-0.3, 3.5 * len(picture.stacks) - 0.2), ylim=(-0.2, tallest * (HIGH + GAP)))
    panel.set_axis_off()
    for column, stack in enumerate(picture.stacks):
        draw_stack(panel, stack, 3.5 * column)
    for (from_column, from_row), (to_column, to_row) in picture.arrows:
        start = 3.5 * from_column + WIDE, from_row * (HIGH + GAP) + HIGH / 2
        end = 3.5 * to_column, to_row * (HIGH + GAP) + HIGH / 2
        panel.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "C0"})
    return figure


def draw_stack(panel: Axes, stack: Stack, left: float) -> None:
    """Boxes, arrows between them, and a frame around what is repeated."""
    for row, text in enumerate(stack.boxes):
        bottom = row * (HIGH + GAP)
        color = next((c for word, c in COLORS.items() if word in text), PLAIN)
        rounded = "round,pad=0,rounding_size=0.08"
        box = FancyBboxPatch((left, bottom), WIDE, HIGH, rounded, fc=color, ec="0.3")
        panel.add_patch(box)
        panel.text(left + WIDE / 2, bottom + HIGH / 2, text, ha="center", va="center", fontsize=9)
        if row:
            middle, arrow = left + WIDE / 2, {"arrowstyle": "->", "color": "0.3"}
            panel.annotate("", (middle, bottom), (middle, bottom - GAP), arrowprops=arrow)
    if stack.repeated:
        first, last = (row * (HIGH + GAP) for row in stack.repeated)
        frame = FancyBboxPatch(
            (left - 0.12, first - 0.12),
            WIDE + 0.24,
            last - first + HIGH + 0.24,
            "round,pad=0,rounding_size=0.12",
            fc="none",
            ec="0.6",
            ls="--",
        )
        panel.add_patch(frame)
        panel.text(left - 0.1, last + HIGH + 0.16, stack.times, fontsize=8, color="0.4")


def main() -> None:
    """Write a picture a family."""
    for name, picture in PICTURES.items():
        draw(picture).savefig(FIGURES / f"family-{name}.png", dpi=110)


if __name__ == "__main__":
    main()
