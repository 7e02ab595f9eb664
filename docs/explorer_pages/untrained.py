"""Both models before their training."""

from explorer_pages.bert import PAIR
from explorer_pages.exercise import Exercise, Looked, Picture, table
from explorer_pages.measures import entropies, map_of
from regard.explorer.look import untrained
from regard.explorer.pictures import draw_maps
from regard.runs.run import Run
from regard.studies.finding import at_least, at_most

EVEN = 0.95
"""A head whose normalised entropy is above this looks at all alike."""


def before_training(encoder: Run, decoder: Run) -> Exercise:
    """What did the heads look at before training?"""
    looked = Looked(encoder, *PAIR, vs_untrained=True)
    texts = {"encoder": (encoder, PAIR), "decoder": (decoder, ("The dog sitting in the car",))}
    rows, least, after = [], [], []
    for name, (run, text) in texts.items():
        for kind, one in (("trained", run), ("before training", untrained(run))):
            found = entropies(map_of(Looked(one, *text).view))
            rows.append((name, kind, float(found.min()), float(found.mean()), float(found.max())))
            (least if one is not run else after).append(float(found.min()))
    new = map_of(Looked(untrained(encoder), *PAIR).view)
    return Exercise(
        name="before-training",
        title="Before training",
        asked="003 §2 d: what differs between a trained model and one with random weights?",
        looked=looked,
        picture=Picture(
            png=draw_maps(new, ".png"),
            alt="The encoder's heads before training: all maps are evenly pale",
        ),
        seen=[
            "Entropy of the weights, as a share of what equal weights have: 1 is a head that looks "
            "at all tokens alike. Least, mean and most of all heads:",
            table(["model", "", "least", "mean", "most"], rows),
            "New weights are small, so all scores are nearly 0 and all weights nearly equal, by "
            "whatever words. Training makes heads choose. That the gradient can't know beforehand "
            "which words a head will look at, [a study](../studies.md) measures: "
            "`regard study run untrained`.",
        ],
        numbers=[
            at_least("before training: least entropy of a head", min(least), EVEN),
            at_most("trained: least entropy of a head, of both models the larger", max(after), 0.5),
        ],
    )
