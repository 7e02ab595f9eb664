"""Word order with and without positions."""

from functools import partial
from itertools import combinations, product
from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.models.heads import pooled_states
from regard.models.transformer import Decoder, Encoder, Transformer
from regard.studies.figure import Line, bar_chart, figure
from regard.studies.finding import at_least, at_most, informational, table
from regard.studies.positions.permutation import KINDS, Kind, stack_config
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import untrained
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer

Subjects: TypeAlias = Int[Tensor, " n"]
"""Index of the subject of each sentence in `NOUNS`."""
NOUNS = ("man", "dog", "cat", "girl", "boy", "bear", "wolf", "horse", "child", "bird", "fox", "cow")
VERBS = ("chased", "saw", "heard", "followed", "called", "feared", "liked", "met")
RIDGE = 1e-2
"""Added to the diagonal of the readout's normal equations."""
WIDTH = 64


class Sentences(NamedTuple):
    """Sentences of five tokens each, with their subjects."""

    ids: Int[Tensor, "sentences 5"]
    subjects: Subjects


@study()
def word_order(
    positions: Kind = "sinusoidal",
    training: Annotated[int, Meta(ge=10, le=400)] = 350,
    steps: Annotated[int, Meta(ge=1, le=100)] = 30,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Who chased whom: can a model answer without positions?

    Without positions, a model answers correctly for at most one of two sentences that differ only
    in word order, trained or not. With absolute, rotary or learned relative positions, or with a
    causal mask alone, nine of ten answers are correct after a short training.

    $$ f(\text{the man chased the dog}) = f(\text{the dog chased the man}) $$

    The untrained layer is random; a linear readout of its mean state is fitted by least squares to
    the training sentences. Then the layer is trained. The test sentences have pairs of nouns and
    verbs that are absent from training, in both orders. With ALiBi, the layer memorizes its
    sentences.

    Figure. Accuracy before and after training. After training: {shown}. Dotted: half.

    Args:
        positions: position encoding of the model with positions
        training: number of training sentences
        steps: training steps, each on all sentences
    """
    train_on, test_on = sentences(training, seed)
    names = ("causal mask", *KINDS)
    answers = {name: answered(name, train_on, test_on, steps, seed) for name in names}
    shares = {name: [accuracy(one, test_on) for one in both] for name, both in answers.items()}
    (_, bag), (_, placed) = answers["none"], answers[positions]
    yield at_most("accuracy without positions", shares["none"][1], 0.5)
    yield at_most("accuracy without positions, untrained", shares["none"][0], 0.5)
    different = (bag[0::2] != bag[1::2]).double().mean()
    yield at_most("share of pairs with different answers, without positions", different, 0.0)
    yield at_least(f"accuracy with positions ({positions})", shares[positions][1], 0.9)
    yield at_least("accuracy with a causal mask alone", shares["causal mask"][1], 0.9)
    for kind in (kind for kind in KINDS if kind not in {"none", positions}):
        yield informational(f"accuracy with positions ({kind})", shares[kind][1])
    rows = [
        (_WORDS.decode(ids.tolist()), *(NOUNS[subject] for subject in subjects))
        for ids, *subjects in zip(test_on.ids[:6], bag, placed, test_on.subjects, strict=False)
    ]
    columns = ["sentence", "without positions", f"with positions ({positions})", "correct"]
    yield table(columns, rows)
    shown = ", ".join(f"{name} {after:.0%}" for name, (_, after) in shares.items())
    groups = {
        label: {name: both[i] for name, both in shares.items()}
        for i, label in enumerate(("untrained, fitted readout", "trained"))
    }
    half = Line(y=0.5, label="half")
    yield figure(bar_chart(groups, half, y="accuracy", y_limits=(0, 1.05)), shown=shown)


def answered(
    name: str, train_on: Sentences, test_on: Sentences, steps: int, seed: int
) -> tuple[Subjects, Subjects]:
    """Return the answers of a model before and after training."""
    config = stack_config(8, 1, WIDTH, KINDS.get(name, KINDS["none"]))
    kind = Decoder if name == "causal mask" else Encoder
    body = untrained(partial(kind, config, _WORDS.size), seed)
    return readout(body, train_on, test_on), train(body, train_on, test_on, steps)


def train(body: Transformer, train_on: Sentences, test_on: Sentences, steps: int) -> Subjects:
    """Train layer and readout by cross-entropy; return the answers for the test sentences."""
    weights = torch.zeros(WIDTH, len(NOUNS), dtype=torch.float64, requires_grad=True)
    body.requires_grad_(True)
    optimizer = torch.optim.Adam([*body.parameters(), weights], lr=0.01)
    for _ in range(steps):
        logits = _states(body, train_on.ids) @ weights
        optimizer.zero_grad()
        cross_entropy(logits, train_on.subjects).backward()
        optimizer.step()
    with torch.no_grad():
        answers: Subjects = (_states(body, test_on.ids) @ weights).argmax(-1)
    return answers


def sentences(training: int, seed: int) -> tuple[Sentences, Sentences]:
    """Return training sentences, and test sentences in pairs with swapped nouns.

    Training sentences are a random one of each pair. With both, a model that can't distinguish them
    would have tied predictions, which depend on rounding.
    """
    pairs = list(product(combinations(range(len(NOUNS)), 2), VERBS))
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pairs), generator=draw).tolist()
    swapped = torch.rand(training, generator=draw).lt(0.5).tolist()
    train_on = [
        (nouns[::-1] if swap else nouns, verb)
        for swap, (nouns, verb) in zip(swapped, (pairs[i] for i in order), strict=False)
    ]
    held_out = [pairs[i] for i in order[400:]]
    test_on = [(both, verb) for nouns, verb in held_out for both in (nouns, nouns[::-1])]
    return _encoded(train_on), _encoded(test_on)


def readout(body: Transformer, train_on: Sentences, test_on: Sentences) -> Subjects:
    """Return answers for the test sentences by least squares on the mean states."""
    states, one_hot = _states(body, train_on.ids), torch.eye(len(NOUNS), dtype=torch.float64)
    normal = states.mT @ states + RIDGE * torch.eye(states.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(normal, states.mT @ one_hot[train_on.subjects])
    answers: Subjects = (_states(body, test_on.ids) @ weights).argmax(-1)
    return answers


def accuracy(answers: Subjects, test_on: Sentences) -> float:
    """Return the share of correct answers."""
    return float((answers == test_on.subjects).double().mean())


_WORDS = train_tokenizer(WordsConfig(), [f"the {' '.join(NOUNS)} {' '.join(VERBS)}"])


def _encoded(parts: list[tuple[tuple[int, int], str]]) -> Sentences:
    texts = [f"the {NOUNS[a]} {verb} the {NOUNS[b]}" for (a, b), verb in parts]
    subjects = torch.tensor([subject for (subject, _), _ in parts])
    return Sentences(torch.tensor([_WORDS.encode(text) for text in texts]), subjects)


def _states(body: Transformer, ids: Int[Tensor, "n 5"]) -> Float[Tensor, "n d"]:
    return pooled_states(body(ids), torch.full((len(ids),), ids.shape[1]), "mean")
