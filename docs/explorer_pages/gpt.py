"""What a small GPT looks at: subjects, names, and the beginning of a text."""

from collections.abc import Callable
from random import Random
from statistics import mean

from explorer_pages.exercise import Exercise, Looked, Picture, table
from explorer_pages.measures import (
    Head,
    chosen,
    given,
    map_of,
    maps_of,
    most,
    next_words,
    place_of,
    probability,
    weights_of,
)
from explorer_pages.sentences import (
    HOBBIES,
    MOVES,
    SUBJECTS,
    Text,
    clause_text,
    moving_text,
    pronoun_text,
    texts,
    texts_of,
)
from regard.explorer.head_scores import draw_head_scores, head_scores, sink_share
from regard.explorer.look import untrained
from regard.explorer.pictures import draw_map, draw_maps
from regard.runs.run import Run
from regard.studies.finding import at_least, at_most, equal

SEED = 1
"""Of the texts that are measured."""


def gpt_exercises(run: Run, n: int) -> list[Exercise]:
    """What the course asks about GPT."""
    return [one(run, n) for one in (the_dog_ran, the_dog_in_the_car, the_pronoun, the_layers)]


def the_dog_ran(run: Run, n: int) -> Exercise:
    """Does the verb look at who does it?"""
    looked = Looked(run, "The dog ran")
    one = map_of(looked.view)
    verb, dog = place_of(one, "ran"), place_of(one, "dog")
    best = most(weights_of(one)[:, :, verb, dog])
    goal, before = _beside(run, n, moving_text, "before the goal", "subject")
    to = probability(run, next_words(run, looked.text), ["to"])
    kennel, stable = (_goes_home(run, noun) for noun in ("dog", "horse"))
    return Exercise(
        name="the-dog-ran",
        title="The dog ran",
        asked="Homework 8, 2.a.i: which words does GPT look at?",
        looked=looked,
        picture=Picture(
            png=draw_maps(one, ".png"),
            alt="The decoder's heads while it reads: rows attend to columns to their left",
        ),
        seen=[
            "No head attends to later tokens: the upper triangle is empty. From *ran*, no head "
            "gives "
            f"*dog* more than {best.value:.2f} (head {best.name}), where equal weights give "
            f"{1 / (verb + 1):.2f}. In the course, *ran* attends to *dog*; here it doesn't have "
            f"to. At *ran*, a decoder predicts the next word, which is *to* ({to:.2f}) for any "
            "subject.",
            "Tokens attend to the subject where it is needed. The goal depends on the subject "
            f"alone: after *The dog ran to the* the model expects *kennel* ({kennel:.2f}), and "
            "after *The "
            f"horse ran to the*, *stable* ({stable:.2f}). In {n} new sentences, some with another "
            f"noun between, head {goal.name} gives the subject {goal.value:.2f} of its weight at "
            "the word before the goal; before training, the best head gives it "
            f"{before.value:.2f}.",
        ],
        numbers=[
            at_most("*ran* → *dog*, best head", best.value, 0.5),
            at_least("before the goal → subject, best head", goal.value, 0.5),
            at_least("the same, beyond before training", goal.value - before.value, 0.3),
            at_least("probability of *kennel* and of *stable*", min(kennel, stable), 0.8),
        ],
    )


def the_dog_in_the_car(run: Run, n: int) -> Exercise:
    """Does what is near stand in the way of what is meant?"""
    looked = Looked(run, "The dog sitting in the car")
    one = map_of(looked.view)
    last, dog = place_of(one, "car"), place_of(one, "dog")
    weights = weights_of(one)[:, :, last]
    best = most(weights[:, :, dog])
    to_car = float(weights[best.layer, best.head, last])
    after = next_words(run, looked.text)
    of_dog, of_car = (probability(run, after, SUBJECTS[noun][0]) for noun in ("dog", "car"))
    of_all = probability(run, after, MOVES)
    subject, before = _beside(run, n, clause_text, "before the verb", "subject")
    other = _same_head(run, n, clause_text, subject, "before the verb", "other")
    return Exercise(
        name="the-dog-sitting-in-the-car",
        title="The dog sitting in the car",
        asked="Homework 8, 2.a.i: does GPT look at the subject, or the object of the preposition?",
        looked=looked,
        picture=Picture(
            png=draw_map(one, best.layer, best.head, ".png"),
            alt="The head in which the last word, car, attends to the subject, dog",
        ),
        seen=[
            "The next word is the verb, and *car* is the noun right before it. Still, head "
            f"{best.name} gives *dog* {best.value:.2f} of its weight, and *car* itself "
            f"{to_car:.2f}. The next word is a verb of dogs (*barked*, *growled*) with "
            f"probability {of_dog:.2f}, a verb of all nouns (*ran*, *came*, *went*) with "
            f"{of_all:.2f}, and a verb of cars (*honked*, *skidded*) with {of_car:.1g}.",
            f"On {n} new sentences of this form, head {subject.name} gives the subject "
            f"{subject.value:.2f}, and the noun between {other:.2f}. Before training the best "
            f"head gives the subject {before.value:.2f}.",
        ],
        numbers=[
            at_least("*car* → *dog*, best head", best.value, 0.5),
            at_least("last word → subject, best head", subject.value, 0.5),
            at_most("the same head → the noun in its way", other, 0.2),
            at_most("what a car does, over what a dog does", of_car / of_dog, 0.1),
        ],
    )


