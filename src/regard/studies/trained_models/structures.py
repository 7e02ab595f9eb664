"""Which structures the heads of a trained model have found."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.drawing import heat_map, panels
from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    drawing,
    informational,
    named,
    table,
)
from regard.studies.study import study
from regard.studies.trained_models.reading import (
    HEADS,
    Row,
    found,
    masked_rows,
    plan_reader,
    trained_reader,
)
from regard.studies.trained_models.sentences import RELATIONS, labeled_texts

TEXTS = 150
"""New texts, on which heads are chosen and measured."""


@dataclass(frozen=True, kw_only=True)
class Structure:
    """How well a relation is found on texts on which the head wasn't chosen."""

    head: int
    """The best, counted through all layers."""
    accuracy: float
    """How often its largest weight lies on the right word."""
    offset: float
    """The same of the best fixed distance."""
    untrained: float
    """The same of the best head before training."""
    by_head: Float[Tensor, " heads"]


@study(
    asked=["eecs182-transformers d", "eecs182-hw8 2.a", "eecs182-hw8 2.b", "eecs182-hw8 2.c"],
    question="Do heads of a trained model find the previous word, the start of the sentence, the"
    " subject, and the antecedent of a pronoun?",
    claim="For each of these structures, a head attends to the right word where this helps "
    "prediction; before training none does.",
    formula=r"\mathrm{accuracy}(h) = P\left(\arg\max_j A^h_{ij} = \text{the word that } i "
    r"\text{ depends on}\right)",
    trains=True,
)
def structures(
    steps: Annotated[int, Meta(ge=1, le=4000, description="steps of training")] = 2000,
    wanted: Annotated[float, Meta(ge=0, le=1, description="accuracy that counts as found")] = 0.8,
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of texts and weights")] = 0,
) -> Evidence:
    """A small encoder learns to tell masked words in generated texts, in which it is known what
    each word depends on: a verb on its subject, a particle on the verb before it, the mark at the
    end on the sentence's first word, a pronoun on a name. Then one such word at a time is masked in
    new texts, and each head is asked where it looks from there: that is labeled-relation accuracy,
    as Clark et al. (2019, §4) measure it for BERT. A head is chosen on one half of the texts and
    measured on the other.

    Nobody told the model about subjects. Heads that look at them come from the loss alone, so that
    it is the data that decide: where a word can be told otherwise, no head need look. In an earlier
    form of these texts verbs had but two forms, singular and plural. Then a head looked at the
    subject where it was singular only; to find nothing meant plural.

    A fixed distance is the rival of such claims: the previous word is always at distance 1, but
    subjects and names are not at any one distance.
    """
    run = trained_reader(steps, seed)
    new = plan_reader(1, seed).run
    new.model.eval()
    measured = {relation: measure(run, new, relation, seed) for relation in RELATIONS}
    return Evidence(
        numbers=judged(measured, wanted),
        figure=_drawn(measured),
        table=table(
            ["structure", "best head", "accuracy", "best distance", "best head, untrained"],
            [
                (name, _name(s.head), s.accuracy, s.offset, s.untrained)
                for name, s in measured.items()
            ],
        ),
        explorer_view=look(named(run, "the reader"), labeled_texts(seed, "test", 1)[0].text).data,
    )


def judged(measured: Mapping[str, Structure], wanted: float) -> tuple[Measurement, ...]:
    """What the claim wants."""
    best = [at_least(f"{name}: best head", s.accuracy, wanted) for name, s in measured.items()]
    untrained = max(s.untrained for s in measured.values())
    beyond = [
        at_least(f"{name}: beyond the best distance", s.accuracy - s.offset, 0.1)
        for name, s in measured.items()
        if name != "previous word"
    ]
    trained = min(s.accuracy for s in measured.values())
    return (
        *best,
        *beyond,
        at_least("least of these, beyond all before training", trained - untrained, 0.1),
        informational("best head before training", untrained),
    )


def measure(run: Run, new: Run, relation: str, seed: int) -> Structure:
    """The best head of a trained model for a relation, and its rivals."""
    rows = masked_rows(run, labeled_texts(seed, "test", TEXTS), relation)
    head, accuracy, by_head = best_on_second_half(found(run, rows))
    _, untrained, _ = best_on_second_half(found(new, rows))
    _, offset, _ = best_on_second_half(at_distances(rows))
    return Structure(
        head=head, accuracy=accuracy, offset=offset, untrained=untrained, by_head=by_head
    )


def best_on_second_half(
    hits: Bool[Tensor, "rows heads"],
) -> tuple[int, float, Float[Tensor, " heads"]]:
    """The head that is best on every other row; its share on the others, and that of all heads."""
    head = int(hits[::2].double().mean(0).argmax())
    shares = hits[1::2].double().mean(0)
    return head, float(shares[head]), shares


def at_distances(rows: Sequence[Row]) -> Bool[Tensor, "rows distances"]:
    """For each distance that occurs, whether the right word is there."""
    distances = [other - dependent for _, dependent, other in rows]
    kinds = [distance for distance, _ in Counter(distances).most_common()]
    return torch.tensor([[distance == kind for kind in kinds] for distance in distances])


def _name(head: int) -> str:
    return f"layer {head // HEADS}, head {head % HEADS}"


def _drawn(measured: Mapping[str, Structure]) -> Drawing:
    shares = np.array([s.by_head.tolist() for s in measured.values()])
    with panels(height=2.6) as (figure, (axes,)):
        heat_map(axes, shares)
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                axes.text(j, i, f"{share:.2f}", ha="center", va="center", fontsize=8)
        axes.set_yticks(range(len(measured)), list(measured))
        names = [f"{j // HEADS}.{j % HEADS}" for j in range(shares.shape[1])]
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel="layer.head")
        shown = "; ".join(f"{name} {_name(s.head)}" for name, s in measured.items())
        return drawing(
            figure,
            "For each structure and head, how often the head's largest weight lies on the right "
            f"word. The best: {shown}.",
            name="structures",
        )
