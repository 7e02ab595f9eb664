"""The prediction of a model that has read a text."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

SHOWN = 5
"""Candidates of a prediction."""
ANSWER = "read as a question, first token of the answer"
"""Kind of a prediction after a question, which is encoded as `regard ask` encodes it."""


@dataclass(frozen=True)
class Prediction:
    """The most probable next tokens or labels, with their probabilities."""

    kind: str
    """Next token, label or `ANSWER`."""
    candidates: tuple[tuple[str, float], ...]


def most_probable(kind: str, logits: Float[Tensor, " n"], name: Callable[[int], str]) -> Prediction:
    """Return the candidates with the highest logits, each under its name."""
    values, ids = logits.float().softmax(-1).topk(min(SHOWN, len(logits)))
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return Prediction(kind, tuple((name(i), probability) for i, probability in pairs))
