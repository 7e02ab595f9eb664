"""Both models before their training."""

from explorer_pages.bert import PAIR
from explorer_pages.exercise import Exercise, Looked, Picture, table
from explorer_pages.measures import entropies, map_of
from regard.explorer.look import look, untrained
from regard.explorer.pictures import draw_maps
from regard.runs.run import Run
from regard.studies.finding import at_least, at_most

EVEN = 0.95
"""A head whose normalized entropy is above this looks at all alike."""


def before_training(encoder: Run, decoder: Run) -> Exercise:
    """What did the heads look at before training?"""
    looked = Looked(encoder, *PAIR, compare_untrained=True)
    read = {
        "encoder": (encoder, untrained(encoder), looked.text, looked.second),
        "decoder": (decoder, untrained(decoder), "The dog sitting in the car", None),
    }
    found = {
        (name, kind): entropies(map_of(look(run, text, second)))
        for name, (old, new, text, second) in read.items()
        for kind, run in (("trained", old), ("before training", new))
    }
    rows = [(*key, float(x.min()), float(x.mean()), float(x.max())) for key, x in found.items()]
    least = {
        kind: [float(x.min()) for (_, of), x in found.items() if of == kind] for _, kind in found
    }
    return Exercise(
        name="before-training",
        title="Before training",
        asked="Homework 8, 2.d: what differs between a trained model and one with random weights?",
        looked=looked,
        picture=Picture(
            png=draw_maps(looked.view.panels[1].maps[0], ".png"),
            alt="The encoder's heads before training: all maps are uniform",
        ),
        seen=[
            "Entropy of the weights, as a share of that of uniform attention: 1 is a head that "
            "attends to all tokens equally. Lowest, mean and highest of all heads:",
            table(["model", "weights", "lowest", "mean", "highest"], rows),
            "Initial weights are small, so all scores are nearly 0 and attention is nearly "
            "uniform for any words. Training makes heads selective. A [study](../studies.md) "
            "measures which gradient changes them: `regard study run untrained`.",
        ],
        numbers=[
            at_least(
                "before training: least entropy of a head", min(least["before training"]), EVEN
            ),
            at_most(
                "trained: least entropy of a head, of both models the larger",
                max(least["trained"]),
                0.5,
            ),
        ],
    )
