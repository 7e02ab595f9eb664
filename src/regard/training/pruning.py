"""Pruning: a run without the attention heads that matter least to its loss on some data."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch

from regard.data.batch import Batch, Dataset, evaluation_batches
from regard.data.causal import Questions
from regard.edits.head_importance import (
    GroupLayer,
    Importance,
    ablation_importance,
    gate_importance,
    gradient_importance,
    group_layers,
    loss_of,
)
from regard.edits.table import text_table
from regard.errors import NonFiniteError, UnsupportedError, UserError, alternatives
from regard.evaluation.evaluate import Evaluation, evaluate, is_text
from regard.evaluation.perplexity import (
    NOTHING_DRAWN,
    TextScore,
    read_texts,
    text_dataset,
    text_perplexity,
)
from regard.evaluation.tasks import TaskScore, scored_examples
from regard.files import require_new
from regard.models.builders import Embedder, Model
from regard.models.head_pruning import Kept, copy_kept, pruned_config
from regard.runs.run import Run, require_finite
from regard.runs.start import derived_origin, parent_origin, save_derived
from regard.tasks.examples import Examples, answered_examples
from regard.training.sources.examples import task_dataset
from regard.training.sources.questions import encode_training

MEASURES: dict[str, Callable[[Model, Sequence[Batch]], Importance]] = {
    "importance": gradient_importance,
    "ablation": ablation_importance,
    "gates": gate_importance,
}
SHARES = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Shares of heads in the models that are scored in addition to the pruned one."""
ROWS = 32
"""Largest number of rows of a batch."""


Score: TypeAlias = Callable[[Run], Evaluation | TaskScore | TextScore]
"""The score of a run on some data."""


class Unit(NamedTuple):
    """Heads that are removed together.

    They are a group of one layer, or a pair of groups of self- and cross-attention: a decoder layer
    has equally many of both, which are paired by their ranks of importance.
    """

    groups: tuple[tuple[str, int], ...]
    """For each group, the place of its attention layer and its index there."""
    importance: float
    is_last: bool
    """Whether it is the most important one of its layer, which can't be removed."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """Scores of a model with some of the heads."""

    kept: int
    """Number of units that are kept."""
    parameters: int
    loss: float
    """Mean loss per target, in nats."""
    score: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Pruning:
    """A pruned run, the importance of all heads, and scores of models with fewer of them."""

    run: Run
    layers: dict[str, GroupLayer]
    """Attention layers of the original run."""
    units: tuple[Unit, ...]
    """Units of all heads, in the order in which they are removed."""
    kept: int
    """Number of units that the run keeps: the last ones."""
    levels: tuple[Level, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each unit, the most important first."""
        kept = set(self.units[-self.kept :])
        return [
            {
                "heads": " + ".join(self._name(*group) for group in unit.groups),
                "importance": unit.importance,
                "kept": unit in kept,
            }
            for unit in sorted(self.units, key=lambda unit: -unit.importance)
        ]

    def level_rows(self) -> list[dict[str, Any]]:
        """Return a record for each model that was scored, the whole one first."""
        return [
            {
                "share": level.kept / len(self.units),
                "parameters": level.parameters,
                "loss": level.loss,
                "score": level.score,
                "saved": level.kept == self.kept,
            }
            for level in self.levels
        ]

    def table(self) -> str:
        """Return the importance of heads, and the loss and score with fewer of them, as text."""
        return f"{text_table(self.rows())}\n\n{text_table(self.level_rows())}"

    def _name(self, place: str, group: int) -> str:
        n = self.layers[place].heads
        first, last = group * n, (group + 1) * n - 1
        return f"{place}.heads.{first}" + (f"-{last}" if n > 1 else "")


