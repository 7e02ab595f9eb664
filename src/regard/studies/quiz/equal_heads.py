"""Training of two heads with equal initial weights."""

from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.explorer.intercept import capture_attention
from regard.models.head_config import TokenClassificationHeadConfig
from regard.positions.config import RotaryConfig
from regard.studies.figure import chart, figure, heat_map, series
from regard.studies.finding import at_least, at_most, informational
from regard.studies.quiz.checked import Draw
from regard.studies.quiz.looking_back import TOKENS, config, rows, train
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import map_distance

WIDTH = 16
BACK = (1, 3)
"""Distances of the two tokens that the model predicts."""
EVERY = 10
"""Steps between two measurements."""


class Trained(NamedTuple):
    """Two heads of a trained model."""

    distances: list[float]
    """Distance of their maps, before training and every `EVERY` steps."""
    maps: Float[Tensor, "2 n n"]
    """Their maps of one text after training."""
    loss: float
    """Final loss."""


@study()
def equal_heads(
    steps: Annotated[int, Meta(ge=10, le=200)] = 120,
    std: Annotated[float, Meta(ge=0, le=1)] = 0.3,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Why do heads learn different features?

    Because their initial weights differ: two heads with equal initial weights, including their
    parts of the output projection, stay equal in training.

    $$ (W_q^1, W_k^1, W_v^1, W_o^1) = (W_q^2, W_k^2, W_v^2, W_o^2) \Rightarrow \frac{\partial
    L}{\partial W^1} = \frac{\partial L}{\partial W^2} $$

    Each position predicts the tokens one and three positions back. Heads with independent weights
    can attend to one distance each, and mostly do: at 18 of the seeds 0 to 20 the loss was less
    than half of that of equal heads, which average both tokens. If only the output projection
    differs, the gradients at the heads' outputs differ, and with them all others. Rounding differs
    between the heads, so the difference of equal ones grows with the steps.

    The distance of two maps is half of the sum of absolute differences in a row, averaged over
    rows: 0 if they are equal, 1 if they share no key.

    Figure. Distance of two heads' maps over training, and maps of one text after training. Heads
    with equal initial weights stay at distance 0 and have the same map; heads with independent
    weights have different ones. Lines connect measured dots.

    Args:
        steps: training steps
        std: standard deviation of weights
    """
    models = {
        "independent weights": make(std, seed),
        "equal except for the output": with_equal_heads(make(std, seed), output=False),
        "equal weights": with_equal_heads(make(std, seed), output=True),
    }
    found = {name: trained(model, steps, seed) for name, model in models.items()}
    independent, other_output, equal = found.values()
    name = "distance of two heads"
    yield at_most(f"{name}, equal weights", equal.distances[-1], 1e-3)
    yield at_least(f"{name}, independent weights", independent.distances[-1], 0.05)
    yield at_least(f"{name}, equal except for the output", other_output.distances[-1], 0.05)
    yield informational("loss, independent weights", independent.loss)
    yield informational("loss, equal weights", equal.loss)
    curves = [
        series(range(0, EVERY * len(one.distances), EVERY), one.distances, name, "line with dots")
        for name, one in found.items()
    ]
    distances = chart(*curves, title="two heads", x="steps", y="distance of their maps")
    yield figure(
        distances,
        heat_map(equal.maps[0], title="equal weights, both heads", x="key", y="query"),
        heat_map(independent.maps[0], title="independent weights, head 0", x="key", y="query"),
        heat_map(independent.maps[1], title="independent weights, head 1", x="key"),
        columns=2,
    )


def make(std: float, seed: int) -> Any:
    """Return a decoder of one layer with two heads."""
    labels = tuple(str(i) for i in range(TOKENS ** len(BACK)))
    head = TokenClassificationHeadConfig(labels=labels)
    return Draw(seed, std).model(config(WIDTH, RotaryConfig()), head, TOKENS).train()


@torch.no_grad()
def with_equal_heads(model: Any, *, output: bool) -> Any:
    """Copy K, Q and V of the first head to the second, and with `output` its output projection."""
    attention, half = model.body.layers[0].self_attention, WIDTH // 2
    for start in range(0, 3 * WIDTH, WIDTH):  # queries, keys, values
        rows = attention.qkv_proj.weight[start : start + WIDTH]
        rows[half:] = rows[:half]
    if output:
        columns = attention.o_proj.weight
        columns[:, half:] = columns[:, :half]
    return model


def trained(model: Any, steps: int, seed: int) -> Trained:
    """Train a model to predict two tokens at once, and compare its heads during training."""
    text = rows(torch.Generator().manual_seed(seed))[:1]
    distances, losses = [], []
    for step, loss in enumerate(train(model, distances=BACK, steps=steps, lr=0.01, seed=seed)):
        losses.append(loss)
        if step % EVERY == 0:
            distances.append(float(map_distance(*_maps(model, text))))
    maps = _maps(model, text)
    return Trained([*distances, float(map_distance(*maps))], maps, losses[-1])


def _maps(model: Any, text: Tensor) -> Float[Tensor, "2 n n"]:
    (layer,) = capture_attention(model.body, text)
    return layer.weights[0].detach()
