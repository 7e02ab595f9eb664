"""Plans of training: a run with its data, built and checked before a single step or file."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any

import msgspec
import torch

from regard.config import override, to_toml
from regard.corpus.index import RUN_INDEX, index_documents, save_index
from regard.data import IGNORE
from regard.data.batch import Batch, Sampler, sequential_batches
from regard.device import peak_memory_mb, require_memory
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.files import read_table, remove_unfinished, write_file
from regard.models.builders import Classifier, Embedder, LanguageModel, TokenClassifier
from regard.models.places import require_places
from regard.runs.recipe import Recipe, load_recipe
from regard.runs.run import Run, load_weights, require_free
from regard.runs.start import CONVERSION, begin_with, shown_names
from regard.runs.training_text import KnownAnswers, open_run_index
from regard.text.tokenizer import Tokenizer
from regard.training.adaptation import prepare_model
from regard.training.checkpoint import (
    Checkpoint,
    Progress,
    copy_checkpoint,
    newest_checkpoint,
    require_checkpoint,
)
from regard.training.loop import ExecutionOptions, check_options, stops_early, train
from regard.training.optimizers import make_optimizers
from regard.training.processes import is_restart, join_processes
from regard.training.sources.base import (
    NO_EFFECT,
    Datasets,
    Source,
    refuse_settings,
    unread_with,
)
from regard.training.sources.text import TextSource, stored_text, tokens_held, window_datasets
from regard.training.step import accumulate_gradients, best_parts, mean_loss

EXAMPLE_CHARACTERS = 60
"""Largest number of characters of the example text of a run."""
TIMED = 2
"""Number of timed calls of an estimate, after an untimed one, which allocates memory."""


@dataclass(frozen=True)
class Plan:
    """A run with its data, ready to be trained."""

    run: Run
    data: Datasets
    sampler: Sampler
    validation: list[Batch]
    title: str
    continued: Path | None = None
    """Folder of a run whose newest checkpoint is the start of this training."""

    def describe(self) -> dict[str, Any]:
        """Return sizes, and the loss of a uniform guess, in nats; the model isn't run."""
        trained = sum(p.numel() for p in self.run.model.parameters() if p.requires_grad)
        all_trained, hashed = trained == self.run.n_parameters, self.run.n_hashed_parameters
        return (
            self._parent_facts()
            | self.data.facts
            | {
                "parameters": self.run.n_parameters,
                **({"hashed_parameters": hashed} if hashed else {}),
                **({} if all_trained else {"trained_parameters": trained}),
                "vocabulary": self.run.tokenizer.size,
                "steps": self.sampler.steps,
                "uniform_loss": log(self._n_choices()),
            }
        )

    def loss_before(self) -> dict[str, float]:
        """Return the loss before training on the first micro-batch, in nats, on a CPU."""
        parts = self.run.recipe.training.accumulation  # each fits the memory
        first, *_ = self.sampler.batch(0).split(parts)
        name = "loss_before" if "parent" in self.run.origin else "untrained_loss"
        return {name: mean_loss(self.run.model, [first], ExecutionEnvironment.choose("cpu"))}

    def estimate(self, environment: ExecutionEnvironment) -> dict[str, float]:
        """Return seconds per step, hours without validation, and peak memory in MB, where known.

        The gradients of one micro-batch and the update of the weights are timed. On a GPU, the
        memory is that of the GPU. The updates change the model: don't execute the plan afterwards.
        """
        config, dtype = self.run.recipe.training, torch.float64 if environment.is_double else None
        model = self.run.model.to(environment.device, dtype)
        optimizers = make_optimizers(model, config, environment.dtype)
        batch = self.sampler.batch(0)
        parts = batch.split(best_parts(batch, environment, config.accumulation))

        def update() -> None:
            for optimizer in optimizers:
                optimizer.step()

        model.train()

        def add_gradients() -> None:
            last = parts[-1]
            accumulate_gradients(model.loss, [last], last.n_targets, environment)

        gradients = _mean_seconds(add_gradients, environment)
        seconds = len(parts) * gradients + _mean_seconds(update, environment)
        needs = {
            "seconds_per_step": seconds,
            "hours": seconds * self.sampler.steps / 3600,
            "memory_mb": peak_memory_mb(environment.device),
        }
        return {name: value for name, value in needs.items() if isfinite(value)}

    def _parent_facts(self) -> dict[str, Any]:
        """Return the parent, and the names of new and dropped tensors."""
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
        check_options(self.run.recipe.training, options, processes)
        processes.require_equal(**self._identity(options))
        processes.alone(lambda: self._prepare_folder(resume=resume or is_restart()))
        progress = train(
            self.run,
            self.sampler,
            self.validation,
            options,
            title=self.title,
            at_checkpoint=self.data.at_checkpoint,
        )
        if processes.is_first:
            self._save_training_text()
        return progress

    def _save_training_text(self) -> None:
        """Write the index of the text and the known answers, which `regard ask` uses."""
        path, data = self.run.path, self.data
        if data.indexed:
            is_records = self.run.recipe.data.documents == "records"
            save_index(path / RUN_INDEX, index_documents(data.indexed, records=is_records))
        if data.questions:
            KnownAnswers.learn(data.questions, open_run_index(self.run)).save(path)

    def _identity(self, options: ExecutionOptions) -> dict[str, str]:
        """Return the values that must be equal in all processes of a training."""
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
        require_out(path, resume=resume)
        if (path / "config.toml").exists():
            check_resumable(self.run)
        else:
            with tokens_held(self.run, self.data.packed):
                require_out(path, resume=False)  # another process may have begun a run
                remove_unfinished(path)
                for name, content in self.data.files.items():
                    write_file(path / name, content)
                self.run.save_description()
        if self.continued and newest_checkpoint(path) is None:
            copy_checkpoint(self.continued, path)


