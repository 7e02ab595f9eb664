"""What a small BERT looks at: across two sentences, at a word of two meanings, in other orders."""

from itertools import chain, pairwise

from jaxtyping import Float
from torch import Tensor

from explorer_pages.exercise import Exercise, Looked, Picture, table
from explorer_pages.measures import (
    behind_mask,
    blocks,
    by_layer,
    chosen,
    cosines,
    given,
    map_of,
    maps_of,
    mean_cosines,
    most,
    place_of,
    probability,
    weights_of,
)
from explorer_pages.sentences import (
    EVENTS,
    event_text,
    noun_text,
    texts,
    texts_of,
    verb_text,
)
from regard.drawing import heat_map, panels, to_png
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.head_scores import Head, draw_head_scores, head_scores
from regard.explorer.look import untrained
from regard.explorer.pictures import draw_maps
from regard.runs.run import Run
from regard.studies.finding import at_least, at_most, equal, informational

SEED = 1
"""Of the texts that are measured."""
PAIR = "I wanted to have a party.", "I bought a cake for it."
VERB = "The children like to play in the park."
NOUN = "The children like the play in the theatre."


def bert_exercises(run: Run, decoder: Run, n: int) -> list[Exercise]:
    """What the course asks about BERT."""
    return [two_sentences(run, n), play(run, n), other_orders(run), all_heads(run, decoder, n)]


def two_sentences(run: Run, n: int) -> Exercise:
    """Does one sentence look at the other?"""
    looked = Looked(run, *PAIR)
    one = map_of(looked.view)
    assert one.second is not None
    weights = weights_of(one)
    cake, party = place_of(one, "cake"), place_of(one, "party")
    best = most(weights[:, :, cake, party])
    measured = texts_of(event_text, SEED, n)
    thing = chosen(given(run, measured, "thing", "event"))
    it = chosen(given(run, measured, "it", "event"))
    before = chosen(given(untrained(run), measured, "thing", "event"))
    found = behind_mask(run, *PAIR, "cake")
    fitting = probability(run, found, EVENTS["party"])
    for_picnic = behind_mask(run, PAIR[0].replace("party", "picnic"), PAIR[1], "cake")
    other = probability(run, for_picnic, EVENTS["picnic"])
    shares, later = blocks(weights, one.second), len(one.keys) - one.second
    across = most((shares["A → B"] * one.second + shares["B → A"] * later) / (one.second + later))
    even = one.second / len(one.keys)
    return Exercise(
        name="two-sentences",
        title="A party, and a cake for it",
        asked="Homework 8, 2.b: what does BERT look at in two sentences?",
        looked=looked,
        picture=Picture(
            png=draw_maps(one, ".png"),
            alt="The encoder's heads; dotted lines separate the two sentences into four blocks",
        ),
        seen=[
            "Two sentences make four blocks: attention within each sentence, and to the other. "
            "Means over the heads of a layer, and the shares of uniform attention:",
            table(
                ["layer", *shares],
                [
                    *((i, *row) for i, row in enumerate(by_layer(shares))),
                    ("equal", even, 1 - even, even, 1 - even),
                ],
            ),
            f"The largest share across sentences is that of head {across.name}, which gives "
            f"{across.value:.2f} of its "
            "weight to the other sentence.",
            f"From *cake*, head {best.name} gives *party* {best.value:.2f} of its weight. With a "
            f"mask in place of *cake*, the model predicts a thing for a party ({fitting:.2f}); "
            f"with *picnic* in place of *party*, a thing for a picnic ({other:.2f}). The event "
            "is in the first sentence, and only attention moves it to the second.",
            f"On {n} new pairs, head {thing.name} gives the event {thing.value:.2f} of its "
            "weight at the thing bought (before training, the best head gives "
            f"{before.value:.2f}). Head "
            f"{it.name} gives it {it.value:.2f} of its weight at *it*, on which no prediction "
            "depends: the thing bought already implies the event.",
        ],
        numbers=[
            at_least("*cake* → *party*, best head", best.value, 0.5),
            at_least("other sentence, best head", across.value, 0.5),
            at_least("what is bought → event, best head", thing.value, 0.5),
            informational("*it* → event, best head", it.value),
            at_least("a thing for a party, and for a picnic", min(fitting, other), 0.8),
        ],
    )


