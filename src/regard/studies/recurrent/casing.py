"""Case change by recurrent networks, as trained and measured by several studies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from statistics import fmean
from typing import Annotated, Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.evaluation.tasks import predict
from regard.models.builders import SequenceToSequence
from regard.models.seq2seq import EncoderDecoderStates, RecurrentEncoderDecoder
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.model_cache import cached_checkpoints
from regard.tasks.casing import CASES, CasingConfig, Place
from regard.tasks.examples import Example
from regard.training.plan import Plan, plan_training
from regard.training.sources.choose import own_source

CellKind: TypeAlias = Literal["vanilla", "gru", "lstm"]
Cell: TypeAlias = Annotated[CellKind, Meta(description="type of the recurrent cells")]
Width: TypeAlias = Annotated[int, Meta(ge=16, le=256, description="width of the states")]
Longest: TypeAlias = Annotated[int, Meta(ge=8, le=40, description="longest text, in characters")]
Steps: TypeAlias = Annotated[
    int, Meta(ge=1, le=8000, description="training steps without attention; a quarter with it")
]

NONE, ATTENTION = "no attention", "attention"
SHORTEST = 4
"""Length of the shortest text, in characters."""
TEXTS = 100
"""Number of test texts of each length."""
TOKEN = len(next(iter(CASES))) + 1
"""Number of characters of a task token, with its space."""
RATE = 2e-3
"""Learning rate for all cells; at 1e-2, some vanilla networks don't retain the task."""
CHECKPOINTS = 8
"""Number of checkpoints of a training at which the network is measured."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A network to train: a one-way encoder, a decoder, and optionally attention between them."""

    cell: CellKind = "vanilla"
    attention: bool = False
    width: int = 64
    place: Place = "first"
    """Place of the task token."""
    longest: int = 12
    steps: int = 3200
    seed: int = 0

    def plan(self) -> Plan:
        """Return the plan of the training."""
        settings = [
            *(f"seed={self.seed}", f"task.place={self.place}"),
            *(f"task.shortest={SHORTEST}", f"task.longest={self.longest}"),
            *("model.kind=rnn-encoder-decoder", f"model.cell={self.cell}", "model.n_layers=1"),
            *("model.dropout=0", "model.context_length=64", f"model.d_model={self.width}"),
            f"training.steps={self.steps}",
            f"training.checkpoint_every={-(-self.steps // CHECKPOINTS)}",
            *("training.batch=32", f"training.lr={RATE}"),
            f"training.optimizer.muon_lr={10 * RATE}",
            *(["model.attention.kind=softmax"] if self.attention else []),
        ]
        recipe = override(RECIPES["casing"], settings)
        return plan_training(own_source(recipe), recipe, "unused")

    def runs(self) -> dict[int, Run]:
        """Return the network after each checkpoint, by step; trained on the first call."""
        return cached_checkpoints(self.plan())

    def run(self) -> Run:
        """Return the trained network."""
        return self.runs()[self.steps]

    def with_attention(self) -> "Setup":
        """Return the setup with attention, trained for a quarter of the steps."""
        return replace(self, attention=True, steps=max(1, self.steps // 4))

    @property
    def lengths(self) -> list[int]:
        """Lengths of the test texts, from the shortest to the longest."""
        return [*range(SHORTEST, self.longest, 4), self.longest]

    @property
    def shift(self) -> int:
        """Offset of a character's position in the question from that in the answer."""
        return TOKEN if self.place == "first" else 0

    def texts(self, length: int, count: int = TEXTS) -> list[Example]:
        """Return new texts of one length."""
        sizes = {"shortest": length, "longest": length, "training": 1, "test": count}
        config = CasingConfig(place=self.place, **sizes)
        return list(config.make(self.seed + 10_000 + length).test)


@dataclass(frozen=True)
class Rows:
    """Questions and answers of one length as ids; both are inputs of the model."""

    source: Int[Tensor, "b n_source"]
    lengths: Int[Tensor, " b"]
    ids: Int[Tensor, "b n"]
    """Input of the decoder: the start token and the answer."""
    labels: Int[Tensor, "b n"]
    """Labels of the decoder: the answer and the end token."""

    @staticmethod
    def of(run: Run, questions: Sequence[Example]) -> "Rows":
        encode, start = run.tokenizer.encode, run.tokenizer.special.require("decoder_start_id")
        sources = torch.tensor([encode(question.text) for question in questions])
        encoded = [encode(question.answer or "") for question in questions]
        targets = torch.tensor([[start, *run.template.target.around(x)] for x in encoded])
        lengths = torch.full((len(sources),), sources.shape[1])
        return Rows(sources, lengths, targets[:, :-1], targets[:, 1:])


def body_of(run: Run) -> RecurrentEncoderDecoder:
    """Return the model's encoder–decoder, without the head."""
    assert isinstance(run.model, SequenceToSequence)
    assert isinstance(run.model.body, RecurrentEncoderDecoder)
    return run.model.body


def answers(run: Run, questions: Sequence[Example]) -> list[str]:
    """Return the answers that the model generates."""
    predictions, _ = predict(run, questions, ExecutionEnvironment.choose("cpu", "float32"))
    return [prediction.text for prediction in predictions]


def right_texts(given: Sequence[str], questions: Sequence[Example]) -> float:
    """Return the share of answers that are right in every character."""
    return fmean(text == question.answer for text, question in zip(given, questions, strict=True))


def right_case(given: Sequence[str], questions: Sequence[Example]) -> float:
    """Return the share of generated letters that are in the required case."""
    hits = [
        letter.isupper() == (question.answer or "").isupper()
        for text, question in zip(given, questions, strict=True)
        for letter in text
        if letter.isalpha()
    ]
    return fmean(hits) if hits else nan


def loss(run: Run, rows: Rows, memory: EncoderDecoderStates | None = None) -> Float[Tensor, ""]:
    """Return the loss of the right answers, in nats per character.

    `memory` is the encoded source; it is computed if not given.
    """
    body = body_of(run)
    memory = body.encode(rows.source, rows.lengths) if memory is None else memory
    hidden, _ = body.extend(rows.ids, memory)
    return F.cross_entropy(run.model.head(hidden).flatten(0, 1), rows.labels.flatten())


@torch.inference_mode()
def attention_map(run: Run, questions: Sequence[Example]) -> Float[Tensor, "b n n_source"]:
    """Return the weights from each character of the right answer to each of the question."""
    rows = Rows.of(run, questions)
    return body_of(run).attention_weights(rows.source, rows.lengths, rows.ids)[:, 0]
