"""Runs of probes that the studies of circuits train, and rows to measure them on."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

import regard
from regard.data import IGNORE
from regard.edits.activations import activations
from regard.models.builders import LanguageModel
from regard.runs.recipes import find_recipe
from regard.runs.run import Run
from regard.studies import model_cache
from regard.tasks.probes import ProbeConfig, as_tokens, draw_probe
from regard.training.plan import plan_training
from regard.training.sources.choose import own_source

OTHER_SEED = 1_000_000
"""Added to the seed of a run: measured rows are not those of its training."""


class Rows(NamedTuple):
    """Tokens of rows, and the label of each, or IGNORE."""

    tokens: Int[Tensor, "b n"]
    labels: Int[Tensor, "b n"]


def trained(probe: str, settings: Sequence[str]) -> Run:
    """Return a run of a probe, trained on the first call."""
    return model_cache.trained(find_recipe(probe, settings))


def checkpoints(probe: str, settings: Sequence[str]) -> dict[int, Run]:
    """Return the run after each checkpoint of a training on a probe, by step."""
    recipe = find_recipe(probe, settings)
    return model_cache.cached_checkpoints(plan_training(own_source(recipe), recipe, "unused"))


def new_rows(run: Run, rows: int, task: ProbeConfig | None = None) -> Rows:
    """Return rows of a probe, by default the run's, that the run wasn't trained on."""
    chosen = run.recipe.task if task is None else task
    assert isinstance(chosen, ProbeConfig)
    drawn = draw_probe(chosen, run.recipe.seed + OTHER_SEED, rows)
    return Rows(*(torch.from_numpy(ids) for ids in as_tokens(drawn, run.tokenizer)))


@torch.no_grad()
def losses(run: Run, rows: Rows) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
    """Return the loss of each label in nats, and whether it is the most likely token.

    Both are 0 where there is no label.
    """
    assert isinstance(run.model, LanguageModel)
    logits = run.model(rows.tokens).float()
    loss = F.cross_entropy(logits.mT, rows.labels, ignore_index=IGNORE, reduction="none")
    return loss, (logits.argmax(-1) == rows.labels).float()


def scored(run: Run, rows: Rows) -> tuple[float, float]:
    """Return mean loss and accuracy over all labels."""
    n = int((rows.labels != IGNORE).sum())
    loss, right = losses(run, rows)
    return float(loss.sum()) / n, float(right.sum()) / n


def tensors(run: Run, rows: Rows, *names: str) -> list[Tensor]:
    """Return the tensors of sites on rows."""
    wanted = {site.name: site for site in regard.sites(run)}
    found = activations(run, [rows.tokens], [wanted[name] for name in names])
    return [found[name].float() for name in names]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown; floats have two decimals."""
    shown = [
        [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows
    ]
    for line in (columns, ["---"] * len(columns), *shown):
        print("|", " | ".join(line), "|")
