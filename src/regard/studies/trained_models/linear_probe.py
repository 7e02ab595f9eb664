"""Linear probes of word classes on trained and untrained representations."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.models.transformer import Encoder
from regard.runs.run import Run
from regard.studies.figure import Line, bar_chart
from regard.studies.finding import Measurements, at_least, at_most
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import fit_probe
from regard.studies.trained_models.reading import Steps, plan_reader, trained_reader
from regard.studies.trained_models.sentences import Labeled, labeled_texts, word_classes

FOLDS = 4
"""Number of folds; the rarest class has four words, one for each."""
TRAINED, EMBEDDINGS, UNTRAINED = "trained", "trained, embeddings only", "untrained"
CLASSES = tuple(word_classes())


class Samples(NamedTuple):
    """Occurrences of words in texts."""

    states: Float[Tensor, "samples d"]
    classes: Int[Tensor, " samples"]
    folds: Int[Tensor, " samples"]
    """Fold of each word; all forms and occurrences of a word are in the same."""


@study(trains=True)
def linear_probe(
    steps: Steps = 2000,
    texts: Annotated[int, Meta(ge=50, le=1000)] = 200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Did pretraining help the representations?

    Yes. A linear probe predicts the class of words to which it was not fitted from the states of an
    encoder trained on masked tokens. From the states of the same encoder before training, it is
    hardly better than chance. The training used no labels.

    $$ \hat z = A h + b, \quad (A, b) = \operatorname{argmin} \sum_i w_i \| z_i - A h_i - b \|^2 +
    \lambda \| A \|^2 $$

    The encoder is that of the study `structures`. The classes are nouns, verbs, adjectives,
    adverbs, prepositions, names and the words that open a sentence. The probe is fitted to three
    quarters of the words of each class, and tested on the others (cross-validation in four folds,
    all forms of a word in the same fold). Accuracy is the mean over classes. Embeddings alone show
    the information in a word without its context.

    Figure. Accuracy of a linear probe of the word class on words to which it was not fitted, by
    class. Dotted: chance.

    Args:
        texts: number of texts for the probe
    """
    read = labeled_texts(seed, "probe", texts)
    run, new = trained_reader(steps, seed), plan_reader(1, seed).run
    new.model.eval()
    accuracies = {
        TRAINED: cross_validated(samples(run, read)),
        EMBEDDINGS: cross_validated(samples(run, read, embeddings=True)),
        UNTRAINED: cross_validated(samples(new, read)),
    }
    yield from judged(accuracies)
    yield bar_chart(
        {name: dict(zip(CLASSES, by.tolist(), strict=True)) for name, by in accuracies.items()},
        Line(y=1 / len(CLASSES)),
        y="accuracy on other words",
        y_limits=(0, 1.05),
    )


Accuracies = Mapping[str, Float[Tensor, " classes"]]
"""Accuracy per class, by kind of states."""


def judged(accuracies: Accuracies) -> Measurements:
    """Yield the measurements that the claim depends on."""
    mean = {name: float(by.mean()) for name, by in accuracies.items()}
    yield at_least("accuracy on other words, trained", mean[TRAINED], 0.7)
    yield at_most("accuracy on other words, untrained", mean[UNTRAINED], 0.3)
    yield at_least("embeddings only minus untrained", mean[EMBEDDINGS] - mean[UNTRAINED], 0)


@torch.inference_mode()
def samples(run: Run, texts: Sequence[Labeled], *, embeddings: bool = False) -> Samples:
    """Return the states of all words that have a class, from the last layer or the embedding."""
    place = {
        word: (number, index % FOLDS)
        for number, words in enumerate(word_classes().values())
        for index, forms in enumerate(words)
        for word in forms
    }
    states, classes, folds = [], [], []
    body = run.model.body
    assert isinstance(body, Encoder)
    for text in texts:
        ids = torch.tensor([run.tokenizer.encode(text.text)])
        hidden = (body.embedding(ids) if embeddings else body(ids))[0]
        chosen = [i for i, word in enumerate(text.words) if word in place]
        states.append(hidden[chosen])
        classes += [place[text.words[i]][0] for i in chosen]
        folds += [place[text.words[i]][1] for i in chosen]
    return Samples(torch.cat(states).double(), torch.tensor(classes), torch.tensor(folds))


def cross_validated(found: Samples) -> Float[Tensor, " classes"]:
    """Return the accuracy of a probe per class, on words to which it was not fitted."""
    hits = torch.zeros(len(found.classes), dtype=torch.bool)
    for fold in range(FOLDS):
        tested = found.folds == fold
        states, classes = found.states[~tested], found.classes[~tested]
        weights = 1 / classes.bincount(minlength=len(CLASSES))[classes].double()  # as in the mean
        probe = fit_probe(states, F.one_hot(classes, len(CLASSES)).double(), weights)
        hits[tested] = probe(found.states[tested]).argmax(-1) == found.classes[tested]
    return torch.stack([hits[found.classes == i].double().mean() for i in range(len(CLASSES))])