def prune(
    run: Run, data: Examples, *, out: str | Path, by: str = "importance", keep: float = 0.6
) -> Pruning:
    """Save a run with a share of the heads of another: those that matter most on some data.

    `data` are questions with answers, rows of the run's task or a text, or a file of them. `by`
    "importance" estimates by one backward pass how the loss changes without a head (Michel et al.,
    2019, arXiv:1905.10650, eq. 2); "ablation" measures it; "gates" learns which heads are needed
    together (after Voita et al., 2019, arXiv:1905.09418, with the weights fixed). Heads that share
    keys and values are removed together, and each layer keeps one such group. Models with other
    shares of the heads are scored, too, all on the same data.

    Raises:
        UserError: an option is invalid, `out` exists, or the data don't fit the run.
        UnsupportedError: the model's heads can't be removed one by one.
        NonFiniteError: the loss on the data is NaN or infinite.

    >>> questions = [regard.Example(text="Where was Ada born?", answer="Rome")]
    >>> found = regard.prune(run, questions, out="pruned", keep=0.5)
    >>> found.kept, len(found.units)
    (2, 4)
    """
    if by not in MEASURES:
        raise UserError(f"by = {by}: {alternatives(by, MEASURES)}")
    require_new(out)
    layers = _prunable_layers(run)
    n = _n_kept(layers, keep)
    dataset, score = _read(run, data)
    batches = list(_batches(dataset, run.device))
    units = order_units(_finite(MEASURES[by](run.model, batches), run.path))
    pruned = _with_units(run, Path(out), layers, units[-n:])
    _require_same(run, pruned, layers, units[-n:], batches[0])
    counts = {len(units), n, *(round(share * len(units)) for share in SHARES)}
    least = sum(unit.is_last for unit in units)
    levels = [
        _score(_with_units(run, Path(out), layers, units[-count:]), score, batches, count)
        for count in sorted(counts, reverse=True)
        if count >= least
    ]
    groups = [list(group) for unit in units[-n:] for group in unit.groups]
    pruned.origin |= {"pruned_by": by, "kept_groups": groups}
    save_derived(run, pruned)
    return Pruning(run=pruned, layers=layers, units=tuple(units), kept=n, levels=tuple(levels))


def _prunable_layers(run: Run) -> dict[str, GroupLayer]:
    """Return the attention layers of a model whose heads can be removed.

    Raises:
        UserError: weights are damaged, or no layer has two groups.
        UnsupportedError: heads can't be removed one by one.
    """
    require_finite(run.model, run.path)
    if isinstance(run.model, Embedder):
        raise UnsupportedError(f"{run.path}: the loss of an embedding isn't a sum over rows")
    layers = group_layers(run.model)
    pruned_config(run.recipe.model, {one.name: range(one.groups) for one in layers.values()})
    if max((one.groups for one in layers.values()), default=1) == 1:
        raise UserError(f"{run.path}: no layer has heads to remove: each has one, or one group")
    return layers


# Data


def _read(run: Run, data: Examples) -> tuple[Dataset, Score]:
    """Return data as a run is trained on them, and the score of runs on them.

    Raises:
        UserError: they don't fit the run, or lack answers.
    """
    if run.recipe.task is not None:
        rows = scored_examples(run, data)
        for row in rows:
            if row.answer is None:
                raise UserError(f"{row.where}: has no answer; the loss needs one")
        return task_dataset(run, rows), partial(evaluate, data=rows)
    _ = run.language_model
    if isinstance(data, str | Path) and is_text(run, Path(data)):
        texts = read_texts(run, Path(data))
        return text_dataset(run, texts), lambda made: text_perplexity(
            made, texts, made.environment()
        )
    questions = answered_examples(data)
    dataset = Questions(encode_training(run, questions), run.row_format.whole_rows)
    return dataset, partial(evaluate, data=questions)


def _batches(dataset: Dataset, device: torch.device) -> Iterator[Batch]:
    """Yield all examples in batches of similar lengths.

    Raises:
        UserError: there is nothing to predict.
    """
    lengths = dataset.lengths()
    order = np.argsort(lengths, kind="stable")
    targets = 0
    for rows in evaluation_batches(lengths[order].tolist(), ROWS):
        batch = dataset.collate([dataset.example(int(i), NOTHING_DRAWN) for i in order[rows]])
        targets += batch.n_targets
        yield batch.to(device)
    if not targets:
        raise UserError("prune: the data are too short: there is nothing to predict")


# Choice