def _mean_seconds(call: Callable[[], object], environment: ExecutionEnvironment) -> float:
    """Return the mean time of a call."""
    call()
    started = _now(environment)
    for _ in range(TIMED):
        call()
    return (_now(environment) - started) / TIMED


def _now(environment: ExecutionEnvironment) -> float:
    """Return the time, after a GPU has finished its work."""
    if environment.device.type == "cuda":
        torch.cuda.synchronize(environment.device)
    return time.perf_counter()


def plan_training(
    source: Source,
    recipe: Recipe | str | None,
    out: str | Path,
    start: Run | None = None,
    *,
    settings: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
) -> Plan:
    """Plan training on a source, from scratch or with the weights and tokenizer of `start`.

    `recipe` is a name, a TOML file or a `Recipe`, by default the usual one for source and start;
    `settings` such as "model.n_layers=6" override it. By default, `tokenizer` is trained on the
    source.

    Raises:
        UserError: source, recipe and start don't fit together, or the source can't be read.
    """
    if start is not None and tokenizer is not None:
        raise UserError("--tokenizer: the tokenizer comes with --from; leave it out")
    refuse_settings(settings, source.unread, NO_EFFECT)
    chosen = source.choose_recipe(recipe, settings, start)
    refuse_settings(settings, unread_with(chosen), NO_EFFECT)
    known = start.tokenizer if start else tokenizer
    ids = chosen.training.batch * chosen.model.context_length
    require_memory(8 * ids, f"training.batch={chosen.training.batch}")
    require_places(chosen.model)
    prepared = source.prepare(chosen, known, Path(out), start)
    run = Run.new(Path(out), prepared.recipe, prepared.tokenizer, prepared.origin)
    if run.max_text_tokens < 1:
        raise UserError(
            f"template: its fixed texts take {len(run.text_affixes)} tokens, and the model reads "
            f"{run.recipe.max_source_tokens}; shorten them, or set a larger model.context_length"
        )
    if start:
        begin_with(start, run)
    return plan_run(run, prepared.datasets(run), source.stage)


