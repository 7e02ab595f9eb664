"""Pictures of attention heads, without a browser."""

from matplotlib.axes import Axes

from regard.drawing import INK, heat_map, panels, to_png, to_svg
from regard.explorer.attention_maps import AttentionMap

MOST_NAMED = 64
"""Most tokens to write beside a picture; more would be too small to read."""


def draw_map(one: AttentionMap, layer: int, head: int, ending: str) -> bytes:
    """Draw the matrix of a head with its tokens, a row a query: SVG for ".svg", else PNG."""
    shown = one.layers[layer]
    weights = shown.record.weights[0, shown.heads[head]].float().cpu().numpy()
    title = f"{one.name}, layer {shown.name}, head {shown.heads[head]}"
    sizes = [min(max(0.22 * n, 2.5), 12) + 1.2 for n in weights.shape]
    with panels(height=sizes[0], width=sizes[1]) as (figure, (axes,)):
        heat_map(axes, weights)
        axes.set_title(title)
        if max(weights.shape) <= MOST_NAMED:
            _name_queries(axes, one)
            _name_keys(axes, one)
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)


def draw_maps(one: AttentionMap, ending: str) -> bytes:
    """Draw all heads, a row a layer, with lines between two texts: SVG for ".svg", else PNG."""
    n_heads, n_layers = len(one.layers[0].heads), len(one.layers)
    size = min(2.1, 20 / n_heads)
    height, width = size * n_layers + 0.8, size * n_heads + 0.8
    title = f"{one.name} of {n_layers} × {n_heads} heads"
    with panels(n_heads, n_layers, height=height, width=width) as (figure, axes):
        for place, panel in enumerate(axes):
            layer, head = one.layers[place // n_heads], place % n_heads
            number = layer.heads[head]
            heat_map(panel, layer.record.weights[0, number].float().cpu().numpy())
            panel.set_title(f"layer {layer.name}, head {number}", fontsize=8)
            _part(panel, one)
            if head == 0 and max(len(one.queries), len(one.keys)) <= MOST_NAMED // 2:
                _name_queries(panel, one)
            if place >= len(axes) - n_heads and len(one.keys) <= MOST_NAMED // 2:
                _name_keys(panel, one)
            panel.tick_params(labelsize=7)
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)


def _name_queries(axes: Axes, one: AttentionMap) -> None:
    axes.set_yticks(range(len(one.queries)), one.queries)


def _name_keys(axes: Axes, one: AttentionMap) -> None:
    axes.set_xticks(range(len(one.keys)), one.keys, rotation=90)


def _part(axes: Axes, one: AttentionMap) -> None:
    """Draw lines where the second text begins."""
    if one.second is not None:
        axes.axhline(one.second - 0.5, color=INK, linewidth=0.6, linestyle=":")
        axes.axvline(one.second - 0.5, color=INK, linewidth=0.6, linestyle=":")
