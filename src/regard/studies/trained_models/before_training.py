"""Attention of small models before and after training: patterns of heads, and gradients."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor, nn

from regard.explorer.head_scores import Head, entropy, head_scores, mean_entropy, same_token
from regard.explorer.intercept import AttentionRecord, capture_attention, intercept
from regard.explorer.look import adapter_of, look
from regard.models.builders import Model
from regard.runs.run import Run
from regard.studies.figure import figure, heat_map
from regard.studies.finding import (
    Measurements,
    at_least,
    at_most,
    equal,
    informational,
    named,
    table,
)
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest
from regard.studies.trained_models import reading
from regard.studies.trained_models.heads import by_layer
from regard.studies.trained_models.sentences import RELATIONS, labeled_texts

PATTERNS = ("previous", "next", "self", "first", "punctuation", "same token")


@study(trains=True)
def head_patterns(steps: reading.Steps = 2000, seed: Seed = 0) -> EvidenceParts:
    r"""What do the heads of a decoder and of an encoder attend to, layer by layer?

    A decoder gives no weight to later tokens, an encoder at least a third. Training makes the heads
    of both less uniform. One head of the encoder gives the next token at least 0.3 of its weight,
    with four of five seeds.

    $$ \mathrm{forward} = \frac{1}{n} \sum_i \sum_{j > i} A_{ij} $$

    Both models are small and our own, trained on generated texts. On new texts, each head is scored
    by the share of its weight on each pattern. Entropy is relative to that of uniform weights over
    the keys that a query sees; distance is in tokens.

    Figure. Share of each head's weight by pattern, of a trained decoder and a trained encoder,
    averaged over the queries of new texts. Rows are heads, by layer and head.
    """
    texts = [text.text for text in labeled_texts(seed, "test", 60)]
    after = {
        "decoder": score(cached_run(reading.plan_decoder(max(steps // 4, 1), seed)), texts),
        "encoder": score(cached_run(reading.plan_reader(steps, seed)), texts),
    }
    before = {
        "decoder": score(reading.plan_decoder(1, seed).run, texts),
        "encoder": score(reading.plan_reader(1, seed).run, texts),
    }
    yield from judged_patterns(before, after)
    panels, columns = [], [pattern.removesuffix(" token") for pattern in PATTERNS]
    axes: dict[str, Any] = {"y": "layer.head", "unit": "share of the weight", "written": True}
    for name, heads in after.items():
        shares = [[head.scores[pattern] for pattern in PATTERNS] for head in heads]
        rows = [f"{head.layer}.{head.head}" for head in heads]
        panels.append(heat_map(shares, title=name, rows=rows, columns=columns, **axes))
    yield figure(*panels, columns=1)


def score(run: Run, texts: Sequence[str]) -> list[Head]:
    """Score all heads of a run on texts."""
    run.model.eval()
    adapter = adapter_of(run)
    return head_scores([adapter.attention_maps(text)[0] for text in texts])


def judged_patterns(
    before: Mapping[str, Sequence[Head]], after: Mapping[str, Sequence[Head]]
) -> Measurements:
    """Yield the measurements that the claim depends on."""
    later = {name: 1 - by_layer(heads, "causal").mean() for name, heads in after.items()}
    yield equal("decoder: weight on later tokens", later["decoder"], 0, within=1e-6)
    yield at_least("encoder: weight on later tokens", later["encoder"], 1 / 3)
    earlier = 1 - later["encoder"] - by_layer(after["encoder"], "self").mean()
    yield informational("encoder: weight on earlier tokens", earlier)
    for name, heads in after.items():
        fall = mean_entropy(before[name]) - mean_entropy(heads)
        yield at_least(f"{name}: mean entropy, before minus after training", fall, 0.05)
    best = by_layer(after["encoder"], "next").max()
    yield at_least("encoder: next token, best head", best, 0.3)
    for layer in range(reading.LAYERS):
        for name in ("first", "entropy", "distance"):
            mean = by_layer(after["decoder"], name)[layer].mean()
            yield informational(f"decoder, layer {layer}: {name}", mean)


TEXTS = 15
INITIAL = 0.02
"""Standard deviation of a new model's weights."""


