"""Plans of training on text and on questions: pretraining, finetuning, or from scratch.

A plan is built and checked before a single step or file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from regard.config import to_toml
from regard.corpus.index import RUN_INDEX, can_index, index_documents, save_index
from regard.data.batch import Batch, Dataset, Sampler, WeightedDataset, sequential_batches
from regard.data.causal import Documents, Questions, Windows
from regard.device import ExecutionEnvironment
from regard.errors import UserError, alternatives
from regard.files import write_file
from regard.models.builders import Classifier, Embedder, TokenClassifier
from regard.runs.recipe import (
    Recipe,
    TrainingConfig,
    require_continuing,
    require_no_task,
    require_objective,
)
from regard.runs.recipes import TASKS
from regard.runs.run import Run, describe_origin
from regard.runs.start import begin_with, require_same, shown_names, stage_recipe, start_recipe
from regard.tasks.examples import (
    Example,
    Examples,
    answered_examples,
    encode_pairs,
    texts_of,
    with_ascii_questions,
)
from regard.tasks.registry import TEXT_TASKS
from regard.text.corpus import Corpus, Document, read_documents
from regard.text.tokenizer import Tokenizer, encode_documents, train_tokenizer
from regard.training.adaptation import prepare_model
from regard.training.checkpoint import Progress, copy_checkpoint, newest_checkpoint
from regard.training.loop import (
    CheckpointReport,
    ExecutionOptions,
    check_options,
    no_report,
    train,
)
from regard.training.losses import mean_loss
from regard.training.objectives import objective_datasets, text_datasets
from regard.training.processes import is_restart, join_processes
from regard.training.resume_checks import check_resumable, require_free

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """A run with its data, ready to be trained."""

    run: Run
    sampler: Sampler
    validation: list[Batch]
    config: TrainingConfig
    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts about the data, by their names."""
    files: dict[str, bytes] = field(default_factory=dict)
    """More files of the run, by their names."""
    at_checkpoint: CheckpointReport = no_report
    """Returns more values for the record of a checkpoint."""
    continued: Path | None = None
    """Folder of a run whose newest checkpoint is the start of this training."""
    indexed: Sequence[Document] = ()
    """Text to index in the run's folder after the training."""

    def describe(self) -> dict[str, Any]:
        """Return sizes, and the loss of a uniform guess, in nats; the model isn't run."""
        trained = sum(p.numel() for p in self.run.model.parameters() if p.requires_grad)
        all_trained = trained == self.run.n_parameters
        return (
            self._parent_facts()
            | self.facts
            | {
                "parameters": self.run.n_parameters,
                **({} if all_trained else {"trained_parameters": trained}),
                "vocabulary": self.run.tokenizer.size,
                "steps": self.sampler.steps,
                "uniform_loss": log(self._n_choices()),
            }
        )

    def loss_before(self) -> dict[str, float]:
        """Return the loss before training on the first micro-batch, in nats, on a CPU."""
        first, *_ = self.sampler.batch(0).split(self.config.accumulation)  # which fits the memory
        name = "loss_before" if "parent" in self.run.origin else "untrained_loss"
        return {name: mean_loss(self.run.model, [first], ExecutionEnvironment.choose("cpu"))}

    def _parent_facts(self) -> dict[str, Any]:
        """Return the parent, and the tensors that it lacks and that it has alone."""
        origin = self.run.origin
        facts = {"parent": origin["parent"]} if "parent" in origin else {}
        lists = ("new_tensors", "dropped_tensors")
        changed = {name: shown_names(origin[name]) for name in lists if name in origin}
        return facts | changed

    def _n_choices(self) -> int:
        """Return the number of classes of a prediction."""
        match self.run.model:
            case Classifier(head=head):
                return head.scores.out_features
            case TokenClassifier(head=head):
                return head.out_features
            case Embedder():
                return self.sampler.batch(0).n_targets
        return self.run.tokenizer.size

    def execute(self, options: ExecutionOptions, *, resume: bool = False) -> Progress:
        """Train; the run's folder is written from here on.

        When torchrun starts its processes again after a failure, the training resumes.

        Raises:
            UserError: the folder holds something else, or a run and `resume` is off.
        """
        processes = join_processes()
        check_options(self.config, options, processes)
        processes.require_equal(**self._identity(options))
        processes.alone(lambda: self._prepare_folder(resume=resume or is_restart()))
        progress = train(
            self.run,
            self.sampler,
            self.validation,
            self.config,
            options,
            title=self.title,
            at_checkpoint=self.at_checkpoint,
        )
        if self.indexed and processes.is_first:
            save_index(self.run.path / RUN_INDEX, index_documents(self.indexed))
        return progress

    def _identity(self, options: ExecutionOptions) -> dict[str, str]:
        """Return what all processes of a training must have alike."""
        environment = options.environment.describe()
        return {
            "version": f"{environment['regard']}, torch {environment['torch']}",
            "--parallel": options.parallel,
            "--precision": str(environment["precision"]),
            "recipe": to_toml(self.run.recipe),
            "data": str(self.run.origin.get("fingerprint")),
            "number of steps": str(self.sampler.steps),
        }

    def _prepare_folder(self, *, resume: bool) -> None:
        path = self.run.path
        if (path / "config.toml").exists():
            check_resumable(self.run, resume=resume)
        else:
            require_free(path)
            path.mkdir(parents=True, exist_ok=True)
            for name, content in self.files.items():
                write_file(path / name, content)
            self.run.save_description()
        if self.continued and newest_checkpoint(path) is None:
            copy_checkpoint(self.continued, path)


