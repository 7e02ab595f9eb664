"""Computation graph of an unrolled recurrent network."""

from regard.studies.figure import Arrow, Drawing, Graph, Node, figure

_LEVELS = ("x", "z", "h", "o", r"\hat y", "J")
"""Variables of a step, from the bottom up."""
_WEIGHTS = {"z": "$W_{hx}$", "h": r"$\psi$", "o": "$W_{yh}$", r"\hat y": "softmax"}
"""Labels of the arrows that lead to a variable from the one below it."""
_DIGITS = "₀₁₂₃₄₅"
_H = _LEVELS.index("h")


def computation_graph(steps: int, d_in: int, d: int, d_out: int) -> Drawing:
    """Return the graph, unrolled over at most five steps, for states of width d."""
    nodes = [Node(-1.2, _H, "$h$₀"), Node(steps - 1, len(_LEVELS), "$J$")]
    arrows: list[Arrow] = []
    before = 0
    for t in range(steps):
        first = len(nodes)
        nodes += [Node(2 * t, level, f"${x}${_DIGITS[t + 1]}") for level, x in enumerate(_LEVELS)]
        nodes.append(Node(2 * t + 0.75, len(_LEVELS) - 1, f"$y${_DIGITS[t + 1]}"))
        arrows += [
            Arrow(start=first + level - 1, end=first + level, label=_WEIGHTS.get(x, ""))
            for level, x in enumerate(_LEVELS)
            if level
        ]
        loss = first + len(_LEVELS) - 1
        arrows += [Arrow(start=loss + 1, end=loss), Arrow(start=loss, end=1)]
        arrows.append(Arrow(start=before, end=first + 1, label="$W_{hh}$", color=1))
        before = first + _H
    return figure(Graph(nodes=nodes, arrows=arrows), d_in=d_in, d=d, d_out=d_out)