def the_pronoun(run: Run, n: int) -> Exercise:
    """Does a pronoun look at the name that it means?"""
    start = "{} met {} near the train. She"
    looked = Looked(run, start.format("Ada", "Otto"), compare_text=start.format("Otto", "Ada"))
    panels = [panel.maps[0] for panel in looked.view.panels]
    found = [weights_of(one)[:, :, place_of(one, "she"), place_of(one, "ada")] for one in panels]
    best = most(found[0].minimum(found[1]))
    first, last = (float(x[best.layer, best.head]) for x in found)
    after = next_words(run, looked.text)
    painted, fished = (
        probability(run, after, [HOBBIES[pronoun][name]])
        for pronoun, name in (("She", "Ada"), ("He", "Otto"))
    )
    meant, before = _beside(run, n, pronoun_text, "pronoun", "meant")
    other = _same_head(run, n, pronoun_text, meant, "pronoun", "other")
    return Exercise(
        name="a-pronoun",
        title="The name that a pronoun means",
        asked="Homework 8, 2.a.i: does GPT connect a pronoun with a name of the sentence before?",
        looked=looked,
        picture=Picture(
            png=draw_map(panels[0], best.layer, best.head, ".png"),
            alt="The head in which She attends to Ada, and not to Otto",
        ),
        seen=[
            f"From *She*, head {best.name} gives *Ada* {first:.2f} of its weight where Ada is "
            f"named first, and {last:.2f} where Otto is. The next word is Ada's verb: *painted* "
            "has "
            f"probability {painted:.2f}, and Otto's *fished* {fished:.1g}.",
            f"On {n} new pairs of sentences, with the names in any order, head {meant.name} gives "
            f"the person meant {meant.value:.2f}, and the other {other:.2f}. Before "
            f"training the best head gives {before.value:.2f}.",
        ],
        numbers=[
            at_least("*She* → *Ada* in either order, same head", min(first, last), 0.5),
            at_least("pronoun → who is meant, best head", meant.value, 0.5),
            at_most("the same head → the other person", other, 0.2),
            at_least("probability of *painted*", painted, 0.8),
        ],
    )


def the_layers(run: Run, n: int) -> Exercise:
    """What changes from layer to layer?"""
    looked = Looked(run, "Today the old dog sitting in the car ran to the kennel.")
    new = texts(SEED, "measured", n)
    heads, fresh = (head_scores(maps_of(one, new)) for one in (run, untrained(run)))
    layers = dict.fromkeys(head.layer for head in heads)
    shown = ("first", "previous", "self", "entropy", "distance")
    rows = [
        (layer, *(mean(h.scores[name] for h in heads if h.layer == layer) for name in shown))
        for layer in layers
    ]
    least_causal = min(head.scores["causal"] for head in heads)
    of_layers = [mean(h.scores["entropy"] for h in heads if h.layer == layer) for layer in layers]
    beyond = of_layers[0] - min(of_layers[1:], default=1.0)
    return Exercise(
        name="layers",
        title="From layer to layer",
        asked="Homework 8, 2.a.ii: do tokens look at other tokens in other layers?",
        looked=looked,
        picture=Picture(
            png=draw_head_scores(heads, ".png"),
            alt="For each head of the decoder, the share of its weight by kind of key",
        ),
        seen=[
            f"Means over the heads of a layer, on {n} new texts of all kinds:",
            table(["layer", *shown], rows),
            "The first layer is the most selective: few words get most of its weight. Later "
            "layers spread theirs. In large models, according to the course, heads that find "
            "nothing useful attend to the first word. Here that would be <sep>, which begins "
            "every text: "
            f"{sink_share(heads):.0%} of the heads give it more than 0.3 of their weight, and all "
            "of them together "
            f"{mean(h.scores['first'] for h in heads):.2f} (before training "
            f"{mean(h.scores['first'] for h in fresh):.2f}, that of uniform attention).",
        ],
        numbers=[
            equal("weight on later tokens", 1 - least_causal, 0, within=1e-6),
            at_most("entropy: layer 0, beyond the least of the others", beyond, 0),
        ],
    )


def _goes_home(run: Run, noun: str) -> float:
    after = next_words(run, f"The {noun} ran to the")
    return probability(run, after, [SUBJECTS[noun][1]])


def _beside(
    run: Run, n: int, kind: Callable[[Random], Text], query: str, key: str
) -> tuple[Head, Head]:
    """The best head of the model, and of the model before training."""
    measured = texts_of(kind, SEED, n)
    new = untrained(run)
    found = (chosen(given(one, measured, query, key)) for one in (run, new))
    return next(found), next(found)


def _same_head(
    run: Run, n: int, kind: Callable[[Random], Text], head: Head, query: str, key: str
) -> float:
    """What a head gives to another word, on the texts on which it was measured."""
    shares = given(run, texts_of(kind, SEED, n), query, key)
    return float(shares[1::2, head.layer, head.head].mean())