def plan_training(
    task: str,
    data: Corpus | Examples | None = None,
    *,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
    test: Path | None = None,
    start: Run | None = None,
    more_steps: int | None = None,
    mix: str | None = None,
) -> Plan:
    """Plan training on "questions", on "text", or for a task of `regard tasks`.

    A task generates its own examples if no data are given; `tokenizer` isn't trained here, `test`
    is a file for `regard evaluate`, instead of held-out rows. With `start`, training begins with
    the body, the tokenizer and the template of that run, and by default has its finetuning
    configuration; its head is kept if kind, shape and labels are the same. With `more_steps`, the
    training of `start` continues on the same data. `mix` is the weights of packed corpora.

    Raises:
        UserError: the task is unknown, or doesn't fit the recipe or the data.
    """
    known = ["questions", "text", *TASKS]
    if task not in known:
        raise UserError(f"train {task}: there is no such task; {alternatives(task, known)}")
    if more_steps is not None:
        from regard.training.more_steps import plan_more_steps  # made of the parts of this module

        if start is None or recipe is not None or tokenizer is not None or more_steps < 1:
            raise UserError(
                f"more steps ({more_steps}): expected 1 or more, a run as start, and no recipe or "
                "tokenizer"
            )
        return plan_more_steps(task, data, out, start, more_steps, settings, test, mix)
    if data is None and task not in TASKS:
        raise UserError(f"train {task}: there is no file to train on; name one")
    if test is not None and (task not in TEXT_TASKS or not isinstance(data, str | Path)):
        raise UserError(f"train {task}: --test is for a task trained on a file; leave it out")
    if mix is not None and task != "text":
        raise UserError("--mix: is for `train text` on packed corpora; leave it out")
    if start is not None and tokenizer is not None:
        raise UserError("--tokenizer: the tokenizer comes with --from; leave it out")
    if task == "text":
        from regard.training.plan_text import plan_text  # made of the parts of this module

        texts = cast("Corpus", data)
        return plan_text(texts, out, recipe, settings, tokenizer=tokenizer, start=start, mix=mix)
    if task == "questions":
        questions = cast("Examples", data)
        return plan_questions(questions, out, recipe, settings, tokenizer=tokenizer, start=start)
    from regard.training.plan_rows import plan_named_task  # made of the parts of this module

    return plan_named_task(task, data, out, recipe, settings, tokenizer, test, start)