class Gradients(NamedTuple):
    """Weights and gradients of a model's heads, numbered through all layers."""

    entropy: Float[Tensor, " heads"]
    """Entropy of the weights divided by ln n, averaged over rows and queries."""
    spread: float
    """Standard deviation of the scores of one query in the first layer."""
    norm: Float[Tensor, " heads"]
    """Norm of ∂L/∂A, averaged over rows."""
    sizes: list[Float[Tensor, "heads n"]]
    """|∂L/∂A_ij| of the masked i divided by the mean over all j, row by row."""
    attended: list[Int[Tensor, " heads"]]
    """Word with the largest weight of the masked one, row by row."""
    at_equal: float
    """Weight on another occurrence of the query's token, divided by 1/n."""
    error: float
    """Largest difference between ∂L/∂A_ij and (∂L/∂o_i)·v_j."""


@study(trains=True)
def untrained(
    std: Annotated[float, Meta(ge=0.001, le=0.5)] = INITIAL,
    steps: reading.Steps = 2000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do attention maps look like before training, and which gradient changes them?

    With weights N(0, σ²), the standard deviation of scores is only dσ², so attention is nearly
    uniform; after training it isn't. The gradient of a weight is (∂L/∂o_i)·v_j. Before training,
    its size at the words that heads will attend to, averaged over texts and heads, is within a
    fifth of the mean over all words. After it, the ratio to the mean at the words that determine
    the masked one is higher, by at least 0.1 at four of five seeds (0 to 4).

    $$ \mathrm{sd}_j\left(\frac{q_i \cdot k_j}{\sqrt{d_h}}\right) = d \sigma^2, \quad \frac{\partial
    L}{\partial A_{ij}} = \frac{\partial L}{\partial o_i} \cdot v_j $$

    Scores, weights and gradients of the encoder of study `structures`, with four heads per layer,
    are measured before and after training, in texts with one masked word.

    Figure. Attention of the first layer for one text; rows are queries, columns keys. Above: before
    training, nearly uniform. Below: after training, each head attends to a few words.

    Args:
        std: standard deviation of weights before training
    """
    new, run = reading.plan_reader(1, seed).run, cached_run(reading.plan_reader(steps, seed))
    rescale(new.model, std / INITIAL)
    texts = labeled_texts(seed, "test", TEXTS)
    read = [row for relation in RELATIONS for row in reading.masked_rows(run, texts, relation)]
    before, after = (measured_gradients(model, read) for model in (new.model, run.model))
    text = texts[0].text
    yield from judged_gradients(before, after, [row.other for row in read], std)
    columns = torch.stack([before.entropy, after.entropy, before.norm, after.norm], 1).tolist()
    rows = [(f"{i // reading.HEADS}.{i % reading.HEADS}", *row) for i, row in enumerate(columns)]
    yield table(["head", "entropy before", "after", "norm of ∂L/∂A before", "after"], rows)
    shown = torch.tensor([read[-1].ids])
    yield figure(
        *(
            heat_map(weights, title=f"{name}, head 0.{head}", unit="weight")
            for name, one in (("before", new), ("after", run))
            for head, weights in enumerate(capture_attention(one.model, shown)[0].weights[0])
        ),
        columns=reading.HEADS,
    )
    views = (look(named(new, "before training"), text), look(named(run, "after training"), text))
    yield views[0].beside(views[1]).data


def judged_gradients(
    before: Gradients, after: Gradients, words: Sequence[int], std: float
) -> Measurements:
    """Yield the measurements of the claim; `words` determine the masked ones, row by row."""
    predicted = reading.WIDTH * std**2
    name, tolerance = "before: standard deviation of scores", 0.15 * predicted
    yield equal(name, before.spread, predicted, within=tolerance)
    yield at_least("before: least entropy of a head / ln n", before.entropy.min(), 0.99)
    yield at_most("after: least entropy of a head / ln n", after.entropy.min(), 0.5)
    yield at_most("∂L/∂A_ij − (∂L/∂o_i)·v_j", max(before.error, after.error), 1e-9)
    at_first = at_words(before.sizes, words)
    yield equal("before: |∂L/∂A| at the right word / mean", at_first, 1, within=0.2)
    gain = at_words(after.sizes, words) - at_first
    yield at_least("|∂L/∂A| at the right word / mean: after minus before", gain, 0.1)
    name = "|∂L/∂A| at the word with the largest trained weight / mean"
    yield equal(f"before: {name}", at_words(before.sizes, after.attended), 1, within=0.2)
    yield at_least(f"after: {name}", at_words(after.sizes, after.attended), 1.2)
    yield equal("before: weight on an equal token · n", before.at_equal, 1, within=0.05)


def at_words(
    sizes: Sequence[Float[Tensor, "heads n"]], words: Sequence[int | Int[Tensor, " heads"]]
) -> float:
    """Return the mean of what each head has at its word, over heads and rows."""
    found = [size[range(len(size)), word] for size, word in zip(sizes, words, strict=True)]
    return float(torch.stack(found).mean())


@torch.no_grad()
def rescale(model: nn.Module, factor: float) -> None:
    """Multiply all matrices by a factor."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.mul_(factor)


def masked_loss(model: Model, row: reading.Row) -> Float[Tensor, ""]:
    """Return the loss of the masked token."""
    return F.cross_entropy(model(torch.tensor([row.ids]))[0, row.place], torch.tensor(row.target))


def measured_gradients(model: Model, rows: Sequence[reading.Row]) -> Gradients:
    """Return weights and gradients on rows with one masked token, in float64."""
    exact = copy.deepcopy(model).double().eval()
    found = [row_gradients(exact, partial(masked_loss, exact, row)) for row in rows]
    weights, gradients, expected = zip(*found, strict=True)
    sizes = [each[:, row.place].abs() for each, row in zip(gradients, rows, strict=True)]
    sizes = [size / size.mean(-1, keepdim=True).clamp(min=1e-300) for size in sizes]
    equals = [
        (each[:, same_token(torch.tensor(row.ids))] * len(row.ids)).flatten()
        for each, row in zip(weights, rows, strict=True)
    ]
    return Gradients(
        entropy=torch.stack([entropy(one, causal=False) for one in weights]).mean(0),
        spread=fmean(float(one[: reading.HEADS].log().std(-1).mean()) for one in weights),
        norm=torch.stack([each.flatten(1).norm(dim=1) for each in gradients]).mean(0),
        sizes=sizes,
        attended=[x[:, row.place].argmax(-1) for x, row in zip(weights, rows, strict=True)],
        at_equal=float(torch.cat(equals).mean()),
        error=max(largest(one - two) for one, two in zip(gradients, expected, strict=True)),
    )


def row_gradients(
    model: nn.Module, loss: Callable[[], Float[Tensor, ""]]
) -> list[Float[Tensor, "heads n n"]]:
    """Return the weights of all heads on a row, and their gradients by autograd and by formula.

    The formula is (∂L/∂o_i)·v_j.
    """
    kept: list[tuple[Tensor, Tensor, Tensor]] = []

    def handle(record: AttentionRecord) -> Tensor:
        out = record.output_from(record.weights)
        kept.append((record.weights, record.value, out))
        return out

    with intercept(model, handle):
        value = loss()
    weights, values, outs = zip(*kept, strict=True)
    gradients = torch.autograd.grad(value, [*weights, *outs])
    by_weights, by_outs = gradients[: len(kept)], gradients[len(kept) :]
    by_formula = [by_out @ v.detach().mT for by_out, v in zip(by_outs, values, strict=True)]
    return [torch.cat(x, 1)[0].detach() for x in (weights, by_weights, by_formula)]