def play(run: Run, n: int) -> Exercise:
    """Is "play" another word where it means something else?"""
    looked = Looked(run, VERB, compare_text=NOUN)
    verb, noun = (panel.maps[0] for panel in looked.view.panels)
    found = cosines(verb, noun, "play")
    verbs, nouns = (maps_of(run, texts_of(kind, SEED, n)) for kind in (verb_text, noun_text))
    other = mean_cosines(list(zip(verbs, nouns, strict=True)), "play")
    same = mean_cosines([p for kind in (verbs, nouns) for p in pairwise(kind)], "play")
    apart = {part: [a - b for a, b in zip(same[part], other[part], strict=True)] for part in same}
    return Exercise(
        name="play",
        title="“play” in two meanings",
        asked="Homework 8, 2.b.iii: do sentences of one structure and two meanings look different?",
        looked=looked,
        picture=Picture(
            png=_drawn(found),
            alt="Cosine of the query, the key and the value of play in both sentences, by head",
        ),
        seen=[
            "*play* has the same position in both sentences. In the first layer its vectors are "
            "equal, as they don't depend on other words: all cosines are 1. In later layers "
            "they differ:",
            table(
                ["layer", *found],
                [(i, *row) for i, row in enumerate(by_layer(found))],
            ),
            f"Any other sentence changes a word's vectors, too. So here *play* in {n} sentences of "
            "each meaning is compared with *play* in another sentence of the same meaning, and in "
            "one of the other meaning:",
            table(
                ["layer", *(f"{part}, {which}" for part in same for which in ("same", "other"))],
                [
                    (layer, *(x[part][layer] for part in same for x in (same, other)))
                    for layer in range(len(verb.layers))
                ],
            ),
            "From the second layer on, vectors of one meaning are more similar than those of "
            "two; the difference is largest for values.",
        ],
        numbers=[
            equal("layer 0: least cosine", min(x[0].min() for x in found.values()), 1, within=1e-5),
            at_least("layer 1: same meaning beyond other, value", apart["value"][1], 0.2),
            at_least("the same, least of the three", min(x[1] for x in apart.values()), 0.02),
        ],
    )


def other_orders(run: Run) -> Exercise:
    """What if sentences or words come in another order?"""
    backward = backwards(PAIR[0]), backwards(PAIR[1])
    orders = {"as they are": PAIR, "sentences swapped": PAIR[::-1], "words reversed": backward}
    maps = {name: map_of(Looked(run, *pair).view) for name, pair in orders.items()}
    found = {name: _from_cake_to_party(one) for name, one in maps.items()}
    best = most(found["as they are"])
    fitting = {
        name: probability(run, behind_mask(run, *pair, "cake"), EVENTS["party"])
        for name, pair in orders.items()
    }
    neighbors = [_neighbors(one) for one in maps.values()]
    looked = Looked(run, *backward)
    return Exercise(
        name="other-orders",
        title="Reversed words and swapped sentences",
        asked="Homework 8, 2.b: what changes if words are reversed, and if sentences are swapped?",
        looked=looked,
        picture=Picture(
            png=draw_maps(maps["words reversed"], ".png"),
            alt="The encoder's heads while it reads both sentences with their words reversed",
        ),
        seen=[
            table(
                [
                    *("order", f"*cake* → *party*, head {best.name}"),
                    *("best “previous”", "best “next”", "P(a thing for a party)"),
                ],
                [
                    (name, float(found[name][best.layer, best.head]), *shares, chance)
                    for (name, chance), shares in zip(fitting.items(), neighbors, strict=True)
                ],
            ),
            "Heads that attend to a neighbor do so in any order. The head that attended to "
            "*party* no longer does, and the model no longer predicts a thing for a party. "
            "Attention itself has no order: order comes from positions and from the two "
            "segments, and the model learned to select words by all of them together. No text "
            "of its training had these orders.",
        ],
        numbers=[
            at_least("P(a thing for a party), as they are", fitting["as they are"], 0.8),
            at_most("the same, sentences swapped", fitting["sentences swapped"], 0.3),
            at_most("the same, words reversed", fitting["words reversed"], 0.3),
            at_least("a neighbor's best share, least of all", min(chain(*neighbors)), 0.25),
        ],
    )


