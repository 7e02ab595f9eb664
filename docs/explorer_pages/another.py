"""The exercises for BERT once more, on an encoder that others trained on real English."""

from itertools import pairwise

from explorer_pages.bert import NOUN, PAIR, SEED, VERB
from explorer_pages.exercise import Exercise, Looked, Picture, table
from explorer_pages.measures import (
    blocks,
    by_layer,
    entropies,
    maps_of,
    mean_cosines,
    most,
    place_of,
    weights_of,
)
from explorer_pages.sentences import noun_text, texts, texts_of, verb_text
from regard.explorer.adapters import Adapter
from regard.explorer.head_scores import head_scores
from regard.explorer.pictures import draw_map
from regard.runs.run import Run
from regard.studies.finding import at_least, at_most

KINDS = ("previous", "next", "self", "first", "separators", "punctuation", "same token")


def another_bert(run: Run | Adapter, named: str, n: int) -> Exercise:
    """What does a larger encoder do with the same sentences?"""
    looked = Looked(run, *PAIR, compare_untrained=True, named=named)
    panels = [panel.maps[0] for panel in looked.view.panels]
    one, (after, before) = panels[0], (entropies(panel) for panel in panels)
    assert one.second is not None
    weights, party = weights_of(one), place_of(one, "party")
    it, cake = (most(weights[:, :, place_of(one, word), party]) for word in ("it", "cake"))
    shares = blocks(weights, one.second)
    heads = head_scores(maps_of(run, texts(SEED, "measured", n)))
    best = {kind: max(heads, key=lambda head: head.scores[kind]) for kind in KINDS}
    verbs, nouns = (maps_of(run, texts_of(kind, SEED, n)) for kind in (verb_text, noun_text))
    other = mean_cosines(list(zip(verbs, nouns, strict=True)), "play")
    same = mean_cosines([pair for kind in (verbs, nouns) for pair in pairwise(kind)], "play")
    last = {part: same[part][-1] - other[part][-1] for part in same}
    return Exercise(
        name="another-bert",
        title="The same in another encoder",
        asked="Homework 8, 2.b, 2.c and 2.d, for an encoder pretrained on real English",
        looked=looked,
        picture=Picture(
            png=draw_map(one, it.layer, it.head, ".png"),
            alt="The head in which it gives most to party, of the sentence before",
        ),
        seen=[
            f"It is `{named}`, of {len(one.layers)} layers with {len(one.layers[0].heads)} heads.",
            f"From *it*, head {it.name} gives *party* {it.value:.2f} of its weight. From *cake*, "
            f"head {cake.name} gives it {cake.value:.2f}; equal weights give "
            f"{1 / len(one.keys):.2f}. The four blocks, as means over a layer's heads:",
            table(["layer", *shares], [(i, *x) for i, x in enumerate(by_layer(shares))]),
            f"For each kind of key, the head that gives it the most weight, on {n} of the texts "
            "above:",
            table(
                ["key", "head", "share"],
                [(kind, f"{h.layer}.{h.head}", h.scores[kind]) for kind, h in best.items()],
            ),
            f"*play* in *{VERB}* and in *{NOUN}*, and in {n} sentences like each: cosines with the "
            "same word in a sentence of the same meaning, and in one of the other meaning:",
            table(
                ["layer", *(f"{part}, {which}" for part in same for which in ("same", "other"))],
                [
                    (layer, *(x[part][layer] for part in same for x in (same, other)))
                    for layer in range(len(one.layers))
                ],
            ),
            f"The least entropy of a head is {float(after.min()):.2f} of that of uniform "
            "attention, "
            f"and {float(before.min()):.2f} with random weights.",
        ],
        numbers=[
            at_least("random weights: least entropy of a head", before.min(), 0.95),
            at_most("trained: least entropy of a head", after.min(), 0.5),
            at_least("*it* → *party*, best head", it.value, 2 / len(one.keys)),
            at_least("last layer: same meaning beyond other, least", min(last.values()), 0),
        ],
    )
