"""The two models that the pages look into: a small GPT and a small BERT."""

from dataclasses import dataclass
from pathlib import Path

from explorer_pages.pairs import plan_pairs
from explorer_pages.sentences import texts
from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.text.corpus import Document
from regard.training.loop import ExecutionOptions
from regard.training.plan import Plan, plan_training
from regard.training.sources.documents import DocumentSource

TEXTS = 6000
_SIZES = (
    *("tokenizer.kind=words", "model.context_length=32", "model.n_layers=3", "model.n_heads=4"),
    *("model.d_model=64", "data.validation=0.02"),
)
DECODER = override(RECIPES["default"], [*_SIZES, "training.steps=1500"])
"""Learns to predict each word from those before it."""
ENCODER = override(
    RECIPES["masked"],
    [*_SIZES, "model.n_token_types=2", "objective.masking=0.25", "training.steps=2500"],
)
"""Learns to tell masked words from both sides, in one sentence or in two."""


@dataclass(frozen=True)
class Trained:
    """A run, and what its training took."""

    run: Run
    loss: float
    """Of what was held out, in nats a word that is asked for."""
    loss_before: float
    steps: int
    seconds: float


def plan_decoder(out: Path, recipe: Recipe = DECODER, n: int = TEXTS) -> Plan:
    """Training on texts, a line each."""
    corpus = texts(recipe.seed, "training", n)
    lines = [Document(text.line, f"text {i}") for i, text in enumerate(corpus, 1)]
    return plan_training(DocumentSource(lines), recipe, out)


def plan_encoder(out: Path, recipe: Recipe = ENCODER, n: int = TEXTS) -> Plan:
    """Training on the same texts, of which some have two sentences."""
    return plan_pairs([text.pair for text in texts(recipe.seed, "training", n)], out, recipe)


def trained(plan: Plan) -> Trained:
    """The plan's run; a training that is done, or was stopped, isn't begun anew."""
    before = plan.loss_before()["untrained_loss"]
    settings = ExecutionOptions(
        environment=ExecutionEnvironment.choose("cpu", "float32"), quiet=True
    )
    progress = plan.execute(settings, resume=True)
    assert progress.best_loss is not None, "something is held out"
    return Trained(plan.run, progress.best_loss, before, progress.step, progress.seconds)
