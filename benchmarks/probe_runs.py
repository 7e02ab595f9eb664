"""Runs of probes that the studies of circuits train, and rows to measure them on."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

import regard
from regard.data import IGNORE
from regard.edits.activations import activations
from regard.models.builders import LanguageModel
from regard.runs.run import Run, load
from regard.tasks.probes import ProbeConfig, as_tokens, draw_probe

OTHER_SEED = 1_000_000
"""Added to the seed of a run: measured rows are not those of its training."""


class Rows(NamedTuple):
    """Tokens of rows, and the label of each, or IGNORE."""

    tokens: Int[Tensor, "b n"]
    labels: Int[Tensor, "b n"]


def trained(probe: str, folder: Path, settings: Sequence[str]) -> Run:
    """Return a run of a probe, trained unless it is there."""
    if folder.exists():
        return load(folder)
    return regard.train(probe, out=folder, settings=settings, precision="float32")


def new_rows(run: Run, rows: int) -> Rows:
    """Return rows of the run's probe that it wasn't trained on."""
    assert isinstance(run.recipe.task, ProbeConfig)
    drawn = draw_probe(run.recipe.task, run.recipe.seed + OTHER_SEED, rows)
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
