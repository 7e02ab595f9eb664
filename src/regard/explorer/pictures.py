"""Pictures of attention heads, without a browser: rows are queries, columns are keys."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.drawing import INK, color_bar, heat_map, panels, to_png, to_svg
from regard.explorer.attention_maps import AttentionMap, Layer

MOST_NAMED = 64
"""Largest number of tokens to label in a picture; more would be illegible."""
MOST_CHARACTERS = 24
"""Largest number of characters of a token's label."""

Weights = Float[np.ndarray, "queries keys"]


def draw_map(one: AttentionMap, layer: int, head: int, ending: str) -> bytes:
    """Draw the weights of a head with its tokens: SVG for ".svg", else PNG."""
    shown = one.layers[layer]
    weights = _weights(shown, shown.heads[head])
    title = f"{one.name}, layer {shown.name}, head {shown.heads[head]}"
    sizes = [min(max(0.22 * n, 2.5), 12) + 1.2 for n in weights.shape]
    with panels(height=sizes[0], width=sizes[1] + 0.8) as (figure, (axes,)):
        _draw(figure, [axes], [weights])
        axes.set(title=title, xlabel="keys", ylabel="queries")
        if max(weights.shape) <= MOST_NAMED:
            _name_queries(axes, one)
            _name_keys(axes, one)
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)


def draw_maps(one: AttentionMap, ending: str) -> bytes:
    """Draw all heads, a row per layer, with lines between two texts: SVG for ".svg", else PNG."""
    n_heads, n_layers = max(len(layer.heads) for layer in one.layers), len(one.layers)
    size = min(2.1, 20 / n_heads)
    height, width = size * n_layers + 0.8, size * n_heads + 1.6
    title = f"{one.name} of {n_layers} × {n_heads} heads"
    heads = [(layer, head) for layer in one.layers for head in layer.heads]
    places = [n_heads * row + i for row, x in enumerate(one.layers) for i in range(len(x.heads))]
    with panels(n_heads, n_layers, height=height, width=width) as (figure, axes):
        for place in set(range(len(axes))).difference(places):  # of a layer with fewer heads
            axes[place].remove()
        shown = [axes[place] for place in places]
        _draw(figure, shown, [_weights(layer, head) for layer, head in heads])
        for place, panel, (layer, head) in zip(places, shown, heads, strict=True):
            panel.set_title(f"layer {layer.name}, head {head}", fontsize=8)
            _separate(panel, one)
            if place % n_heads == 0 and max(len(one.queries), len(one.keys)) <= MOST_NAMED // 2:
                _name_queries(panel, one)
            if place >= len(axes) - n_heads and len(one.keys) <= MOST_NAMED // 2:
                _name_keys(panel, one)
            panel.tick_params(labelsize=7)
        figure.supxlabel("keys")
        figure.supylabel("queries")
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)


def _weights(layer: Layer, head: int) -> Weights:
    weights: Weights = layer.record.weights[0, head].float().cpu().numpy()
    return weights


def _draw(figure: Figure, axes: Sequence[Axes], maps: Sequence[Weights]) -> None:
    """Draw heat maps in one color scale up to the largest absolute weight."""
    strongest = max(float(np.abs(weights).max()) for weights in maps) or 1.0
    for panel, weights in zip(axes, maps, strict=True):
        heat_map(panel, weights, strongest=strongest)
    signed = any(bool((weights < 0).any()) for weights in maps)
    color_bar(figure, axes, strongest=strongest, signed=signed, label="weight")


def _name_queries(axes: Axes, one: AttentionMap) -> None:
    axes.set_yticks(range(len(one.queries)), _labels(one.queries), parse_math=False)


def _name_keys(axes: Axes, one: AttentionMap) -> None:
    axes.set_xticks(range(len(one.keys)), _labels(one.keys), rotation=90, parse_math=False)


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return the tokens, cut where a label would leave the weights no space."""
    cut = MOST_CHARACTERS - 1
    return [one if len(one) <= MOST_CHARACTERS else f"{one[:cut]}…" for one in tokens]


def _separate(axes: Axes, one: AttentionMap) -> None:
    """Draw lines where the second text begins."""
    if one.second is not None:
        axes.axhline(one.second - 0.5, color=INK, linewidth=0.6, linestyle=":")
        axes.axvline(one.second - 0.5, color=INK, linewidth=0.6, linestyle=":")