def plan_pretraining(
    corpus: Corpus,
    out: str | Path,
    recipe: Recipe | str = "default",
    settings: Sequence[str] = (),
    *,
    questions: Examples = (),
    tokenizer: Tokenizer | Path | None = None,
    index: bool = True,
    mix: str | None = None,
) -> Plan:
    """Plan pretraining on text, with questions mixed in if the objective has a share for them.

    `recipe` is a name, a TOML file or a `Recipe`, overridden by `settings`; `tokenizer` may be the
    folder of a run whose tokenizer to use. With `index`, the text is indexed for `regard ask`, if
    pydivsufsort is installed. The corpus may be packed ones, whose weights are `mix`, such as
    "web=0.7,code=0.3".

    Raises:
        UserError: the objective, the model and the data don't fit together, or a text can't be
            encoded.
    """
    recipe = stage_recipe(recipe, settings, "pretraining")
    from regard.training.plan_packed import find_packed, plan_packed  # made of this module's parts

    if packed := find_packed(corpus, mix, settings):
        if questions:
            raise UserError("--questions: can't be mixed into packed corpora; leave them out")
        require_no_task(recipe)
        require_objective(recipe)
        known = _loaded(tokenizer)
        config = recipe.pretraining
        return plan_packed(packed, Path(out), recipe, config, "pretraining", tokenizer=known)
    objective, data = recipe.objective, recipe.data
    if data.documents == "auto":
        raise UserError(
            "data.documents=auto: is for `regard train text`; set lines, files, paragraphs or "
            "records"
        )
    documents = read_documents(
        corpus, data.documents, field=data.table.text or "text", blank_lines=data.blank_lines
    )
    asked = answered_examples(questions) if questions else ()
    if bool(asked) != (objective.questions > 0):
        raise UserError(
            "objective.questions is 0, but questions are given: set objective.questions=0.2, say"
            if asked
            else "objective.questions is above 0, but there are no questions: give --questions FILE"
        )
    require_no_task(recipe)
    require_objective(recipe)
    tokenizer = _loaded(tokenizer) or corpus_tokenizer(documents, recipe, asked)
    ids = encode_documents(tokenizer, documents)
    indexed = documents if index and can_index() else ()
    run = Run.new(Path(out), recipe, tokenizer, describe_origin("pretraining", documents, asked))
    if data.documents == "files":
        if objective.total > objective.next_token:
            raise UserError(
                "data.documents=files is read in windows, which only objective.next_token can use; "
                "set the other shares to 0, or data.documents=lines"
            )
        plan = _plan_windows(run, ids, documents, recipe.pretraining, "pretraining")
        return replace(plan, indexed=indexed)
    training, held_out = hold_out(ids, recipe)
    kept, _ = hold_out(documents, recipe)
    pairs = _encode_questions(run, asked) if asked else ()
    datasets = objective_datasets(run, kept, training, Questions(pairs, run.row_format.whole_rows))
    checks = [one.dataset for one in text_datasets(run, held_out)]
    plan = make_plan(run, datasets, checks, recipe.pretraining, "pretraining")
    return replace(plan, indexed=indexed)


def plan_questions(
    questions: Examples,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    *,
    tokenizer: Tokenizer | Path | None = None,
    start: Run | None = None,
) -> Plan:
    """Plan training on questions, without any text, from scratch or with the weights of `start`.

    Raises:
        UserError: a question can't be encoded or is too long, or the model doesn't continue texts.
    """
    recipe = (
        start_recipe(start, "default", recipe, settings)
        if start
        else stage_recipe(recipe or "default", settings, "training")
    )
    questions = answered_examples(questions)
    require_no_task(recipe)
    require_continuing(recipe)
    known = start.tokenizer if start else _loaded(tokenizer)
    tokenizer = known or train_tokenizer(recipe.tokenizer, texts_of(questions))
    origin = describe_origin("questions", (), questions)
    run = Run.new(Path(out), recipe, tokenizer, origin)
    if start:
        begin_with(start, run)
    return _plan_questions(run, questions, recipe.training, "training")


