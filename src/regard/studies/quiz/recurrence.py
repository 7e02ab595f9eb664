"""Questions 5, 10, 11 and 13: recurrent networks."""

import torch
from torch import Tensor, nn

from regard.models.config import (
    ClassificationHeadConfig,
    ModelConfig,
    RecurrentConfig,
    TokenClassificationHeadConfig,
)
from regard.models.recurrent import RecurrentDecoder
from regard.studies.finding import at_least, at_most, equal
from regard.studies.quiz.checked import (
    BOTH_WAYS,
    DECODER,
    RNN,
    WIDTH,
    WINDOW,
    Check,
    Draw,
    checked,
    influence,
)
from regard.studies.tensors import largest, seeded

FAR, NEAR = 48, 6
"""Distances at which the first token's influence is compared."""
MODELS: dict[str, ModelConfig] = {"attention": DECODER, "RNN": RNN, "window": WINDOW}


@checked
def many_to_one(draw: Draw) -> Check:
    """For what is an RNN that maps many inputs to one output?

    Sentiment of a text, gender of a speaker; not for speech recognition.
    """
    n = 20
    ids, lengths = draw.ids(1, n), torch.tensor([n])
    one = draw.model(RNN, ClassificationHeadConfig(labels=("negative", "positive")))
    many = draw.model(RNN, TokenClassificationHeadConfig(labels=("a", "b", "c")))
    labels, transcript = one(ids, lengths), many(ids, lengths)
    yield f"answers of both kinds to one text of {n} tokens"
    yield equal("5: outputs, many to one", labels[..., 0].numel(), 1)
    yield equal("5: outputs, many to many", transcript[..., 0].numel(), n)


@checked
def not_a_number(draw: Draw) -> Check:
    """Weights and activations become NaN: why?

    Exploding gradients.
    """
    ids, huge = draw.ids(1, 64), torch.tensor(1e38)
    sigmoid, relu = huge.sigmoid(), huge.relu()
    yield (
        "one step of training a linear RNN with W = wI over 64 tokens in float32; ReLU and "
        "sigmoid of 10³⁸"
    )
    yield at_least("10: NaN among the weights, w = 8", _nan_after_a_step(8.0, ids), 1)
    yield equal("10: the same, w = ⅛", _nan_after_a_step(0.125, ids), 0)
    yield equal("10: NaN of ReLU and sigmoid", int(relu.isnan()) + int(sigmoid.isnan()), 0)


@checked
def the_crab(draw: Draw) -> Check:
    """Today's mood depends on the weather of today and of the days before: one direction or both?

    One: y_t depends on x_1, …, x_t, and on no later day.
    """
    days = draw.ids(10)
    one = influence(draw.model(RNN).body, days)
    both = influence(
        draw.model(BOTH_WAYS, TokenClassificationHeadConfig(labels=("a", "b"))).body, days
    )
    yield "what each day's input changes on each day"
    yield equal("11: one way, by later days", largest(one.triu(1)), 0, within=1e-12)
    yield at_least("11: one way, by the day before", one.diagonal(-1).min(), 1e-6)
    yield at_least("11: both ways, by the next day", both.diagonal(1).min(), 1e-6)


@checked
def long_inputs(draw: Draw) -> Check:
    """When has attention its greatest advantage over an RNN or a fixed window?

    When the input is long.
    """
    kept = {name: _kept(curve) for name, curve in influence_curves(draw).items()}
    yield (
        f"influence of the first token at distance {FAR}, as a share of that at {NEAR}, in "
        "models that were never trained"
    )
    yield at_least("13: attention keeps", kept["attention"], 0.01)
    yield at_most("13: an RNN keeps", kept["RNN"], 0.001)
    yield equal("13: influence of what left the window", kept["window"], 0)


def influence_curves(draw: Draw) -> dict[str, Tensor]:
    """What the first token changes at each later one, by family."""
    ids = draw.ids(FAR + 1)
    return {name: influence(draw.model(config).body, ids)[:, 0] for name, config in MODELS.items()}


def _kept(curve: Tensor) -> float:
    """The rest of an influence at the far distance; 0 where there is none at the near one."""
    return float(curve[FAR] / curve[NEAR]) if curve[NEAR] > 0 else 0.0


@torch.enable_grad()
def _nan_after_a_step(w: float, ids: Tensor) -> int:
    """How many weights are NaN after one step of gradient descent from W = wI."""
    config = RecurrentConfig(
        cell="vanilla", activation="identity", n_layers=1, d_model=WIDTH, dropout=0.0
    )
    body = seeded(lambda: RecurrentDecoder(config, int(ids.max()) + 1), seed=0)
    for name, parameter in body.named_parameters():
        if "weight_hh" in name:
            nn.init.eye_(parameter).data.mul_(w)
    body(ids)[:, -1].square().mean().backward()
    torch.optim.SGD(body.parameters(), lr=0.1).step()
    return sum(int(parameter.isnan().sum()) for parameter in body.parameters())
