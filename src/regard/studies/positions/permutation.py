"""Transformers with permuted tokens, and with sentences that differ in word order."""

import math
from functools import partial
from itertools import combinations, product
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.models.config import TransformerConfig
from regard.models.transformer import Decoder, Encoder, Transformer
from regard.positions.config import PositionsConfig, T5BiasConfig
from regard.studies.figure import Line, bar_chart, chart, figure, series
from regard.studies.finding import at_least, at_most, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import untrained
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer
from regard.training.optimizers import Adam

Sentences: TypeAlias = tuple[Int[Tensor, "sentences 5"], Int[Tensor, " sentences"]]
"""Sentences of five tokens each, and the index of each subject in `NOUNS`."""
Vectors = Literal["none", "learned", "sinusoidal", "one-hot"]
Relative = Literal["rotary", "alibi", "relative-bias", "t5-bias", "shaw-vectors"]
Kind = Literal[Vectors, Relative]
KINDS: dict[str, PositionsConfig] = {
    **{kind: msgspec.convert({"kind": kind}, PositionsConfig) for kind in get_args(Kind)},
    "t5-bias": T5BiasConfig(bidirectional=True),
}
ROUNDING = 1e-10
"""Bound above rounding in six float64 layers with states of about 1, and below any effect."""
VISIBLE = 0.01
"""Smallest difference that counts as an effect, for states of about 1."""
NOUNS = ("man", "dog", "cat", "girl", "boy", "bear", "wolf", "horse", "child", "bird", "fox", "cow")
VERBS = ("chased", "saw", "heard", "followed", "called", "feared", "liked", "met")
WIDTH = 64
"""Width of the trained layer."""
_WORDS = train_tokenizer(WordsConfig(), [f"the {' '.join(NOUNS)} {' '.join(VERBS)}"])


@study()
def permutation(
    n: Annotated[int, Meta(ge=10, le=128)] = 12,
    layers: Annotated[int, Meta(ge=1, le=6)] = 2,
    positions: Kind = "none",
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Does a Transformer without positions depend on the order of its tokens?

    No, if all tokens attend to all others: permuted tokens give the same states, permuted. With a
    causal mask, it depends on the order even without positions.

    $$ f(P X) = P f(X) \quad \text{for every permutation matrix } P $$

    The models are random. Changes are largest absolute differences.

    Figure. Dots: change of the state of each token under a permutation. It is about {bag:.1g}
    {named}, up to {placed:.1g} with positions, and of similar size with a causal mask.

    Args:
        n: number of tokens
        layers: number of layers
        positions: position encoding of the first model
        seed: seed of weights and order
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    named = "without positions" if positions == "none" else f"with {positions} positions"
    bag = order_error(stack(Encoder, n, layers, KINDS[positions], seed), order)
    placed = order_error(stack(Encoder, n, layers, KINDS["sinusoidal"], seed), order)
    causal = order_error(stack(Decoder, n, layers, KINDS["none"], seed), order)
    yield at_most(f"largest change of a state, {named}", bag.max(), ROUNDING)
    yield at_least("largest change of a state, with positions", placed.max(), VISIBLE)
    yield at_least("largest change of a state, causal, without positions", causal.max(), VISIBLE)
    changes = {named: bag, "with positions": placed, "causal mask alone": causal}
    places, limits = range(1, n + 1), (1e-18, 1e3)
    dots = [series(places, one.clamp(min=1e-17), name, "dots") for name, one in changes.items()]
    by_place = chart(*dots, x="place", y="change of the state", y_scale="log", y_limits=limits)
    yield figure(by_place, bag=bag.max(), named=named, placed=placed.max())


def order_error(model: Transformer, order: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the largest change of each token's state when the tokens 0, 1, … are permuted."""
    ids = torch.arange(len(order))[None]
    moved: Tensor = model(ids[:, order]) - model(ids)[:, order]
    return moved[0].abs().amax(-1)


def stack(
    kind: type[Transformer], n: int, layers: int, positions: PositionsConfig, seed: int
) -> Transformer:
    """Return a random encoder or decoder of n tokens."""
    d = 32 * math.ceil(n / 32)  # one-hot positions take a dimension each
    sizes: dict[str, Any] = {"context_length": n, "n_layers": layers, "d_model": d, "n_heads": 4}
    config = TransformerConfig(positions=positions, **sizes)
    return untrained(partial(kind, config, n), seed)


@study()
def word_order(
    positions: Kind = "sinusoidal",
    training: Annotated[int, Meta(ge=10, le=400)] = 350,
    steps: Annotated[int, Meta(ge=1, le=100)] = 30,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Who chased whom: can a model answer without positions?

    Without positions, a model answers correctly for at most one of two sentences that differ only
    in word order. With absolute, rotary or learned relative positions, or with a causal mask alone,
    nine of ten answers are correct after a short training.

    $$ f(\text{the man chased the dog}) = f(\text{the dog chased the man}) $$

    The test sentences have pairs of nouns and verbs that are absent from training, in both orders.

    Figure. Accuracy after training: {shown}. Dotted: half.

    Args:
        positions: position encoding of the model with positions
        training: number of training sentences
        steps: training steps, each on all sentences
    """
    train_on, test_on = sentences(training, seed)
    names = ("causal mask", *KINDS)
    shares = {name: accuracy(name, train_on, test_on, steps, seed) for name in names}
    yield at_most("accuracy without positions", shares["none"], 0.5)
    yield at_least(f"accuracy with positions ({positions})", shares[positions], 0.9)
    yield at_least("accuracy with a causal mask alone", shares["causal mask"], 0.9)
    for kind in (kind for kind in KINDS if kind not in {"none", positions}):
        yield informational(f"accuracy with positions ({kind})", shares[kind])
    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    half = Line(y=0.5, label="half")
    yield figure(bar_chart({"": shares}, half, y="accuracy", y_limits=(0, 1.05)), shown=shown)


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


def _encoded(parts: list[tuple[tuple[int, int], str]]) -> Sentences:
    texts = [f"the {NOUNS[a]} {verb} the {NOUNS[b]}" for (a, b), verb in parts]
    subjects = torch.tensor([subject for (subject, _), _ in parts])
    return torch.tensor([_WORDS.encode(text) for text in texts]), subjects


def accuracy(name: str, train_on: Sentences, test_on: Sentences, steps: int, seed: int) -> float:
    """Train a layer and a readout of its mean state; return the accuracy on test sentences."""
    kind = Decoder if name == "causal mask" else Encoder
    positions = KINDS.get(name, KINDS["none"])
    sizes: dict[str, Any] = {"context_length": 8, "n_layers": 1, "d_model": WIDTH, "n_heads": 4}
    config = TransformerConfig(positions=positions, **sizes)
    layer = untrained(partial(kind, config, _WORDS.size), seed).float().requires_grad_()
    readout = torch.zeros(WIDTH, len(NOUNS), requires_grad=True)
    optimizer = Adam([*layer.parameters(), readout], lr=0.01)
    ids, subjects = train_on
    for _ in range(steps):
        logits = layer(ids).mean(1) @ readout
        optimizer.zero_grad()
        cross_entropy(logits, subjects).backward()
        optimizer.step()
    ids, subjects = test_on
    answers = (layer(ids).mean(1) @ readout).argmax(-1)
    return float((answers == subjects).double().mean())
