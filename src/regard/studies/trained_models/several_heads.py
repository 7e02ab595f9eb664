"""Tasks and features that one head can't do, and several can."""

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.config import override
from regard.data import IGNORE
from regard.explorer.look import look
from regard.positions import RelativeBias
from regard.runs.recipes import RECIPES
from regard.studies.figure import Chart, Line, bar_chart, chart, figure, series
from regard.studies.finding import Measurements, Outside, at_least, at_most, equal, named
from regard.studies.model_cache import cached_run
from regard.studies.number_rows import Numbers, accuracy, plan_numbers, tokens_of
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest, share_error
from regard.training.plan import Plan

LENGTH, TRAINING, TEST = 12, 20_000, 500
"""Number of tokens per row, and numbers of rows."""


@study(trains=True)
def two_heads(
    k: Annotated[int, Meta(ge=3, le=12)] = 8,
    steps: Annotated[int, Meta(ge=1, le=2000)] = 400,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What can two heads do that one can't?

    With argmax attention and k tokens, one head can name both of two tokens in at most 2/k of the
    cases; two heads learn to name both in nearly all.

    $$ P(\text{right}) \le \frac{2k}{k^2} = \frac{2}{k} \text{ for one head} $$

    At each place of a row of random tokens, one layer has to name the two tokens before it, in
    order: k² possible answers. One head of argmax attention gives the layers above a place and the
    token there, at most 2k cases, and in each case they have to choose one of k answers. Two heads
    have half the width, with the same number of weights in all.

    Figure. Accuracy by mechanism and number of heads. Dotted: the bound 2/k on one head of argmax
    attention.

    Args:
        k: number of different tokens
        steps: training steps
    """
    runs = {
        (kind, heads): cached_run(plan_rows(kind, heads, k, steps, seed))
        for kind in ("argmax", "softmax")
        for heads in (1, 2)
    }
    rows, shown = rows_of(k, TEST, seed + 1), runs["softmax", 2]
    ids, labels = (torch.from_numpy(tokens_of(shown, numbers)) for numbers in rows)
    with torch.inference_mode():
        shares = {which: accuracy(run.language_model(ids), labels) for which, run in runs.items()}
    text = shown.tokenizer.decode(ids[0].tolist())
    asked = TEST * (LENGTH - 2)
    yield from judged_pairs("argmax", shares, k, asked)
    yield Outside("attention takes one value: argmax", judged_pairs("softmax", shares, k, asked))
    yield bar_chart(
        {
            label: {kind: shares[kind, heads] for kind in ("argmax", "softmax")}
            for heads, label in ((1, "one head"), (2, "two heads"))
        },
        Line(y=2 / k, label="$2 / k$"),
        y="accuracy",
        y_limits=(0, 1.05),
    )
    yield look(named(shown, "two heads of softmax"), text).data


def judged_pairs(
    kind: str, shares: Mapping[tuple[str, int], float], k: int, n: int
) -> Measurements:
    """Yield the measurements of n answers by a mechanism; shares are by mechanism and heads."""
    most = 2 / k + 3 * share_error(2 / k, n)
    yield at_most(f"accuracy, {kind}, one head", shares[kind, 1], most)
    yield at_least(f"accuracy, {kind}, two heads", shares[kind, 2], 0.9)


def rows_of(k: int, n: int, seed: int) -> tuple[Numbers, Numbers]:
    """Return rows of tokens 0..k−1; labels from the third place on are the index of the pair
    before."""
    ids = np.random.default_rng([seed, n]).integers(k, size=(n, LENGTH))
    labels = np.full_like(ids, IGNORE)
    labels[:, 2:] = ids[:, 1:-1] * k + ids[:, :-2]
    return ids, labels


def plan_rows(kind: str, heads: int, k: int, steps: int, seed: int) -> Plan:
    """Return the plan to train one layer."""
    settings = [
        *("model.context_length=16", "model.n_layers=1", "model.d_model=32"),
        *(f"model.n_heads={heads}", f"model.attention.kind={kind}"),
        *("model.positions.kind=learned", "data.validation=0", "tokenizer.kind=words"),
        *("template.document={document}{eos}", "template.prompt={question}"),
        *(f"training.steps={steps}", "training.optimizer.kind=muon", "training.lr=1e-2"),
        f"seed={seed}",
    ]
    recipe = override(RECIPES["default"], settings)
    return plan_numbers(recipe, {"stage": "two-heads", "k": k}, k * k, *rows_of(k, TRAINING, seed))


Taps = Float[Tensor, "k out d"]
"""Matrices of a convolution, one per offset."""
Input = Float[Tensor, "n d"]
SHARP = 60.0
"""Bias at which the weight of other places is below the resolution of float64."""
DRAWS = 2000
"""Number of permutations on which the lookup task is fitted and tested."""


@study()
def heads_as_filters(
    taps: Annotated[int, Meta(ge=2, le=9)] = 3,
    width: Annotated[int, Meta(ge=1, le=16)] = 4,
    n: Annotated[int, Meta(ge=10, le=40)] = 16,
    gap: Annotated[float, Meta(ge=0, le=20)] = 4.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Why several heads, and how far does the analogy to the filters of a ConvNet go?

    In one head, a feature whose score is lower by Δ gets only e^−Δ times the weight of the other;
    with a head for each, both are kept. k heads with a bias by relative position compute a
    convolution with k taps exactly, and k − 1 heads can't. The analogy ends at content: a head
    finds what it needs at any place, and no convolution does.

    $$ \frac{\alpha_2}{\alpha_1} = e^{-\Delta}, \quad \sum_{h=1}^{k} W_O^{(h)} x_{i + o_h} = (W *
    x)_i, \quad \operatorname{rank}\left[\operatorname{vec} W_1, \dots, \operatorname{vec}
    W_k\right] \le \text{heads} $$

    Head h attends to the place at offset o_h, by a bias of 0 there and −t elsewhere, and its part
    of the output projection is the matrix of that tap (Cordonnier et al., 2020). The error of fewer
    heads is at least that of the truncated SVD of the taps. In the lookup task, each place refers
    to another one, at random; the convolution has a tap for every offset.

    Figure. Left: weight of the weaker of two features, in one head and with a head for each. Right:
    difference between the sum of heads and the convolution, which falls as e^−t.

    Args:
        taps: k, taps of the convolution
        width: channels
        n: places
        gap: Δ, difference of two scores
    """
    draw = torch.Generator().manual_seed(seed)
    shared, separate = feature_weights(gap)
    weights = draw_normal(draw, taps, width, width)
    x = draw_normal(draw, n + 2 * taps, width)  # with room for both ends
    by_head, by_convolution = lookup(n, draw)
    yield equal("one head: weight of the lower score", shared, 1 / (1 + math.exp(gap)), 1e-12)
    yield at_least("two heads: least weight of a feature", separate, 0.99)
    yield at_most("k heads minus the convolution", bank_error(weights, x, SHARP), 1e-10)
    values = torch.linalg.svdvals(weights.flatten(1))
    left = values[taps - 1 :].norm() / values.norm()
    yield at_least("k − 1 heads: least relative error, by the truncated SVD", left, 0.01)
    yield at_least("lookup: variance explained by a head", by_head, 0.999)
    yield equal("lookup: variance explained by a convolution", by_convolution, 1 / n, within=0.02)
    sharpness = np.arange(0, 37, 2.0)
    errors = [bank_error(weights, x, float(t)) for t in sharpness]
    by_bias = chart(
        series(sharpness, errors, style="dots"),
        title=f"{len(weights)} heads as a convolution",
        x="$t$, bias against other places",
        y="largest error",
        y_scale="log",
    )
    yield figure(_weights_by_gap(), by_bias)


def _weights_by_gap() -> Chart:
    gaps = np.linspace(0, 8, 33)
    one, two = zip(*(feature_weights(float(gap)) for gap in gaps), strict=True)
    return chart(
        series(gaps, one, "one head"),
        series(gaps, two, "a head for each"),
        title="two features",
        x=r"$\Delta$, difference of scores",
        y="weight of the weaker feature",
        y_limits=(0, 1.05),
    )


def feature_weights(gap: float, score: float = 20.0) -> tuple[float, float]:
    """Return the weight of the lower of two scores in one head, and the least in two heads."""
    features = torch.eye(2, dtype=torch.float64)
    both = torch.tensor([[score, score - gap]], dtype=torch.float64)
    attend = Softmax(scaled=False)
    one, two = (
        attend.weights(query[None, :, None], features.expand(1, len(query), 2, 2))[0, :, 0]
        for query in (both, score * features)
    )
    return float(one[0, 1]), float(two.diagonal().min())


def bank(x: Input, weights: Taps, sharpness: float) -> Float[Tensor, "places out"]:
    """Return the output of heads with a bias by relative position, one for each tap."""
    k = len(weights)
    bias = RelativeBias(heads=k, clip=k).double().requires_grad_(False)
    bias.values.fill_(-sharpness)
    offsets = torch.arange(k) - k // 2
    bias.values[range(k), bias.bucket(offsets)] = 0.0
    blank = torch.zeros(1, k, len(x), 1, dtype=x.dtype)
    gathered = Softmax()(blank, blank, x.expand(1, k, *x.shape), bias=bias)[0]
    return torch.einsum("knd,kod->no", gathered, weights)[k : len(x) - k]


def bank_error(weights: Taps, x: Input, sharp: float) -> float:
    """Return the largest difference from the convolution, away from the ends."""
    k = len(weights)
    padded = F.conv1d(x.mT[None], weights.permute(1, 2, 0))[0].mT
    start = k - k // 2  # the first place of the bank that is compared
    return largest(bank(x, weights, sharp) - padded[start : start + len(x) - 2 * k])


def lookup(n: int, draw: torch.Generator) -> tuple[float, float]:
    """Return the variance of the values at random places explained by a head and by a convolution.

    The convolution has a tap for every offset, fitted by least squares to half of the draws.
    """
    value = draw_normal(draw, DRAWS, n, 1)
    asked = torch.rand(DRAWS, n, generator=draw).argsort(-1)
    wanted = value.gather(1, asked[..., None])
    places = torch.eye(n, dtype=torch.float64)
    query, key = SHARP * places[asked][:, None], places.expand(DRAWS, 1, n, n)
    copied = Softmax(scaled=False)(query, key, value[:, None])[:, 0]
    windows = F.pad(value[..., 0], (n - 1, n - 1)).unfold(1, 2 * n - 1, 1)
    half = DRAWS // 2
    fitted, tested = windows[:half].flatten(0, 1), windows[half:].flatten(0, 1)
    taps = torch.linalg.lstsq(fitted, wanted[:half].flatten(0, 1)).solution
    return _explained(copied, wanted), _explained(tested @ taps, wanted[half:].flatten(0, 1))


def _explained(guess: Tensor, wanted: Tensor) -> float:
    return float(1 - (guess - wanted).square().mean() / wanted.square().mean())
