"""Word order with positions and without: who chased whom."""

from itertools import combinations, product
from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.models.heads import pooled_states
from regard.models.transformer import Decoder, Encoder
from regard.studies.figure import Line, bars, one_chart
from regard.studies.finding import EvidenceParts, at_least, at_most, informational, table
from regard.studies.positions.permutation import KINDS, Kind, one_stack
from regard.studies.random_models import untrained
from regard.studies.study import Seed, study
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer

Body: TypeAlias = Encoder | Decoder
Doers: TypeAlias = Int[Tensor, " n"]
"""The index of the doer of each sentence among the nouns."""
NOUNS = ("man", "dog", "cat", "girl", "boy", "bear", "wolf", "horse", "child", "bird", "fox", "cow")
VERBS = ("chased", "saw", "heard", "followed", "called", "feared", "liked", "met")
RIDGE = 1e-2
"""Added to the diagonal of the readout's normal equations."""
WIDTH = 64


class Sentences(NamedTuple):
    """Sentences of five tokens each, and the index of the doer among the nouns."""

    ids: Int[Tensor, "sentences 5"]
    doer: Int[Tensor, " sentences"]


@study()
def word_order(
    positions: Kind = "sinusoidal",
    training: Annotated[int, Meta(ge=10, le=400)] = 350,
    steps: Annotated[int, Meta(ge=1, le=100)] = 30,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Who chased whom: can a model answer without positions?

    Without positions, at most one of two sentences that differ only in word order is right, trained
    or not. With positions, absolute or rotary, nine of ten sentences are right after a short
    training, and with a causal mask alone too.

    $$ f(\text{the man chased the dog}) = f(\text{the dog chased the man}) $$

    «The man chased the dog» and «the dog chased the man» have the same words, and the answer to
    «who did it?» is another. A Transformer without positions gives both the same mean state; so
    whatever is made of that state, it is right on one of the two at most, and on half at most of
    a test in which both always stand.

    Untrained, the layer is random, and a linear readout of its mean state is fitted by least
    squares to sentences with their answers. With absolute positions, or a causal mask, that is
    nearly enough for nouns and verbs that were never seen together. Rotary positions act on the
    scores alone, and help when these are trained: a few steps suffice.

    ALiBi in an encoder doesn't get there: its bias is the same for a token before and a token
    behind. The distances still differ in these sentences, but a layer that trains on them
    memorizes its sentences instead. With the causal mask that ALiBi was made for, the mask is
    enough.

    Figure. Right answers after training: {shown}. Dotted: half.

    Args:
        positions: positions that should help
        training: sentences to train on
        steps: training steps, all sentences each
    """
    train_on, test_on = sentences(training, seed)
    results = {}
    for name in ("causal mask", *KINDS):
        body = make(name, seed)
        untrained_answers = readout(body, train_on, test_on)
        results[name] = Answers(untrained_answers, train(body, train_on, test_on, steps))
    bag, placed, causal = (results[name] for name in ("none", positions, "causal mask"))
    yield at_most("right without positions", accuracy(bag.trained, test_on), 0.5)
    yield at_most("the same, untrained", accuracy(bag.untrained, test_on), 0.5)
    yield at_most("pairs told apart without positions", told_apart(bag.trained), 0.0)
    yield at_least(f"right with positions ({positions})", accuracy(placed.trained, test_on), 0.9)
    yield informational("the same, untrained", accuracy(placed.untrained, test_on))
    yield at_least("right with a causal mask alone", accuracy(causal.trained, test_on), 0.9)
    yield informational("sentences in the test", len(test_on.doer))
    answers = (bag.trained, placed.trained, test_on.doer)
    rows = [(_text(test_on.ids[i]), *(NOUNS[given[i]] for given in answers)) for i in range(6)]
    yield table(["sentence", "without positions", f"with positions ({positions})", "right"], rows)
    before, after = (
        [accuracy(getattr(one, which), test_on) for one in results.values()]
        for which in ("untrained", "trained")
    )
    shown = ", ".join(f"{name} {share:.0%}" for name, share in zip(results, after, strict=True))
    yield one_chart(
        bars(before, "untrained, readout fitted"),
        bars(after, "trained"),
        Line(y=0.5, label="half"),
        names=list(results),
        y="right answers",
        y_limits=(0, 1.05),
        values={"shown": shown},
    )


class Answers(NamedTuple):
    """The doer of each sentence, as answered."""

    untrained: Doers
    trained: Doers


def make(name: str, seed: int) -> Body:
    """A random layer: an encoder with positions of this kind, or a decoder without any."""
    config = one_stack(8, 1, WIDTH, KINDS.get(name, KINDS["none"]))
    kind = Decoder if name == "causal mask" else Encoder
    return untrained(lambda: kind(config, _WORDS.size), seed)


def train(body: Body, train_on: Sentences, test_on: Sentences, steps: int) -> Doers:
    """Train layer and readout by cross-entropy; return the answers to the test."""
    weights = torch.zeros(WIDTH, len(NOUNS), dtype=torch.float64, requires_grad=True)
    body.requires_grad_(True)
    optimizer = torch.optim.Adam([*body.parameters(), weights], lr=0.01)
    for _ in range(steps):
        logits = _states(body, train_on.ids) @ weights
        optimizer.zero_grad()
        cross_entropy(logits, train_on.doer).backward()
        optimizer.step()
    with torch.no_grad():
        answers: Doers = (_states(body, test_on.ids) @ weights).argmax(-1)
    return answers


def sentences(training: int, seed: int) -> tuple[Sentences, Sentences]:
    """Some to learn from, and others in pairs: one, and right after it the same words turned round.

    Of a pair to learn from only one is taken, by chance. If both were, the best guess of a model
    that can't tell them apart would be a tie, and rounding would decide it.
    """
    pairs = list(product(combinations(range(len(NOUNS)), 2), VERBS))
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pairs), generator=draw).tolist()
    turned = torch.rand(training, generator=draw).lt(0.5).tolist()
    learned = [
        ((b, a) if turn else (a, b), verb)
        for turn, ((a, b), verb) in zip(turned, (pairs[i] for i in order), strict=False)
    ]
    asked = [(nouns, verb) for i in order[400:] for nouns, verb in _both_ways(*pairs[i])]
    return _encoded(learned), _encoded(asked)


def readout(body: Body, learned: Sentences, asked: Sentences) -> Doers:
    """Who does it in the sentences asked, by least squares from the mean states."""
    states, wanted = _states(body, learned.ids), torch.eye(len(NOUNS), dtype=torch.float64)
    normal = states.mT @ states + RIDGE * torch.eye(states.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(normal, states.mT @ wanted[learned.doer])
    answers: Doers = (_states(body, asked.ids) @ weights).argmax(-1)
    return answers


def accuracy(answers: Int[Tensor, " n"], asked: Sentences) -> float:
    """The share of right answers."""
    return float((answers == asked.doer).double().mean())


def told_apart(answers: Int[Tensor, " n"]) -> float:
    """The share of pairs whose two sentences have different answers."""
    return float((answers[0::2] != answers[1::2]).double().mean())


def _both_ways(nouns: tuple[int, int], verb: str) -> list[tuple[tuple[int, int], str]]:
    return [(nouns, verb), (nouns[::-1], verb)]


_WORDS = train_tokenizer(WordsConfig(), [f"the {' '.join(NOUNS)} {' '.join(VERBS)}"])


def _encoded(said: list[tuple[tuple[int, int], str]]) -> Sentences:
    texts = [f"the {NOUNS[a]} {verb} the {NOUNS[b]}" for (a, b), verb in said]
    return Sentences(
        torch.tensor([_WORDS.encode(text) for text in texts]),
        torch.tensor([doer for (doer, _), _ in said]),
    )


def _text(ids: Int[Tensor, "5"]) -> str:
    return _WORDS.decode(ids.tolist())


def _states(body: Body, ids: Int[Tensor, "n 5"]) -> Float[Tensor, "n d"]:
    return pooled_states(body(ids), torch.full((len(ids),), ids.shape[1]), "mean")
