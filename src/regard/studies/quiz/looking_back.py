"""Small trainings to predict earlier tokens: learned embeddings, and heads with equal weights."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.explorer.intercept import AttentionRecord, capture_attention
from regard.models.config import DecoderConfig
from regard.models.head_config import TokenClassificationHeadConfig
from regard.positions.config import LearnedConfig, PositionsConfig, RotaryConfig
from regard.studies.figure import bar_chart, chart, series
from regard.studies.finding import at_least, at_most, informational
from regard.studies.quiz.checks import WIDTH, Draw, Std
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import map_distance
from regard.training.optimizers import Adam

TOKENS, LENGTH, ROWS = 4, 12, 32
"""Vocabulary size, length of a row, and rows per step."""
WORD, CROSS = r"$x \cdot x$, same word", r"$x \cdot p$"
BACK = (1, 3)
"""Distances of the two tokens that two heads predict."""
EVERY = 10
"""Steps between two measurements of their maps."""


@study()
def trained_embeddings(
    d: Annotated[int, Meta(ge=8, le=128, multiple_of=4)] = 64,
    steps: Annotated[int, Meta(ge=10, le=400)] = 100,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Are the cross terms of added positions also small after training?

    Learned words and positions stay nearly orthogonal: cross terms are below a quarter of the
    product of a word with itself, before training and after it.

    $$ \frac{\sqrt{\mathrm{E}[(x \cdot p)^2]}}{\mathrm{E}[x \cdot x]} $$

    A decoder with learned positions, added to the words, is trained to predict the token two
    positions back. The word at each position is random here; in natural language words and
    positions may become correlated.

    Figure. Size of the products of words x and positions p before and after training. Training
    makes words and positions longer; the cross terms x·p stay far below the product of a word with
    itself.

    Args:
        d: width of the model
        steps: training steps
    """
    model = Draw(seed, 0.1).model(config(d, LearnedConfig()), tokens=TOKENS).train()
    before = terms(model)
    first, *_, last = train(model, distances=(2,), steps=steps, seed=seed)
    after = terms(model)
    name = "cross terms / x·x of a word"
    yield at_most(f"{name}, before training", before[CROSS] / before[WORD], 0.25)
    yield at_most(f"{name}, after training", after[CROSS] / after[WORD], 0.25)
    yield at_most("loss after / before training", last / first, 0.5)
    yield bar_chart({"before training": before, "after training": after}, y="root mean square")


def terms(model: Any) -> dict[str, float]:
    """Return root mean squares of products of a model's words x and positions p."""
    words: Float[Tensor, "v d"] = model.body.embedding.weight.detach()
    positions: Float[Tensor, "n d"] = model.body.absolute.vectors.detach()
    return {
        WORD: _root(words.square().sum(-1)),
        r"$x_1 \cdot x_2$": _root(_others(words @ words.T)),
        CROSS: _root(words @ positions.T),
        r"$p \cdot p$, same position": _root(positions.square().sum(-1)),
        r"$p_1 \cdot p_2$": _root(_others(positions @ positions.T)),
    }


