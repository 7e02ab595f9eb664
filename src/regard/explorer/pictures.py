"""One head as a picture, without a browser."""

from regard.drawing import heat_map, panels, to_png, to_svg
from regard.explorer.maps import Map

MOST_NAMED = 64
"""Tokens that are written beside a picture; more would be too small to read."""


def draw_map(one: Map, layer: int, head: int, ending: str) -> bytes:
    """The matrix of a head with its tokens, rows are queries: SVG for ".svg", else PNG."""
    shown = one.layers[layer]
    weights = shown.captured.weights[0, shown.heads[head]].float().cpu().numpy()
    title = f"{one.name}, layer {shown.name}, head {shown.heads[head] + 1}"
    sizes = [min(max(0.22 * n, 2.5), 12) + 1.2 for n in weights.shape]
    with panels(height=sizes[0], width=sizes[1]) as (figure, (axes,)):
        heat_map(axes, weights)
        axes.set_title(title)
        if max(weights.shape) <= MOST_NAMED:
            axes.set_yticks(range(len(one.queries)), one.queries)
            axes.set_xticks(range(len(one.keys)), one.keys, rotation=90)
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)