def _from_cake_to_party(one: AttentionMap) -> Float[Tensor, "layers heads"]:
    return weights_of(one)[:, :, place_of(one, "cake"), place_of(one, "party")]


def _neighbors(one: AttentionMap) -> tuple[float, float]:
    """The largest share that any head gives to the token before, and to the token after."""
    heads = head_scores([one])
    before, after = (max(head.scores[name] for head in heads) for name in ("previous", "next"))
    return before, after


def all_heads(run: Run, decoder: Run, n: int) -> Exercise:
    """Which patterns do the heads have, and how do BERT and GPT differ?"""
    new = texts(SEED, "measured", n)
    of_encoder, of_decoder = (head_scores(maps_of(one, new)) for one in (run, decoder))
    kinds = ("previous", "next", "self", "first", "punctuation", "same token")
    best = {
        kind: [max(heads, key=lambda h: h.scores[kind]) for heads in (of_encoder, of_decoder)]
        for kind in kinds
    }
    return Exercise(
        name="all-heads",
        title="All layers, all heads",
        asked="Homework 8, 2.b.ii and 2.c: do heads differ, and how does BERT differ from GPT?",
        looked=Looked(run, *PAIR),
        picture=Picture(
            png=draw_head_scores(of_encoder, ".png"),
            alt="For each head of the encoder, the share of its weight by kind of key",
        ),
        seen=[
            f"For each kind of key, the head that gives it the most weight, on {n} new texts of "
            "all kinds:",
            table(
                [
                    "key",
                    "encoder's best head",
                    "share",
                    "decoder's best head",
                    "share",
                ],
                [
                    (kind, *(x for h in heads for x in (f"{h.layer}.{h.head}", h.scores[kind])))
                    for kind, heads in best.items()
                ],
            ),
            f"{len({heads[0][:2] for heads in best.values()})} heads of the encoder are best at "
            f"one of these {len(kinds)}. Each head has its own queries and keys, so each can "
            "attend to something else; training keeps what lowers the loss. The encoder gives "
            f"{_ahead(of_encoder):.2f} of its weight to later tokens, and the decoder none.",
        ],
        numbers=[
            equal("decoder: weight on later tokens", _ahead(of_decoder), 0, within=1e-6),
            at_least("encoder: weight on later tokens", _ahead(of_encoder), 0.2),
            at_least("encoder: best “next”", best["next"][0].scores["next"], 0.4),
            at_least("encoder: best “previous”", best["previous"][0].scores["previous"], 0.4),
        ],
    )


def _ahead(heads: list[Head]) -> float:
    """The mean share of weight that goes to later tokens."""
    return 1 - sum(head.scores["causal"] for head in heads) / len(heads)


def backwards(sentence: str) -> str:
    """A sentence with its words reversed, and its full stop where it was."""
    return " ".join(reversed(sentence.rstrip(".").split())) + "."


def _drawn(found: dict[str, Float[Tensor, "layers heads"]]) -> bytes:
    with panels(len(found), height=2.2) as (figure, axes):
        for panel, (part, values) in zip(axes, found.items(), strict=True):
            heat_map(panel, values.numpy())
            for layer, row in enumerate(values.tolist()):
                for head, cosine in enumerate(row):
                    panel.text(head, layer, f"{cosine:.2f}", ha="center", va="center", fontsize=8)
            panel.set_title(part)
            panel.set_xticks(range(values.shape[1]))
            panel.set_yticks(range(values.shape[0]))
            panel.set(xlabel="head", ylabel="layer")
        return to_png(figure)