def _root(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _others(products: Float[Tensor, "n n"]) -> Float[Tensor, " pairs"]:
    return products[~torch.eye(len(products), dtype=torch.bool)]


@study()
def equal_heads(
    steps: Annotated[int, Meta(ge=10, le=200)] = 120,
    std: Std = 0.3,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Why do heads learn different features?

    Because their initial weights differ: two heads with equal initial weights, including their
    parts of the output projection, stay equal in training.

    $$ (W_q^1, W_k^1, W_v^1, W_o^1) = (W_q^2, W_k^2, W_v^2, W_o^2) \Rightarrow \frac{\partial
    L}{\partial W^1} = \frac{\partial L}{\partial W^2} $$

    Each position predicts the tokens one and three positions back. Heads with independent weights
    can attend to one distance each, and mostly do: at 18 of the 21 seeds 0 to 20, the loss was less
    than half of that of equal heads. Rounding differs between the heads, so the difference of equal
    ones grows with the steps.

    Figure. Distance of two heads' maps over training: 0 if they are equal, 1 if they share no key.
    Heads with equal initial weights, the output projection included, stay at distance 0 up to
    rounding. Lines connect measured dots.

    Args:
        steps: training steps
    """
    models = {
        "independent weights": make(std, seed),
        "equal except for the output": with_equal_heads(make(std, seed), output=False),
        "equal weights": with_equal_heads(make(std, seed), output=True),
    }
    distances = {}
    for name, model in models.items():
        maps, loss = trained(model, steps, seed)
        distances[name] = [float(map_distance(*both)) for both in maps]
        bound, limit = (at_most, 1e-3) if name == "equal weights" else (at_least, 0.05)
        yield bound(f"distance of two heads, {name}", distances[name][-1], limit)
        yield informational(f"loss, {name}", loss)
    curves = [
        series([*range(0, steps, EVERY), steps], over_steps, name, "line with dots")
        for name, over_steps in distances.items()
    ]
    yield chart(*curves, x="steps", y="distance of the maps of two heads")


def make(std: float, seed: int) -> Any:
    """Return a decoder of one layer with two heads."""
    labels = tuple(str(i) for i in range(TOKENS ** len(BACK)))
    head = TokenClassificationHeadConfig(labels=labels)
    return Draw(seed, std).model(config(WIDTH, RotaryConfig()), head, TOKENS).train()


@torch.no_grad()
def with_equal_heads(model: Any, *, output: bool) -> Any:
    """Copy K, Q and V of the first head to the second, and with `output` its output projection."""
    attention, half = model.body.layers[0].self_attention, WIDTH // 2
    for part in attention.qkv_proj.weight.split(WIDTH):  # queries, keys, values
        part[half:] = part[:half]
    if output:
        columns = attention.o_proj.weight
        columns[:, half:] = columns[:, :half]
    return model


def trained(model: Any, steps: int, seed: int) -> tuple[list[Float[Tensor, "2 n n"]], float]:
    """Train a model to predict two tokens; return the maps of its heads of one text, and the loss.

    The first maps are those before training; others follow every `EVERY` steps and at the end.
    """
    text = rows(torch.Generator().manual_seed(seed))[:1]
    kept: list[list[AttentionRecord]] = []
    losses: list[float] = []
    for step, loss in enumerate(train(model, distances=BACK, steps=steps, seed=seed)):
        losses.append(loss)
        if step % EVERY == 0:
            kept.append(capture_attention(model.body, text))
    kept.append(capture_attention(model.body, text))
    return [layer.weights[0].detach() for (layer,) in kept], losses[-1]


def config(d: int, positions: PositionsConfig) -> DecoderConfig:
    """Return a decoder of one layer with two heads."""
    return DecoderConfig(
        context_length=LENGTH, d_model=d, dropout=0.0, n_layers=1, n_heads=2, positions=positions
    )


def train(model: Any, *, distances: Sequence[int], steps: int, seed: int) -> Iterator[float]:
    """Iterate over the losses of a training, one per step, each before its update.

    The label of a position is a number whose digits are the tokens at all distances back.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = Adam(model.parameters(), lr=0.01)
    first = max(distances)
    for _ in range(steps):
        ids = rows(generator)
        scores = model.head(model.body(ids))[:, first:]
        digits = [ids[:, first - distance : LENGTH - distance] for distance in distances]
        labels = sum(digit * TOKENS**power for power, digit in enumerate(digits))
        loss = F.cross_entropy(scores.flatten(0, 1), torch.as_tensor(labels).flatten())
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rows(generator: torch.Generator) -> Int[Tensor, "rows length"]:
    """Return random tokens."""
    return torch.randint(TOKENS, (ROWS, LENGTH), generator=generator)
