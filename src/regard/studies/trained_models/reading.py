"""A small encoder and decoder of sentences: structures that the heads of the encoder find, and word
classes in its states."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor

from regard.explorer.intercept import capture_attention
from regard.explorer.look import look
from regard.models.transformer import Encoder
from regard.runs.run import Run
from regard.studies.figure import Line, bar_chart, heat_map
from regard.studies.finding import Measurements, Outside, at_least, at_most, named
from regard.studies.model_cache import cached_run
from regard.studies.ridge import fit_probe
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.sentences import (
    RELATIONS,
    Labeled,
    labeled_texts,
    word_classes,
)
from regard.training.plan import Plan, plan_training
from regard.training.sources.documents import DocumentSource

TEXTS = 4000
"""Number of texts for training."""
LAYERS, HEADS, WIDTH = 2, 4, 64
TESTED = 150
"""Number of new texts, on which heads are chosen and measured."""
VARIES = "pronoun"
"""Relation without a head in some trainings."""
FOLDS = 4
"""Number of folds; the rarest class has four words, one for each."""
TRAINED, EMBEDDINGS, UNTRAINED = "trained", "trained, embeddings only", "untrained"
CLASSES = tuple(word_classes())

Steps = Annotated[int, Meta(ge=1, le=4000, description="training steps")]
"""Parameter shared by studies."""


def plan_reader(steps: int, seed: int, *, heads: int = HEADS) -> Plan:
    """Return the plan to train the encoder."""
    settings = ["template.prompt={question}", "objective.masking=0.25", f"model.n_heads={heads}"]
    return plan_texts("masked", seed, [*settings, f"training.steps={steps}"])


def plan_texts(recipe: str, seed: int, settings: Sequence[str]) -> Plan:
    """Return the plan to train a small model by a recipe on the texts of a seed."""
    small = (
        *("tokenizer.kind=words", "data.validation=0", "template.document={document}"),
        *(f"model.n_layers={LAYERS}", f"model.n_heads={HEADS}", f"model.d_model={WIDTH}"),
        *("model.context_length=32", f"seed={seed}"),
    )
    corpus = [text.text for text in labeled_texts(seed, "training", TEXTS)]
    settings = [*small, *settings]
    return plan_training(DocumentSource(corpus), recipe, "unused", settings=settings)


def plan_decoder(steps: int, seed: int) -> Plan:
    """Return the plan to train a decoder of the same size on the same texts."""
    return plan_texts("default", seed, [f"training.steps={steps}"])


class Row(NamedTuple):
    """A text with a masked word."""

    ids: list[int]
    place: int
    """Place of the mask."""
    other: int
    """Place of the word that determines the masked one."""
    target: int
    """Id of the masked word."""


def masked_rows(run: Run, texts: Sequence[Labeled], relation: str) -> list[Row]:
    """Return each text with one dependent of the relation masked."""
    rows, mask = [], run.tokenizer.special.require("mask")
    for text in texts:
        ids = run.tokenizer.encode(text.text)
        for dependent, other in text.pairs[relation]:
            masked = [*ids[:dependent], mask, *ids[dependent + 1 :]]
            rows.append(Row(masked, dependent, other, ids[dependent]))
    return rows


def mask_weights(run: Run, rows: Sequence[Row]) -> list[Float[Tensor, "heads keys"]]:
    """Return the attention weights from the mask of each row, of all heads layer by layer."""
    return [
        torch.cat([layer.weights[0, :, row.place] for layer in capture_attention(run.model, ids)])
        for row, ids in ((row, torch.tensor([row.ids])) for row in rows)
    ]


def hits(run: Run, rows: Sequence[Row]) -> Bool[Tensor, "rows heads"]:
    """Return whether each head's largest weight is on the word that determines the masked one."""
    attended = torch.stack([weights.argmax(-1) for weights in mask_weights(run, rows)])
    return attended == torch.tensor([row.other for row in rows])[:, None]


BEST, BEFORE, DISTANCE = "best head", "best head before training", "most frequent distance"
"""Labeled-relation accuracies: shares of texts in which the right word has the largest weight of
the head, or is at this distance; on texts other than those by which it was chosen."""