def _finite(importance: Importance, path: Path) -> Importance:
    """Return the importance of all groups.

    Raises:
        NonFiniteError: some is NaN or infinite.
    """
    for place, values in importance.items():
        if not values.isfinite().all():
            raise NonFiniteError(
                f"{path}: the importance of {place}.heads is NaN or infinite, as the loss on the "
                "data is; prune another checkpoint, or on other data"
            )
    return importance


def order_units(importance: Importance) -> list[Unit]:
    """Return all units in the order in which they are removed.

    The most important one of each layer comes after all others.
    """
    by_layer: dict[str, list[str]] = {}
    for place in importance:
        by_layer.setdefault(place.removesuffix(".cross"), []).append(place)
    units = []
    for places in by_layer.values():
        ranks = [importance[place].argsort(descending=True, stable=True) for place in places]
        for rank, groups in enumerate(torch.stack(ranks, 1).tolist()):
            pairs = tuple(zip(places, groups, strict=True))
            total = sum(float(importance[place][group]) for place, group in pairs)
            units.append(Unit(pairs, total, rank == 0))
    return sorted(units, key=lambda unit: (unit.is_last, unit.importance))


def _n_kept(layers: dict[str, GroupLayer], keep: float) -> int:
    """Return the number of units to keep; groups of cross-attention belong to their layer's.

    Raises:
        UserError: all units would be kept, or a layer would have none.
    """
    groups = {place.removesuffix(".cross"): layer.groups for place, layer in layers.items()}
    total, least = sum(groups.values()), len(groups)
    n = round(keep * total) if 0 < keep < 1 else 0
    if not least <= n < total:
        raise UserError(
            f"keep = {keep:g}: choose a share from {least / total:.3g}, one group of heads in each "
            f"layer, to {(total - 1) / total:.3g}"
        )
    return n


# Models with fewer heads


def _kept(layers: dict[str, GroupLayer], units: Sequence[Unit]) -> Kept:
    """Return the groups of units by the names of attention layers."""
    groups: dict[str, list[int]] = {layer.name: [] for layer in layers.values()}
    for place, group in (pair for unit in units for pair in unit.groups):
        groups[layers[place].name].append(group)
    return {name: sorted(found) for name, found in groups.items()}


def _with_units(run: Run, out: Path, layers: dict[str, GroupLayer], units: Sequence[Unit]) -> Run:
    """Return a run with these heads alone, unsaved, in evaluation mode."""
    kept = _kept(layers, units)
    recipe = msgspec.structs.replace(run.recipe, model=pruned_config(run.recipe.model, kept))
    origin = derived_origin(run, "pruning") | parent_origin(run, out)
    made = Run.new(out, recipe, run.tokenizer, origin)
    made.model.to(run.device, next(run.model.parameters()).dtype).eval()
    copy_kept(run.model, made.model, kept)
    return made


def _require_same(
    run: Run, pruned: Run, layers: dict[str, GroupLayer], units: Sequence[Unit], batch: Batch
) -> None:
    """Raise unless a pruned model has the loss of the whole one with the other heads at zero.

    Raises:
        UnsupportedError: heads of a mechanism depend on their index.
    """
    factors = {}
    for place, layer in layers.items():
        chosen = [group for unit in units for its, group in unit.groups if its == place]
        factors[place] = torch.zeros(1, layer.groups).index_fill(1, torch.tensor(chosen), 1)
    expected = loss_of(deepcopy(run.model).double(), [batch], factors)
    found = loss_of(deepcopy(pruned.model).double(), [batch])
    if abs(found - expected) > 1e-5 * abs(expected):
        raise UnsupportedError(
            f"{run.path}: attention heads of this model depend on their index, so none can be "
            "removed; set heads to zero by an edit instead"
        )


def _score(run: Run, score: Score, batches: Sequence[Batch], kept: int) -> Level:
    """Return loss and score of a run on data."""
    match found := score(run):
        case TaskScore():
            shown = ", ".join(f"{name} {interval}" for name, interval in found.scores.items())
        case TextScore():
            shown = f"perplexity {found.perplexity}"
        case _:
            shown = f"accuracy {found.accuracy.percent()}" if found.accuracy else ""
    return Level(
        kept=kept, parameters=run.n_parameters, loss=loss_of(run.model, batches), score=shown
    )
