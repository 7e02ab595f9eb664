"""What is seen, as numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from explorer_pages.sentences import Text
from regard.explorer import head_scores
from regard.explorer.adapters import Adapter
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import entropy
from regard.explorer.look import look
from regard.explorer.page import View
from regard.runs.run import Run


@dataclass(frozen=True)
class Head:
    """One head's share of something."""

    layer: int
    head: int
    """Both from 0."""
    value: float

    @property
    def name(self) -> str:
        """As it is called on the pages."""
        return f"{self.layer}.{self.head}"


def map_of(view: View) -> AttentionMap:
    """The self-attention of a view's first side."""
    return view.panels[0].maps[0]


def read(model: Run | Adapter, text: Text) -> AttentionMap:
    """What a model does with a text; one of ours that knows no segments reads it as a line."""
    line = isinstance(model, Run) and getattr(model.recipe.model, "n_token_types", 0) < 2
    if line or not text.second:
        return map_of(look(model, text.line))
    return map_of(look(model, *text.pair))


def maps_of(model: Run | Adapter, texts: Sequence[Text]) -> list[AttentionMap]:
    """What a model does with each text."""
    return [read(model, text) for text in texts]


def weights_of(one: AttentionMap) -> Float[Tensor, "layers heads n n"]:
    """What all heads apply."""
    return torch.stack([layer.record.weights[0].float().cpu() for layer in one.layers])


def place_of(one: AttentionMap, word: str) -> int:
    """Where a word stands, the first time."""
    return [token.strip().lower() for token in one.keys].index(word.lower())


def given(
    model: Run | Adapter, texts: Sequence[Text], query: str, key: str
) -> Float[Tensor, "texts layers heads"]:
    """In each text, what every head gives from the word in one role to that in another."""
    found = []
    for text in texts:
        one = read(model, text)
        i, j = (place_in(one, text, role) for role in (query, key))
        found.append(weights_of(one)[:, :, i, j])
    return torch.stack(found)


def place_in(one: AttentionMap, text: Text, role: str) -> int:
    """Where the word in a role stands. Words are tokens here, and marks may begin a sentence."""
    place, words = text.places[role], len(text.first + text.second)
    if one.second is not None and place < len(text.first):
        return one.second - len(text.first) + place
    return len(one.keys) - words + place


def most(shares: Float[Tensor, "layers heads"]) -> Head:
    """The head with the largest share."""
    layer, head = divmod(int(shares.argmax()), shares.shape[1])
    return Head(layer, head, float(shares[layer, head]))


def chosen(shares: Float[Tensor, "texts layers heads"]) -> Head:
    """The head with the largest share of every other text, and its share of those between.

    A head that is chosen and measured on the same texts seems better than it is.
    """
    best = most(shares[::2].mean(0))
    return Head(best.layer, best.head, float(shares[1::2, best.layer, best.head].mean()))


def blocks(weights: Float[Tensor, "*heads n n"], second: int) -> dict[str, Float[Tensor, "*heads"]]:
    """How much of its weight a sentence gives to itself and to the other, averaged over queries."""
    shares = head_scores.blocks(weights, second)
    return {
        f"{one} → {other}": shares[..., i, j]
        for i, one in enumerate("AB")
        for j, other in enumerate("AB")
    }


def cosines(
    one: AttentionMap, other: AttentionMap, word: str
) -> dict[str, Float[Tensor, "layers heads"]]:
    """How alike a word's queries, keys and values are in two texts."""
    i, j = place_of(one, word), place_of(other, word)
    pairs = [
        (here.record, there.record) for here, there in zip(one.layers, other.layers, strict=True)
    ]
    return {
        part: torch.stack(
            [
                F.cosine_similarity(getattr(here, part)[0, :, i], getattr(there, part)[0, :, j], -1)
                for here, there in pairs
            ]
        )
        for part in ("query", "key", "value")
    }


def mean_cosines(
    pairs: Sequence[tuple[AttentionMap, AttentionMap]], word: str
) -> dict[str, list[float]]:
    """The same of many pairs of texts: for queries, keys and values, the mean of each layer."""
    found = [cosines(*pair, word) for pair in pairs]
    return {part: torch.stack([x[part] for x in found]).mean((0, 2)).tolist() for part in found[0]}


def by_layer(shares: Mapping[str, Float[Tensor, "layers heads"]]) -> list[list[float]]:
    """The mean of each layer's heads; a row a layer."""
    rows: list[list[float]] = torch.stack([x.mean(1) for x in shares.values()], dim=1).tolist()
    return rows


def entropies(one: AttentionMap) -> Float[Tensor, "layers heads"]:
    """Of each head's weights, as a share of what equal weights have."""
    weights = weights_of(one)
    return entropy(weights, causal=not weights.triu(1).any())


@torch.inference_mode()
def next_words(run: Run, text: str) -> Float[Tensor, " vocabulary"]:
    """How probable each token is after a text."""
    ids = torch.tensor([run.encode(text)[0]])
    logits: Tensor = run.language_model(ids)
    return logits[0, -1].softmax(-1)


@torch.inference_mode()
def surprise(run: Run, text: str) -> float:
    """−ln P of a text's words, each from those before it, on average."""
    ids = torch.tensor([run.encode(text)[0]])
    start = max(len(run.text_affixes.prefix), 1)
    logits = run.language_model(ids)[0, start - 1 : -1]
    return float(F.cross_entropy(logits, ids[0, start:]))


@torch.inference_mode()
def behind_mask(run: Run, first: str, second: str, word: str) -> Float[Tensor, " vocabulary"]:
    """How probable each token is in the place of a word of two sentences."""
    ids, segments = run.encode(first, second)
    (asked,) = run.tokenizer.encode(word)
    place = ids.index(asked)
    ids[place] = run.tokenizer.special.require("mask")
    inputs = (torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([segments]))
    logits: Tensor = run.model(*inputs)
    return logits[0, place].softmax(-1)


def probability(run: Run, found: Float[Tensor, " vocabulary"], words: Sequence[str]) -> float:
    """Of any of some words."""
    return sum(float(found[run.tokenizer.encode(word)[0]]) for word in words)
