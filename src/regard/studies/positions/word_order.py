"""Word order with positions and without: who chased whom."""

from functools import partial
from itertools import combinations, product
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.drawing import INK, panels
from regard.models.config import TransformerConfig
from regard.models.heads import pooled_states
from regard.models.transformer import Decoder, Encoder
from regard.studies.finding import (
    Drawing,
    Evidence,
    at_least,
    at_most,
    drawing,
    informational,
    table,
)
from regard.studies.positions.permutation import KINDS, Kind
from regard.studies.random_models import untrained
from regard.studies.study import study
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer

NOUNS = ("man", "dog", "cat", "girl", "boy", "bear", "wolf", "horse", "child", "bird", "fox", "cow")
VERBS = ("chased", "saw", "heard", "followed", "called", "feared", "liked", "met")
RIDGE = 1e-2
"""What is added to the diagonal of the readout's normal equations."""


class Sentences(NamedTuple):
    """Of five tokens each, and which noun is the one who does it."""

    ids: Int[Tensor, "sentences 5"]
    doer: Int[Tensor, " sentences"]


@study(
    asked=["eecs182-transformers a"],
    question="Who chased whom: can a model answer without positions?",
    claim="Without positions, at most one of two sentences that differ only in word order is "
    "right. With positions nine of ten sentences are, and with a causal mask alone too.",
    formula=r"f(\text{the man chased the dog}) = f(\text{the dog chased the man})",
)
def word_order(
    positions: Annotated[Kind, Meta(description="the positions that should help")] = "sinusoidal",
    training: Annotated[int, Meta(ge=10, le=400, description="sentences to learn from")] = 350,
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of weights and sentences")] = 0,
) -> Evidence:
    """«The man chased the dog» and «the dog chased the man» have the same words, and the answer to
    «who did it?» is another. A Transformer without positions gives both the same mean state; so
    whatever is made of that state, it is right on one of the two at most, and on half at most of
    a test in which both always stand.

    Here no weight of the Transformer is learned. Its layer is random, and a linear readout of its
    mean state is fitted by least squares to sentences that tell who did it. That is enough for
    nouns and verbs that were never seen together, as soon as the states know the places. Rotary
    positions and ALiBi help less: they act on the scores alone, and those aren't learned here.
    """
    learned, asked = sentences(training, seed)
    bag, placed, causal = (
        readout(body, learned, asked)
        for body in (_encoder("none", seed), _encoder(positions, seed), _causal(seed))
    )
    return Evidence(
        numbers=(
            at_most("right without positions", accuracy(bag, asked), 0.5),
            at_most("pairs told apart without positions", told_apart(bag), 0.0),
            at_least(f"right with positions ({positions})", accuracy(placed, asked), 0.9),
            at_least("right with a causal mask alone", accuracy(causal, asked), 0.9),
            informational("sentences in the test", len(asked.doer)),
        ),
        figure=_drawn(
            {
                "none": accuracy(bag, asked),
                "causal mask": accuracy(causal, asked),
                **{
                    kind: accuracy(readout(_encoder(kind, seed), learned, asked), asked)
                    for kind in KINDS
                    if kind != "none"
                },
            }
        ),
        table=table(
            ["sentence", "without positions", f"with positions ({positions})", "right"],
            [
                (_text(asked.ids[i]), NOUNS[bag[i]], NOUNS[placed[i]], NOUNS[asked.doer[i]])
                for i in range(6)
            ],
        ),
    )


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


def readout(body: Encoder | Decoder, learned: Sentences, asked: Sentences) -> Int[Tensor, " n"]:
    """Who does it in the sentences asked, by least squares from the mean states."""
    states, wanted = _states(body, learned.ids), torch.eye(len(NOUNS), dtype=torch.float64)
    normal = states.mT @ states + RIDGE * torch.eye(states.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(normal, states.mT @ wanted[learned.doer])
    answers: Tensor = (_states(body, asked.ids) @ weights).argmax(-1)
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


def _states(body: Encoder | Decoder, ids: Int[Tensor, "n 5"]) -> Float[Tensor, "n d"]:
    return pooled_states(body(ids), torch.full((len(ids),), ids.shape[1]), "mean")


def _config(kind: Kind) -> TransformerConfig:
    return TransformerConfig(
        context_length=8, n_layers=1, n_heads=4, d_model=64, dropout=0.0, positions=KINDS[kind]
    )


def _encoder(kind: Kind, seed: int) -> Encoder:
    return untrained(partial(Encoder, _config(kind), _WORDS.size), seed)


def _causal(seed: int) -> Decoder:
    return untrained(partial(Decoder, _config("none"), _WORDS.size), seed)


def _drawn(right: dict[str, float]) -> Drawing:
    with panels(height=2.8) as (figure, (axes,)):
        colors = ["C0" if name == "none" else "C1" for name in right]
        axes.bar(list(right), list(right.values()), color=colors, width=0.6)
        axes.axhline(0.5, linestyle=":", color=INK, linewidth=1)
        axes.set(ylabel="right answers", ylim=(0, 1.05))
        shown = ", ".join(f"{name} {share:.0%}" for name, share in right.items())
        return drawing(
            figure, f"Right answers by positions: {shown}. Dotted: half.", name="word-order"
        )
