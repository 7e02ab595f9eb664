"""Heads that begin equal stay equal."""

from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.explorer.intercept import capture_attention
from regard.models.config import TokenClassificationHeadConfig
from regard.positions.config import RotaryConfig
from regard.studies.figure import chart, figure, heat_map, series
from regard.studies.finding import EvidenceParts, at_least, at_most, informational
from regard.studies.quiz.checked import Draw
from regard.studies.quiz.looking_back import TOKENS, config, rows, train
from regard.studies.study import Seed, study

WIDTH = 16
BACK = (1, 3)
"""Distances of the two tokens that the model has to name."""
EVERY = 10
"""Steps between two measurements."""


class Trained(NamedTuple):
    """Two heads in training."""

    distances: list[float]
    """Distance of their maps, before the training and every `EVERY` steps."""
    maps: Float[Tensor, "2 n n"]
    """Their maps of one text after the training."""
    loss: float
    """The last loss."""


@study()
def equal_heads(
    steps: Annotated[int, Meta(ge=10, le=200)] = 120,
    std: Annotated[float, Meta(ge=0, le=1)] = 0.3,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Why do heads learn different features?

    Because they begin different: two heads that begin equal, with equal parts of the output
    projection, stay equal in training.

    $$ (W_q^1, W_k^1, W_v^1, W_o^1) = (W_q^2, W_k^2, W_v^2, W_o^2) \Rightarrow \frac{\partial
    L}{\partial W^1} = \frac{\partial L}{\partial W^2} $$

    The output of a layer is the sum over its heads. If two heads have the same matrices, also
    those columns of the output projection that read them, exchanging them changes nothing. So the
    loss has the same gradient in both, every step changes both in the same way, and they are equal
    after it.

    It takes all four matrices. Where only the output projection differs, the gradients at the
    heads' outputs differ, and with them everything else. It is also a statement about exact
    arithmetic: rounding differs between the heads, and the difference grows with the steps.

    Here each place has to name the tokens one and three back. Heads that were drawn apart can share
    the work, one distance each, and mostly do: at 18 of the seeds 0 to 20 the loss was less than
    half of that of equal heads, which are one head that mixes both tokens. The loss rewards
    different heads, but without a first difference its gradient has no way to them: random
    initialization provides it.

    The distance of two maps is half of the sum of absolute differences in a row, averaged over
    rows: 0 if they are equal, 1 if they share no key.

    Figure. The distance of two heads' maps over training, and maps of one text after it. Heads that
    begin equal stay at distance 0 and have the same map; those that were drawn apart have different
    ones. Lines join the measured dots.

    Args:
        steps: steps of training
        std: standard deviation of weights
    """
    arms = {
        "drawn apart": drawn(std, seed),
        "equal but for the output": begin_equal(drawn(std, seed), output=False),
        "begun equal": begin_equal(drawn(std, seed), output=True),
    }
    found = {name: trained(model, steps, seed) for name, model in arms.items()}
    apart, different, equal = found.values()
    yield at_most("distance of two heads, begun equal", equal.distances[-1], 1e-3)
    yield at_least("mean distance of two heads, drawn apart", apart.distances[-1], 0.05)
    yield at_least("the same, equal but for the output", different.distances[-1], 0.05)
    yield informational("loss, drawn apart", apart.loss)
    yield informational("loss, begun equal", equal.loss)
    distances = [
        series(range(0, EVERY * len(one.distances), EVERY), one.distances, name, "line with dots")
        for name, one in found.items()
    ]
    yield figure(
        chart(*distances, title="two heads", x="steps", y="distance of their maps"),
        heat_map(equal.maps[0], title="begun equal, both heads", x="key", y="query"),
        heat_map(apart.maps[0], title="drawn apart, head 0", x="key", y="query"),
        heat_map(apart.maps[1], title="drawn apart, head 1", x="key"),
        columns=2,
    )


def drawn(std: float, seed: int) -> Any:
    """Return a decoder of one layer with two heads."""
    labels = tuple(str(i) for i in range(TOKENS ** len(BACK)))
    head = TokenClassificationHeadConfig(labels=labels)
    return Draw(seed, std).model(config(WIDTH, RotaryConfig()), head, TOKENS).train()


@torch.no_grad()
def begin_equal(model: Any, *, output: bool) -> Any:
    """Give the second head the matrices of the first; with `output`, those of its output too."""
    attention, half = model.body.layers[0].self_attention, WIDTH // 2
    for start in range(0, 3 * WIDTH, WIDTH):  # queries, keys, values
        rows = attention.qkv_proj.weight[start : start + WIDTH]
        rows[half:] = rows[:half]
    if output:
        columns = attention.o_proj.weight
        columns[:, half:] = columns[:, :half]
    return model


def trained(model: Any, steps: int, seed: int) -> Trained:
    """Train a model to name two tokens at once, and compare its heads on the way."""
    text = rows(torch.Generator().manual_seed(seed))[:1]
    distances, losses = [], []
    for step, loss in enumerate(train(model, distances=BACK, steps=steps, lr=0.01, seed=seed)):
        losses.append(loss)
        if step % EVERY == 0:
            distances.append(_distance(_maps(model, text)))
    maps = _maps(model, text)
    return Trained([*distances, _distance(maps)], maps, losses[-1])


def _maps(model: Any, text: Tensor) -> Float[Tensor, "2 n n"]:
    (layer,) = capture_attention(model.body, text)
    return layer.weights[0].detach()


def _distance(maps: Float[Tensor, "2 n n"]) -> float:
    return float((maps[0] - maps[1]).abs().sum(-1).mean() / 2)