@study(trains=True)
def structures(
    steps: Steps = 2000,
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
    run = cached_run(plan_reader(steps, seed, heads=heads))
    new = plan_reader(1, seed, heads=heads).run
    new.model.eval()
    texts = labeled_texts(seed, "test", TESTED)
    measured, shares = dict[str, dict[str, float]](), []
    for relation in RELATIONS:
        rows = masked_rows(run, texts, relation)
        best, by_head = best_on_second_half(hits(run, rows))
        before, _ = best_on_second_half(hits(new, rows))
        distance, _ = best_on_second_half(at_distances(rows))
        measured[relation] = {BEST: best, BEFORE: before, DISTANCE: distance}
        shares.append(by_head)
    varying = {VARIES: measured.pop(VARIES)}
    yield from judged_structures(measured, wanted)
    yield Outside(f"for all structures but the {VARIES}", judged_structures(varying, wanted))
    yield heat_map(
        shares,
        x="layer.head",
        rows=list(RELATIONS),
        columns=[f"{i}.{j}" for i in range(LAYERS) for j in range(heads)],
        unit="accuracy",
        written=True,
    )
    yield look(named(run, "sentence encoder"), labeled_texts(seed, "test", 1)[0].text).data


def judged_structures(measured: Mapping[str, Mapping[str, float]], wanted: float) -> Measurements:
    """Yield the measurements that decide a claim on these relations."""
    for name, one in measured.items():
        yield at_least(f"{name}: best head", one[BEST], wanted)
        yield at_least(f"{name}: gain by training", one[BEST] - one[BEFORE], 0.1)
        if name != "previous word":
            gain = one[BEST] - one[DISTANCE]
            yield at_least(f"{name}: best head minus best fixed distance", gain, 0.05)


def best_on_second_half(
    correct: Bool[Tensor, "rows heads"],
) -> tuple[float, Float[Tensor, " heads"]]:
    """Choose a column on the first half of the rows; return its mean on the second, and all."""
    half = len(correct) // 2
    head = correct[:half].double().mean(0).argmax()
    shares = correct[half:].double().mean(0)
    return float(shares[head]), shares


def at_distances(rows: Sequence[Row]) -> Bool[Tensor, "rows distances"]:
    """Return, for each row and distance, whether the right word is at this distance."""
    distances = [row.other - row.place for row in rows]
    kinds = [distance for distance, _ in Counter(distances).most_common()]
    return torch.tensor([[distance == kind for kind in kinds] for distance in distances])


@study(trains=True)
def linear_probe(
    steps: Steps = 2000, texts: Annotated[int, Meta(ge=50, le=1000)] = 200, seed: Seed = 0
) -> EvidenceParts:
    r"""Did pretraining help the representations?

    Yes. A linear probe predicts the class of words to which it was not fitted from the states of an
    encoder trained on masked tokens. From the states of the same encoder before training, it is
    about as good as chance. The training used no labels.

    $$ \hat z = A h + b, \quad (A, b) = \operatorname{argmin} \sum_i w_i \| z_i - A h_i - b \|^2 +
    \lambda \| A \|^2 $$

    The encoder is that of the study `structures` with four heads per layer. The probe is fitted to
    three quarters of the words of each class, and tested on the others (cross-validation in four
    folds, all forms of a word in the same fold). Accuracy is the mean over classes; w_i is one over
    the number of samples of the class. Embeddings alone show the information in a word without its
    context.

    Figure. Accuracy of a linear probe of the word class on words to which it was not fitted, by
    class. Dotted: chance.

    Args:
        texts: number of texts for the probe
    """
    read = labeled_texts(seed, "probe", texts)
    run, new = cached_run(plan_reader(steps, seed)), plan_reader(1, seed).run
    new.model.eval()
    accuracies = {
        TRAINED: cross_validated(*samples(run, read)),
        EMBEDDINGS: cross_validated(*samples(run, read, embeddings=True)),
        UNTRAINED: cross_validated(*samples(new, read)),
    }
    yield from judged_probe(accuracies)
    yield bar_chart(
        {name: dict(zip(CLASSES, by.tolist(), strict=True)) for name, by in accuracies.items()},
        Line(y=1 / len(CLASSES)),
        y="accuracy on other words",
        y_limits=(0, 1.05),
    )


def judged_probe(accuracies: Mapping[str, Float[Tensor, " classes"]]) -> Measurements:
    """Yield the measurements that the claim depends on, from the accuracy per class."""
    mean = {name: float(by.mean()) for name, by in accuracies.items()}
    yield at_least("accuracy on other words, trained", mean[TRAINED], 0.7)
    yield at_most("accuracy on other words, untrained", mean[UNTRAINED], 0.3)
    yield at_least("embeddings only minus untrained", mean[EMBEDDINGS] - mean[UNTRAINED], 0)


@torch.inference_mode()
def samples(run: Run, texts: Sequence[Labeled], *, embeddings: bool = False) -> list[Tensor]:
    """Return states, class and fold of all words that have a class.

    States are those of the last layer, or the embeddings. All forms of a word are in one fold.
    """
    place = {
        word: (number, index % FOLDS)
        for number, words in enumerate(word_classes().values())
        for index, forms in enumerate(words)
        for word in forms
    }
    states: list[Tensor] = []
    places: list[tuple[int, int]] = []
    body = run.model.body
    assert isinstance(body, Encoder)
    for text in texts:
        ids = torch.tensor([run.tokenizer.encode(text.text)])
        hidden = (body.embedding(ids) if embeddings else body(ids))[0]
        chosen = [i for i, word in enumerate(text.words) if word in place]
        states.append(hidden[chosen])
        places += [place[text.words[i]] for i in chosen]
    return [torch.cat(states).double(), *torch.tensor(places).T]


def cross_validated(
    states: Float[Tensor, "samples d"], classes: Int[Tensor, " samples"], folds: Tensor
) -> Float[Tensor, " classes"]:
    """Return the accuracy of a probe per class, on words to which it was not fitted."""
    right = torch.zeros(len(classes), dtype=torch.bool)
    targets = F.one_hot(classes, len(CLASSES)).double()
    for fold in range(FOLDS):
        tested, fitted = folds == fold, folds != fold
        weights = 1 / targets[fitted].sum(0)[classes[fitted]]  # as in the mean over classes
        probe = fit_probe(states[fitted], targets[fitted], weights)
        right[tested] = probe(states[tested]).argmax(-1) == classes[tested]
    return torch.stack([right[classes == i].double().mean() for i in range(len(CLASSES))])