def plan_finetuning(
    parent: Run,
    questions: Examples,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
) -> Plan:
    """Plan training of a pretrained model on questions, by default with its own recipe.

    Raises:
        UserError: a question can't be encoded or is too long, or the model doesn't continue texts.
    """
    recipe = stage_recipe(recipe or parent.recipe, settings, "finetuning")
    questions = answered_examples(questions)
    require_continuing(parent.recipe)
    require_same(parent, recipe, ("model", "head", "tokenizer"))
    origin = describe_origin("finetuning", (), questions)
    run = Run.new(Path(out), recipe, parent.tokenizer, origin)
    begin_with(parent, run)
    return _plan_questions(run, questions, recipe.finetuning, "finetuning")


def make_plan(
    run: Run,
    datasets: Sequence[WeightedDataset],
    checks: Sequence[Dataset],
    config: TrainingConfig,
    title: str,
) -> Plan:
    """Plan training on `datasets`, with the validation loss measured on `checks`.

    Raises:
        UserError: training is to stop by a validation loss, and nothing is held out.
    """
    sampler = Sampler(
        datasets,
        batch_size=config.batch,
        seed=run.recipe.seed,
        steps=config.steps,
        epochs=config.epochs,
        shuffle=config.shuffle,
    )
    run.origin["steps"] = sampler.steps
    if config.changes_model:
        prepare_model(run, config, title)
    rows, seed = -(-config.batch // config.accumulation), run.recipe.seed
    measured = [sequential_batches(check, rows, seed=seed) for check in checks if len(check)]
    validation = [batch for batches in measured for batch in batches]
    if config.patience and not validation:
        raise UserError(
            f"{title}.patience: nothing is held out to measure; raise data.validation, or set 0"
        )
    return Plan(run, sampler, validation, config, title)


def hold_out(items: Sequence[T], recipe: Recipe) -> tuple[list[T], list[T]]:
    """Split items into those to train on and the share that is held out, drawn by the seed."""
    n = int(recipe.data.validation * len(items))
    order = np.random.default_rng([recipe.seed, 3]).permutation(len(items))
    held_out = set(order[:n].tolist())
    return (
        [item for i, item in enumerate(items) if i not in held_out],
        [item for i, item in enumerate(items) if i in held_out],
    )


def corpus_tokenizer(
    corpus: Sequence[Document], recipe: Recipe, questions: Sequence[Example] = ()
) -> Tokenizer:
    """Return the tokenizer that pretraining on a text, with questions mixed in, trains."""
    texts = [document.text for document in corpus]
    return train_tokenizer(recipe.tokenizer, texts + texts_of(questions) if questions else texts)


def _loaded(tokenizer: Tokenizer | Path | None) -> Tokenizer | None:
    return Tokenizer.load(tokenizer) if isinstance(tokenizer, Path) else tokenizer


def _plan_windows(
    run: Run,
    ids: list[list[int]],
    documents: Sequence[Document],
    config: TrainingConfig,
    title: str,
) -> Plan:
    """Train on windows of long texts; the last share of each is held out."""
    share, format = run.recipe.data.validation, run.row_format
    cuts = [len(text) - int(share * len(text)) for text in ids]
    joined = [i for text, cut in zip(ids, cuts, strict=True) for i in text[:cut]]
    held_out = [text[cut:] for text, cut in zip(ids, cuts, strict=True) if len(text) - cut > 1]
    if len(joined) < 2:
        raise UserError(f"{documents[0].where}: is too short to learn from")
    windows = WeightedDataset(Windows(joined, format))
    return make_plan(run, [windows], [Documents(held_out, format)], config, title)


def _plan_questions(
    run: Run, questions: Sequence[Example], config: TrainingConfig, title: str
) -> Plan:
    pairs = _encode_questions(run, questions)
    training, held_out = (
        Questions(part, run.row_format.whole_rows) for part in hold_out(pairs, run.recipe)
    )
    return make_plan(run, [WeightedDataset(training)], [held_out], config, title)


def _encode_questions(run: Run, questions: Sequence[Example]) -> list[tuple[list[int], ...]]:
    """Return prompts and completions to train on.

    Raises:
        UserError: there are none, or one can't be encoded.
    """
    if not questions:
        raise UserError("there are no questions to train on; give at least one")
    if run.recipe.data.ascii_questions:
        questions = list(map(with_ascii_questions, questions))
    return encode_pairs(run.template, questions, run.recipe.model.context_length)
