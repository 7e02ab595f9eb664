"""The patterns of all heads of a model, on the texts that it read."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.drawing import panels, to_png, to_svg
from regard.explorer.maps import Map
from regard.explorer.patterns import Read, distance, entropy, patterns, sink

SEPARATORS = frozenset({"[SEP]", "</s>", "<|endoftext|>", "⁇", "\n"})
"""Tokens that part texts, in the vocabularies that are known here."""
SINK = 0.3
"""A head that gives the first token more than this on average uses it as a sink."""


class Head(NamedTuple):
    """A head and its numbers."""

    layer: str
    head: int
    """From 0; the layer is called as pages call it."""
    scores: dict[str, float]

    @property
    def pattern(self) -> str:
        """What it gives most weight to, of what says where; "mixed" where nothing has half."""
        kinds = {name: self.scores[name] for name in _KINDS}
        name = max(kinds, key=kinds.__getitem__)
        return name if kinds[name] >= 0.5 else "mixed"


_KINDS = (
    *("previous", "next", "self", "first"),
    *("separators", "punctuation", "same token", "induction"),
)


_NO_SHARES = ("distance", "norm", "gradient")
"""Scores that may be above 1."""


def profile(maps: Sequence[Map]) -> list[Head]:
    """Each head's patterns, averaged over the texts that one model read: a map a text.

    Raises:
        ValueError: there are no maps.
    """
    if not maps:
        raise ValueError("a profile needs a text at least")
    of_texts = [_of_text(one) for one in maps]
    return [
        Head(
            one.layer,
            one.head,
            {name: _mean([text[place].scores[name] for text in of_texts]) for name in one.scores},
        )
        for place, one in enumerate(of_texts[0])
    ]


def joined(heads: Sequence[Head], more: Mapping[str, Float[Tensor, " heads"]]) -> list[Head]:
    """The heads with further scores, given in their order."""
    return [
        Head(one.layer, one.head, one.scores | {name: float(of[i]) for name, of in more.items()})
        for i, one in enumerate(heads)
    ]


def sinks(heads: Sequence[Head]) -> float:
    """The share of heads that use the first token as a sink."""
    return _mean([head.scores["sink"] > SINK for head in heads])


def mean_entropy(heads: Sequence[Head]) -> float:
    """The entropy of all heads, as a share of what equal weights have."""
    return _mean([head.scores["entropy"] for head in heads])


def draw_profile(heads: Sequence[Head], ending: str) -> bytes:
    """A row a head, a column a pattern: SVG for ".svg", else PNG."""
    names = [name for name in heads[0].scores if name not in _NO_SHARES]
    with panels(height=0.6 + 0.22 * len(heads), width=7.5) as (figure, (axes,)):
        values = [[head.scores[name] for name in names] for head in heads]
        axes.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
        axes.set_yticks(range(len(heads)), [f"{head.layer}.{head.head}" for head in heads])
        axes.set_ylabel("layer.head")
        title = "The share of each head's weight by what it goes to"
        return to_svg(figure, title).encode() if ending == ".svg" else to_png(figure)


def read_of(tokens: Sequence[str]) -> Read:
    """What the patterns need to know of a text."""
    numbers = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return Read(
        ids=torch.tensor([numbers[token] for token in tokens]),
        separators=torch.tensor([token in SEPARATORS for token in tokens]),
        punctuation=torch.tensor([_is_punctuation(token) for token in tokens]),
    )


def _of_text(one: Map) -> list[Head]:
    """Every head that is shown, on one text."""
    read, found = read_of(one.keys), []
    for layer in one.layers:
        weights = layer.captured.weights[0].float().cpu()
        causal = not weights.triu(1).any()
        scores = {
            **patterns(weights, read),
            "sink": sink(weights),
            "entropy": entropy(weights, causal=causal),
            "distance": distance(weights),
        }
        lengths = layer.value_lengths
        if lengths is not None:
            scores["norm"] = (weights.abs() * lengths.float().cpu()[:, None]).sum(-1).mean(-1)
        found += [
            Head(layer.name, head, {name: float(of[head]) for name, of in scores.items()})
            for head in layer.heads
        ]
    return found


def _is_punctuation(token: str) -> bool:
    text = "" if token in SEPARATORS else token.strip()
    return bool(text) and all(unicodedata.category(letter).startswith("P") for letter in text)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
