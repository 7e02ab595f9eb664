"""Choice of the source of a training, by the name of its task and the content of its paths."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from regard.errors import UserError, alternatives
from regard.files import exists
from regard.runs.recipe import Recipe
from regard.runs.recipes import TASKS
from regard.tasks.examples import Examples, require_answers
from regard.tasks.probes import ProbeConfig
from regard.tasks.registry import TEXT_TASKS, TaskConfig
from regard.text.corpus import Corpus, paths_among
from regard.text.packed import find_corpora
from regard.training.sources.base import Source
from regard.training.sources.documents import DocumentSource
from regard.training.sources.examples import ExampleSource, check_head, task_kind
from regard.training.sources.packed import PackedSource
from regard.training.sources.probe import ProbeSource, check_probe, own_rows_only
from regard.training.sources.questions import QuestionSource
from regard.training.sources.rows import RowSource
from regard.training.sources.text import TextSource


def choose_source(
    task: str,
    data: Corpus | Examples | None = None,
    *,
    test: str | Path | None = None,
    mix: str | None = None,
) -> Source:
    """Return the source of `regard train`: "questions", "text", or a task of `regard tasks`.

    A task generates its own examples if no data are given; `test` is a file for `regard evaluate`,
    instead of held-out rows. `mix` is the weights of packed corpora: "web=0.7,code=0.3".

    Raises:
        UserError: the task is unknown, or doesn't fit the data.
    """
    known = ["questions", "text", *TASKS]
    if task not in known:
        raise UserError(f"train {task}: there is no such task; {alternatives(task, known)}")
    if data is None and task not in TASKS:
        raise UserError(f"train {task}: there is no file to train on; name one")
    if test is not None and (task not in TEXT_TASKS or not isinstance(data, str | Path)):
        raise UserError(f"train {task}: --test is for a task trained on a file; leave it out")
    if mix is not None and task != "text":
        raise UserError("--mix: is for `train text` on packed corpora; leave it out")
    if task == "text":
        if packed := find_packed(data, mix):
            return PackedSource(packed, "training", "text")
        return TextSource(cast("Corpus", data))
    if task == "questions":
        return QuestionSource(cast("Examples", data))
    return _task_source(task, cast("Examples | None", data), test)


def _task_source(task: str, data: Examples | None, test: str | Path | None) -> Source:
    if isinstance(TASKS[task].task, ProbeConfig):
        if data is not None:
            raise own_rows_only(task)
        return ProbeSource(task)
    if isinstance(data, str | Path):
        return RowSource(task, Path(data), None if test is None else Path(test))
    return ExampleSource(task, None if data is None else require_answers(list(data)))


def choose_text(
    corpus: Corpus, questions: Examples = (), *, index: bool = True, mix: str | None = None
) -> Source:
    """Return the source of `regard pretrain`: documents with questions, or packed corpora.

    With `index`, the text is indexed for `regard ask`, if pydivsufsort is installed.

    Raises:
        UserError: packed corpora are given with questions, or `mix` doesn't fit.
    """
    if packed := find_packed(corpus, mix):
        if questions:
            raise UserError("--questions: can't be mixed into packed corpora; leave them out")
        return PackedSource(packed, DocumentSource.stage, DocumentSource.usual)
    return DocumentSource(corpus, questions, index)


def own_source(recipe: Recipe) -> Source:
    """Return the source of the examples that the task of a recipe generates.

    Raises:
        UserError: the recipe has no task.
    """
    if recipe.task is None:
        raise UserError("the recipe has no task: set task.kind (`regard tasks` lists them)")
    return choose_source(task_kind(recipe.task))


def check_task(recipe: Recipe, task: TaskConfig) -> None:
    """Raise unless the model of a recipe can learn a task, and reads its rows.

    Raises:
        UserError: names what to set instead.
    """
    if isinstance(task, ProbeConfig):
        check_probe(recipe, task)
    else:
        check_head(recipe, task)


def find_packed(corpus: object, mix: str | None = None) -> dict[Path, float]:
    """Return the packed corpora that paths name, with their weights; none if they are texts.

    A path is a packed corpus, or a folder of packed corpora.

    Raises:
        UserError: there is no such file; some are packed, and others aren't; or `mix` doesn't fit.
    """
    if isinstance(corpus, str) and not exists(corpus):
        raise UserError(f"{corpus[:60]!r}: no such file; to train on a text itself, give [text]")
    paths = [Path(corpus)] if isinstance(corpus, str | Path) else corpus
    packed = _packed_among(paths) if isinstance(paths, Sequence) else []
    if mix is not None and not packed:
        raise UserError("--mix: is for packed corpora; make them by regard pack, or leave it out")
    return choose_weights(packed, mix)


def _packed_among(paths: Sequence[object]) -> list[Path]:
    found = {path: find_corpora(path) for path in paths_among(paths)}
    if not any(found.values()):
        return []
    for path, corpora in found.items():
        if not corpora:
            raise UserError(f"{path}: is no packed corpus, unlike others; pack it by regard pack")
    every = (corpus for corpora in found.values() for corpus in corpora)
    return list({corpus.resolve(): corpus for corpus in every}.values())


def choose_weights(corpora: Sequence[Path], mix: str | None) -> dict[Path, float]:
    """Return the corpora of a mixture such as web=0.7,code=0.3, with their weights.

    Without `mix`, weights are 0: all rows of all corpora are equally frequent.

    Raises:
        UserError: a name or weight is invalid, or a corpus has no weight.
    """
    if mix is None:
        return dict.fromkeys(corpora, 0.0)
    named = {path.resolve().name: path for path in corpora}
    if len(named) < len(corpora):
        raise UserError("--mix: two packed corpora have the same name; rename one")
    weights: dict[Path, float] = {}
    for part in mix.split(","):
        name, _, value = (text.strip() for text in part.partition("="))
        weight = _weight(value)
        if weight is None:
            raise UserError(f"--mix {part}: expected NAME=WEIGHT with a weight above 0: web=0.7")
        if name not in named:
            raise UserError(f"--mix {name}: there is no such corpus; {alternatives(name, named)}")
        if named[name] in weights:
            raise UserError(f"--mix {name}: is given twice; leave one out")
        weights[named[name]] = weight
    missing = [name for name, path in named.items() if path not in weights]
    if missing:
        raise UserError(f"--mix: has no weight for {', '.join(missing)}; give one, or leave it out")
    return weights


def _weight(value: str) -> float | None:
    try:
        weight = float(value)
    except ValueError:
        return None
    return weight if 0 < weight < float("inf") else None