def plan_run(run: Run, data: Datasets, title: str) -> Plan:
    """Plan training of a run on datasets.

    Raises:
        UserError: `patience` requires a validation loss, and nothing is held out; or rows are each
            other's negatives, and batches are split.
    """
    config, seed = run.recipe.training, run.recipe.seed
    sampler = Sampler(
        data.training,
        batch_size=config.batch,
        seed=seed,
        steps=config.steps,
        epochs=config.epochs,
        shuffle=config.shuffle,
    )
    run.origin |= {"steps": sampler.steps, "example": example_text(run, data, sampler)}
    if config.changes_model:
        prepare_model(run, config)
    if config.accumulation > 1 and isinstance(run.model, Embedder):
        raise UserError(
            "training.accumulation: rows of a batch are each other's negatives, so batches can't "
            "be split; leave it out, or set training.gradient_checkpointing=true"
        )
    rows = -(-config.batch // config.accumulation)
    measured = [sequential_batches(check, rows, seed=seed) for check in data.held_out if len(check)]
    validation = [
        batch
        for batches in measured
        for batch in batches
        if not batch.in_batch_negatives or len(batch.labels) > 1  # the loss of a lone pair is 0
    ]
    if config.patience and not validation:
        raise UserError(
            "training.patience: nothing is held out to measure; raise data.validation, or set 0"
        )
    return Plan(run, data, sampler, validation, title)


def example_text(run: Run, data: Datasets, sampler: Sampler) -> str:
    """Return a text to try a run with: a question, a prompt, or the beginning of a text."""
    if data.questions:
        return data.questions[0].text
    batch = sampler.batch(0)
    read = next(iter(batch.inputs.values()))
    is_causal = isinstance(run.model, LanguageModel)
    starts = (batch.labels != IGNORE).int().argmax(1) if is_causal else torch.zeros(1)
    row = int(starts.argmax())  # one with a prompt, if any has one
    end = int(starts[row]) + 1 if starts[row] else int(read.lengths[row])
    ids = read.ids[row, :end]
    regular = torch.isin(ids, torch.tensor(run.tokenizer.regular_ids)).tolist()
    first = next((i for i in range(end) if regular[i]), end)
    last = next((i for i in range(first, end) if not regular[i]), end)
    text = run.tokenizer.decode(ids[first:last].tolist())
    if is_causal and first == 0 and not starts[row]:  # a window, which may begin within a word
        text = text.partition(" ")[2] or text
    shown = text.strip()[:EXAMPLE_CHARACTERS]
    return shown if len(shown) < EXAMPLE_CHARACTERS else shown.rpartition(" ")[0].strip() or shown


def plan_more_steps(
    source: Source, out: str | Path, start: Run, more_steps: int, settings: Sequence[str] = ()
) -> Plan:
    """Plan more steps of a finished run, on the same source, in a new folder.

    Training continues from the newest checkpoint of `start`: its weights, the state of its
    optimizers, and the next batch of its data. The learning-rate schedule covers all steps.

    Raises:
        UserError: `start` isn't finished or has no checkpoint; source or a setting differs; or
            `out` is the folder of `start`.
    """
    if more_steps < 1:
        raise UserError(f"more steps ({more_steps}): expected 1 or more")
    if Path(out).resolve() == start.path.resolve():
        raise UserError(f"--out {out}: is the run to continue; choose another folder")
    checkpoint = require_checkpoint(start.path)
    _require_finished(start, checkpoint)
    _require_same_stage(start, source)
    _require_unchanged(start, settings)
    done = checkpoint.progress.step
    recipe = _with_training(start.recipe, epochs=None, steps=done + more_steps)
    made = plan_training(source, recipe, out, start)
    for name in ("fingerprint", "test"):
        was, found = start.origin.get(name), made.run.origin.get(name)
        if found != was:
            raise UserError(
                f"{start.path}/origin.json: {name} is {was}, not {found}: the data differs; give "
                "the data of the run, or leave --steps out and set training.steps"
            )
    load_weights(checkpoint.path / "model.safetensors", made.run)
    data = dataclasses.replace(made.data, facts=made.data.facts | {"steps_before": done})
    return dataclasses.replace(made, data=data, continued=start.path)


def plan_converted(run: Run, steps: int) -> Plan:
    """Plan training of a converted run in its folder, on the text stored there.

    All weights are trained, even if only some of the original's were: new tensors are random.

    Raises:
        UserError: there is no text.
    """
    text = stored_text(run)
    run.recipe = _with_training(run.recipe, epochs=None, steps=steps, freeze=None, lora=None)
    made = plan_run(run, window_datasets(run, text), TextSource.stage)
    run.save_description()
    return made


def _with_training(recipe: Recipe, **changes: int | None) -> Recipe:
    """Return a recipe with changes of its training."""
    training = msgspec.structs.replace(recipe.training, **changes)
    return msgspec.structs.replace(recipe, training=training)


def _require_finished(start: Run, checkpoint: Checkpoint) -> None:
    progress = checkpoint.progress
    steps = start.origin.get("steps", 0)
    if progress.step < steps and not stops_early(progress, start.recipe.training):
        hint = (
            "regard convert can't resume it, so leave --steps out and set training.steps"
            if start.origin.get("stage") == CONVERSION
            else "repeat its training command with --resume first"
        )
        raise UserError(f"{start.path}: is unfinished, at step {progress.step} of {steps}; {hint}")


def _require_same_stage(start: Run, source: Source) -> None:
    stage = start.origin.get("stage")
    trained = TextSource.stage if stage == CONVERSION else stage  # as by `plan_converted`
    if trained != source.stage:
        raise UserError(
            f"{start.path}/origin.json: stage is {stage}, not {source.stage}: the task differs; "
            "--steps continues runs of regard train, each with its own task; for another, leave it "
            "out and set training.steps"
        )


def _require_unchanged(start: Run, settings: Sequence[str]) -> None:
    for setting in settings:
        if override(start.recipe, [setting]) != start.recipe:
            raise UserError(
                f"{setting}: --steps continues the training of {start.path} as it was; leave it "
                "out, or leave --steps out and set training.steps"
            )


def require_out(path: Path, *, resume: bool) -> None:
    """Raise unless a folder is free for a run, or holds one that is to be resumed.

    Raises:
        UserError: it holds something else, or a run and `resume` is off.
    """
    if not (path / "config.toml").exists():
        require_free(path)
    elif not resume:
        raise UserError(f"{path}: holds a run; choose another --out, or resume it with --resume")


def check_resumable(run: Run) -> None:
    """Raise unless the run's folder holds the same run.

    Raises:
        UserError: another run is there.
    """
    path = run.path
    here, there = to_toml(run.recipe), to_toml(load_recipe(path))
    if here != there:
        changed = sorted(set(here.splitlines()) ^ set(there.splitlines()))
        raise UserError(
            f"{path}/config.toml: is another recipe ({'; '.join(changed)}); "
            "resume with the same recipe, or choose another --out"
        )
    origin = read_table(path / "origin.json")
    for name in ("stage", "fingerprint", "test", "parent_weights", "code"):
        if origin.get(name) != run.origin.get(name):
            raise UserError(
                f"{path}/origin.json: {name} was {origin.get(name)} and is {run.origin.get(name)}; "
                "resume with the same command and data, or choose another --out"
            )
    saved = path / "tokenizer.json"
    if saved.exists() and Tokenizer.load(path).fingerprint != run.tokenizer.fingerprint:
        raise UserError(
            f"{saved}: isn't the tokenizer of these files, so they have changed "
            "since; choose another --out"
        )
