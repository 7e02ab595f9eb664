"""Queries, keys and values of an ambiguous word in a pretrained BERT, by layer."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.figure import chart, figure, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.pretrained import Bert, load_bert
from regard.tasks.rng import choice, generator

WORD = "play"
PARTS = ("query", "key", "value")
_PLAYERS = ("children", "boys", "girls", "friends")
_LIKES = ("like", "love", "prefer")
_ENDS = {
    "to play": ("in the park", "in the garden", "on the grass", "with the ball"),
    "the play": ("in the theatre", "on the stage", "about the king", "about the war"),
}
"""Verb and noun, each with possible continuations."""

Vectors = Mapping[str, Float[Tensor, "layers heads d"]]
"""Queries, keys and values of one occurrence of the word."""
Cosines = Mapping[str, Float[Tensor, " layers"]]


@study(trains=True)
def two_meanings(
    bert: Bert = "",
    texts: Annotated[int, Meta(ge=2, le=200)] = 12,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Does a pretrained BERT represent a word differently in sentences of the same form and
    different meaning?

    Yes, from the second layer on: queries, keys and values of the word are more similar in two
    sentences with the same meaning than with different meanings. In the first layer they are the
    same, and without pretraining they are similar in all layers in both cases.

    $$ \cos(x, y) = \frac{x \cdot y}{\| x \| \, \| y \|} $$

    The word "play" is a verb in "The children like to play in the park." and a noun in "The
    children like the play in the theatre.", at the same position. Its vectors are compared by their
    cosine, head by head, and averaged over the heads of a layer. Controls are the word in two
    sentences with the same meaning, and the same model with random weights.

    Figure. Cosines of the queries, keys and values of a word in two sentences with the same and
    with different meanings, averaged over heads and pairs of sentences, by layer.

    Args:
        texts: number of sentences per meaning
    """
    draw = generator(seed, "two meanings")
    sentences = {meaning: [_sentence(draw, meaning) for _ in range(texts)] for meaning in _ENDS}
    model = load_bert(bert)
    same, other = compared(model, sentences)
    control_same, control_other = compared(model.untrained(), sentences)
    control = max(float((control_same[part] - control_other[part]).max()) for part in PARTS)
    yield from judged(same, other)
    yield at_most("without pretraining: same minus other meaning, largest", control, 0.02)
    layers = range(len(same["query"]))
    columns = [f"{part}, {which}" for part in PARTS for which in ("same", "other")]
    rows = [
        (layer, *(float(kind[part][layer]) for part in PARTS for kind in (same, other)))
        for layer in layers
    ]
    yield table(["layer", *columns], rows)
    yield figure(
        *(
            chart(
                series(layers, same[part], "same meaning", "line with dots"),
                series(layers, other[part], "two meanings", "line with dots"),
                title=part,
                x="layer",
                y="cosine" if part == PARTS[0] else "",
                y_limits=(0, 1.05),
            )
            for part in PARTS
        )
    )


def judged(same: Cosines, other: Cosines) -> Measurements:
    """Yield the measurements that the claim depends on."""
    least = min(float(kind[part][0]) for part in PARTS for kind in (same, other))
    yield equal("first layer: least cosine", least, 1, within=1e-4)
    for part in PARTS:
        gap = (same[part] - other[part])[1:].min()
        yield at_least(f"{part}: same minus other meaning, least of the later layers", gap, 0.03)
    values = other["value"]
    yield informational("value, two meanings: least cosine of a layer", values.min())
    yield informational("value, two meanings: cosine of the last layer", values[-1])


Sentences = Mapping[str, Sequence[str]]
"""Sentences by meaning."""


def compared(model: HuggingFaceModel, sentences: Sentences) -> tuple[Cosines, Cosines]:
    """Return mean cosines of the word in sentences with the same and with different meanings."""
    verbs, nouns = ([vectors(model, one) for one in texts] for texts in sentences.values())
    same = [*pairwise(verbs), *pairwise(nouns)]
    return cosines(same), cosines(list(zip(verbs, nouns, strict=True)))


def vectors(model: HuggingFaceModel, sentence: str) -> Vectors:
    """Return the word's queries, keys and values in a sentence.

    Raises:
        UserError: the tokenizer splits the word.
    """
    (one,) = model.attention_maps(sentence)
    if WORD not in one.keys:
        raise UserError(f"bert: its tokenizer splits {WORD!r}; choose another model")
    place = one.keys.index(WORD)
    return {
        part: torch.stack([getattr(layer.record, part)[0, :, place] for layer in one.layers])
        for part in PARTS
    }


def cosines(pairs: Sequence[tuple[Vectors, Vectors]]) -> Cosines:
    """Return the mean cosine of each part by layer, over pairs and heads."""
    return {
        part: torch.stack(
            [F.cosine_similarity(one[part], two[part], dim=-1).mean(-1) for one, two in pairs]
        ).mean(0)
        for part in PARTS
    }


def _sentence(draw: Random, meaning: str) -> str:
    player, likes = choice(draw, _PLAYERS), choice(draw, _LIKES)
    return f"The {player} {likes} {meaning} {choice(draw, _ENDS[meaning])}."
