"""Linguistic structures found by the heads of a trained model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import heat_map
from regard.studies.finding import Measurements, Outside, at_least, named
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models import reading
from regard.studies.trained_models.sentences import RELATIONS, labeled_texts

TEXTS = 150
"""Number of new texts, on which heads are chosen and measured."""
VARIES = "pronoun"
"""Relation without a head in some trainings."""


class Structure(NamedTuple):
    """Labeled-relation accuracy, on texts other than those by which the head was chosen."""

    accuracy: float
    """Share of texts in which the largest weight of the best head is on the right word."""
    offset: float
    """Share of texts in which the right word is at the most frequent distance."""
    untrained: float
    """Accuracy of the best head before training."""
    by_head: Float[Tensor, " heads"]


@study(trains=True)
def structures(
    steps: reading.Steps = 2000,
    heads: Literal[1, 2, 4, 8, 16] = 8,
    wanted: Annotated[float, Meta(ge=0, le=1)] = 0.6,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Do heads of a trained model find the previous word, the start of the sentence, the subject,
    the verb of an object, and the antecedent of a pronoun?

    Yes for all but the pronoun, which depends on the training. For each other structure, every
    trained model has a head whose largest weight is on the right word in at least three of five new
    texts, if the word is needed for prediction. This is more often than the right word is at any
    fixed distance. Before training, no head comes close.

    $$ \mathrm{accuracy}(h) = P\left(\operatorname{argmax}_j A^h_{ij} = \text{the word that } i
    \text{ depends on}\right) $$

    A small encoder learns to predict masked words in generated texts with known dependencies. Then
    one such word at a time is masked in new texts, and the place of each head's largest weight from
    the mask is compared with the word that it depends on (Clark et al., 2019, §4). A head is chosen
    on one half of the texts and measured on the other.

    At each of five seeds (0 to 4), each structure has a head. With four wider heads per layer
    (`heads=4`), fewer structures may have their own head. Another order of additions gives
    another training, so other processors give other heads.

    Figure. Labeled-relation accuracy: for each structure and head, the share of texts in which the
    head's largest weight is on the right word.

    Args:
        heads: heads per layer, which share a width of 64
        wanted: accuracy required to count as found
    """
    run = reading.trained_reader(steps, seed, heads=heads)
    new = reading.plan_reader(1, seed, heads=heads).run
    new.model.eval()
    measured = {relation: measure(run, new, relation, seed) for relation in RELATIONS}
    always = {name: one for name, one in measured.items() if name != VARIES}
    yield from judged(always, wanted)
    varying = judged({VARIES: measured[VARIES]}, wanted)
    yield Outside(f"for all structures but the {VARIES}", varying)
    shares = [s.by_head.tolist() for s in measured.values()]
    names = [f"{j // heads}.{j % heads}" for j in range(len(shares[0]))]
    axes: dict[str, Any] = {"x": "layer.head", "rows": list(measured), "columns": names}
    yield heat_map(shares, unit="accuracy", written=True, **axes)
    yield look(named(run, "sentence encoder"), labeled_texts(seed, "test", 1)[0].text).data


def judged(measured: Mapping[str, Structure], wanted: float) -> Measurements:
    """Yield the measurements that decide a claim on these relations."""
    for name, s in measured.items():
        yield at_least(f"{name}: best head", s.accuracy, wanted)
        yield at_least(f"{name}: gain by training", s.accuracy - s.untrained, 0.1)
        if name != "previous word":
            gain = s.accuracy - s.offset
            yield at_least(f"{name}: best head minus best fixed distance", gain, 0.05)


def measure(run: Run, new: Run, relation: str, seed: int) -> Structure:
    """Return the best head of a trained model for a relation, and its alternatives."""
    rows = reading.masked_rows(run, labeled_texts(seed, "test", TEXTS), relation)
    accuracy, by_head = best_on_second_half(reading.hits(run, rows))
    untrained, _ = best_on_second_half(reading.hits(new, rows))
    offset, _ = best_on_second_half(at_distances(rows))
    return Structure(accuracy=accuracy, offset=offset, untrained=untrained, by_head=by_head)


def best_on_second_half(
    correct: Bool[Tensor, "rows heads"],
) -> tuple[float, Float[Tensor, " heads"]]:
    """Choose a column on the first half of the rows; return its mean on the second, and all."""
    half = len(correct) // 2
    head = correct[:half].double().mean(0).argmax()
    shares = correct[half:].double().mean(0)
    return float(shares[head]), shares


def at_distances(rows: Sequence[reading.Row]) -> Bool[Tensor, "rows distances"]:
    """Return, for each row and distance, whether the right word is at this distance."""
    distances = [row.other - row.place for row in rows]
    kinds = [distance for distance, _ in Counter(distances).most_common()]
    return torch.tensor([[distance == kind for kind in kinds] for distance in distances])
