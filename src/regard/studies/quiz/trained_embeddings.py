"""Products of added words and positions before and after training."""

from typing import Annotated, Any

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.positions.config import LearnedConfig
from regard.studies.figure import bar_chart
from regard.studies.finding import at_most
from regard.studies.quiz.checked import Draw
from regard.studies.quiz.looking_back import TOKENS, config, train
from regard.studies.study import EvidenceParts, Seed, study

WORD, CROSS = r"$x \cdot x$, same word", r"$x \cdot p$"


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
    losses = list(train(model, distances=(2,), steps=steps, lr=0.01, seed=seed))
    after = terms(model)
    name = "cross terms / x·x of a word"
    yield at_most(f"{name}, before training", before[CROSS] / before[WORD], 0.25)
    yield at_most(f"{name}, after training", after[CROSS] / after[WORD], 0.25)
    yield at_most("loss after / before training", losses[-1] / losses[0], 0.5)
    groups = {"before training": before, "after training": after}
    yield bar_chart(groups, y="root mean square")


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
