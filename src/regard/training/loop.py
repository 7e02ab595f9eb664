"""The training loop: steps, validation, checkpoints, and exact resumption."""

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from types import FrameType

import msgspec
import torch

from regard.attention.kernel import normalizers_checked_together
from regard.data.batch import Batch, Sampler, move
from regard.device import ExecutionEnvironment, TrainingPrecision, freed_memory_reused
from regard.dropout import Dropout, dropouts, release_rows, set_row_keys
from regard.errors import NonFiniteError, NormalizerError, RegardError, UserError
from regard.runs.claim import Claim
from regard.runs.recipe import TrainingConfig
from regard.runs.run import Run, load_weights
from regard.training.adaptation import release
from regard.training.checkpoint import (
    KEPT,
    Checkpoint,
    CheckpointWriter,
    Progress,
    Publishing,
    load_optimizers,
    newest_checkpoint,
    publish_best,
    remove_unfinished,
)
from regard.training.loggers import Logger, Record, make_loggers
from regard.training.losses import accumulate_gradients, best_parts, sum_losses
from regard.training.optimizers import clip_gradients, make_optimizers, rate_factor, set_rate
from regard.training.processes import Processes, join_processes
from regard.training.replica import ParallelKind, Replica, make_replica
from regard.training.step_batches import StepBatch, StepBatches, batches_kind
from regard.training.throughput import Throughput

CheckpointReport = Callable[[Record], Record]
"""Returns more values for the record of a checkpoint, given those of its validation."""


def no_report(_: Record) -> Record:
    """Report nothing more."""
    return {}


class InterruptedTraining(RegardError):
    """The user stopped the training; everything is saved."""

    exit_code = 130


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Options of a training that don't change what is trained."""

    environment: ExecutionEnvironment
    compile: bool = False
    parallel: ParallelKind = "ddp"
    """How the processes of torchrun hold the model: each the whole, or a part of each weight."""
    quiet: bool = False
    kept_checkpoints: int = KEPT
    """Newest checkpoints that stay on disk."""
    tensorboard: bool = True
    """Whether events are written for TensorBoard, where it is installed."""
    loggers: tuple[Logger, ...] = ()
    """More loggers of the metrics."""
    publishing: Publishing | None = None
    """Entered before every write to the run's folder; may raise, so that nothing is written.

    Default: a claim to the folder, until another process trains there.
    """

    @staticmethod
    def choose(
        device: str = "auto",
        precision: TrainingPrecision = "auto",
        threads: int | None = None,
        compile: bool = False,
        parallel: ParallelKind = "ddp",
    ) -> "ExecutionOptions":
        """Return options with the execution environment that these choose.

        Raises:
            UserError: the device isn't there.
        """
        environment = ExecutionEnvironment.choose(device, precision, threads)
        return ExecutionOptions(environment=environment, compile=compile, parallel=parallel)


def train(
    run: Run,
    sampler: Sampler,
    validation: Sequence[Batch],
    config: TrainingConfig,
    options: ExecutionOptions,
    *,
    title: str,
    at_checkpoint: CheckpointReport = no_report,
) -> Progress:
    """Train the run's model from its newest checkpoint, or from the start if it has none.

    The run's folder ends up with the best weights by validation loss (the last ones where nothing
    is held out), and so does `run.model`. Of the processes of torchrun, the first writes.

    Raises:
        NonFiniteError: a loss or gradient became NaN or infinite.
        InterruptedTraining: Ctrl-C; the state is saved.
        LostProcessError: another process of the training ended.
    """
    processes, environment = join_processes(), options.environment
    publishing: Publishing = nullcontext
    if processes.is_first:
        publishing = options.publishing or Claim.take(run.path / "checkpoints").publishing
    processes.wait()  # earlier attempts write nothing from here on, so all find the same checkpoint
    run.model.to(environment.device, torch.float64 if environment.is_double else None)
    checkpoint = newest_checkpoint(run.path)
    if checkpoint is not None:
        load_weights(checkpoint.path / "model.safetensors", run)
    replica = make_replica(run.model, processes, options.parallel, compile=options.compile)
    optimizers = make_optimizers(replica.model, config, environment.dtype)
    progress = Progress()
    if checkpoint is not None:
        load_optimizers(checkpoint, optimizers)
        progress = checkpoint.progress
    loggers: list[Logger] = []
    if processes.is_first:
        with publishing():
            remove_unfinished(run.path)
            if checkpoint is not None:
                _resume(run, checkpoint, _describe(options, processes), sampler.steps)
            loggers = make_loggers(
                run.path,
                title,
                sampler.steps,
                progress.step,
                quiet=options.quiet,
                tensorboard=options.tensorboard,
            )
            loggers += options.loggers
    drops = dropouts(replica.model)
    batches = batches_kind(environment)(
        sampler,
        processes,
        environment,
        accumulation=config.accumulation,
        seed=run.recipe.seed,
        dropouts=len(drops),
    )
    checkpoints = CheckpointWriter(
        run, processes, publishing, progress.step, kept=options.kept_checkpoints
    )
    throughput = Throughput(run.model, run.recipe.model, environment, processes.size)
    trainer = _Trainer(
        run=run,
        replica=replica,
        optimizers=optimizers,
        batches=batches,
        dropouts=drops,
        throughput=throughput,
        validation=validation,
        config=config,
        options=options,
        publishing=publishing,
        checkpoints=checkpoints,
        loggers=loggers,
        at_checkpoint=at_checkpoint,
    )
    replica.model.train()
    try:
        with (
            freed_memory_reused(),
            _deferred_interrupt() as interrupt,
            processes.termination_explained(),
            checkpoints,
            _compiler_errors_explained(options),
        ):
            while progress.step < sampler.steps and not _stops_early(progress, config):
                progress, stops = trainer.step(progress, sampler, interrupt)
                if stops and progress.step < sampler.steps:
                    trainer.save(progress)
                    checkpoints.finish()
                    raise InterruptedTraining(
                        f"stopped after step {progress.step} of {sampler.steps}; all is saved in "
                        f"{run.path}. To go on, repeat the command with --resume"
                    )
            checkpoints.finish()
    finally:
        batches.close()
        release_rows(drops)
        for logger in loggers:
            logger.close()
    if config.changes_model:
        release(run.model)
    load_weights(run.path / "model.safetensors", run)
    run.model.eval()
    return progress


@contextmanager
def _compiler_errors_explained(options: ExecutionOptions) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if options.compile and type(error).__module__.startswith("torch._"):
            reason = str(error).strip().splitlines()[0]
            raise RegardError(f"--compile: doesn't work here ({reason}); leave it out") from error
        raise


def check_options(config: TrainingConfig, options: ExecutionOptions, processes: Processes) -> None:
    """Raise for options that exclude each other, before a file is written.

    Raises:
        UserError: names both.
    """
    changes = config.lora or config.freeze or config.param_dtype == "bfloat16"
    if processes.size > 1 and options.parallel == "fsdp" and changes:
        raise UserError(
            "--parallel fsdp: doesn't support lora, freeze and param_dtype=bfloat16; use ddp"
        )
    if options.environment.is_double and config.param_dtype == "bfloat16":
        raise UserError("--precision float64: contradicts param_dtype=bfloat16; leave one out")


@dataclass(kw_only=True)
class _Trainer:
    """The parts that each step needs."""

    run: Run
    replica: Replica
    optimizers: list[torch.optim.Optimizer]
    batches: StepBatches
    dropouts: Sequence[Dropout]
    throughput: Throughput
    validation: Sequence[Batch]
    config: TrainingConfig
    options: ExecutionOptions
    publishing: Publishing
    checkpoints: CheckpointWriter
    loggers: Sequence[Logger]
    at_checkpoint: CheckpointReport

    def __post_init__(self) -> None:
        self.processes = self.replica.processes

    def step(
        self, progress: Progress, sampler: Sampler, interrupt: "_Interrupt"
    ) -> tuple[Progress, bool]:
        """One optimiser step, with validation, checkpoint and metrics when they are due.

        Returns:
            The progress, and whether a process was interrupted.
        """
        started, model, config = time.perf_counter(), self.replica.model, self.config
        batch, number = self.batches.get(progress.step), progress.step + 1
        # A row of the context length has so many targets before the token that may follow it.
        seen = sampler.rows_before(progress.step) * (self.run.recipe.model.context_length - 1)
        factor = rate_factor(progress.step, sampler.steps, seen, config.schedule)
        set_rate(self.optimizers, factor)
        try:
            with normalizers_checked_together(model, f"step {number}: "):
                loss = accumulate_gradients(
                    self.replica.loss,
                    self._parts(batch, number),
                    batch.whole.n_targets,
                    self.options.environment,
                )
            loss, interrupted = self.processes.sum(loss, interrupt.wanted)
            norm = clip_gradients(model, config.max_grad_norm, loss, number)
        except NonFiniteError as error:
            everywhere = self.processes.size == 1 or not isinstance(error, NormalizerError)
            if progress.step and everywhere:  # for all processes save together
                self.save(progress)  # the weights are still those after the last step
            raise
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - started
        self.throughput.add(batch.whole, seconds)
        progress = msgspec.structs.replace(
            progress,
            step=number,
            tokens=progress.tokens + batch.whole.positions,
            seconds=progress.seconds + seconds,
            losses=(*progress.losses, loss),
        )
        record = {
            "step": number,
            "gradient_norm": norm,
            "lr": self.optimizers[-1].param_groups[0]["lr"],
        }
        last = number == sampler.steps
        checkpoint_due = last or number % config.checkpoint_every == 0
        log_due = checkpoint_due or number % config.log_every == 0
        if checkpoint_due:
            progress, validated = self._validate(progress)
            record |= validated
            if self.processes.is_first:
                record |= self.at_checkpoint(validated)
        if log_due:
            progress = self._log(record, progress, sampler.steps)
        if checkpoint_due:
            self.save(progress)  # last, for resuming cuts the metrics back to it
        return progress, interrupted > 0 or (self.processes.size == 1 and interrupt.wanted)

    def _parts(self, batch: StepBatch, following: int) -> Iterator[Batch]:
        """Yield this process's share of a batch in parts, each with its own dropout."""
        device = self.options.environment.device
        for part, keys in zip(self.replica.each(batch.parts), batch.row_keys, strict=True):
            set_row_keys(self.dropouts, move(keys, device))
            yield part
        # Now that a GPU has its work: before, a thread would take Python from launching it.
        self.batches.prepare(following)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, and the weights, if they are the best, while training continues."""
        environment = _describe(self.options, self.processes)
        best = progress.best_step == progress.step or not self.validation
        self.checkpoints.save(self.replica, self.optimizers, progress, environment, best=best)

    def _validate(self, progress: Progress) -> tuple[Progress, Record]:
        self.replica.collect()
        if not self.validation:
            return msgspec.structs.replace(progress, best_step=progress.step), {}
        loss = self._validation_loss()
        if not isfinite(loss):
            raise NonFiniteError(
                f"step {progress.step}: validation loss {loss:g}; the last checkpoint is good"
            )
        better = progress.best_loss is None or loss < progress.best_loss
        if better:
            changes = {"best_loss": loss, "best_step": progress.step, "checks_since_best": 0}
        else:
            changes = {"checks_since_best": progress.checks_since_best + 1}
        return msgspec.structs.replace(progress, **changes), {"validation_loss": loss}

    def _validation_loss(self) -> float:
        """The mean loss per target; each process takes its turn of batches, on the whole model."""
        environment = self.options.environment
        own = self.validation[self.processes.rank :: self.processes.size]
        parts = [part for batch in own for part in batch.split(best_parts(batch, environment))]
        (loss,) = self.processes.sum(sum_losses(self.run.model, parts, environment))
        return loss / sum(batch.n_targets for batch in self.validation)

    def _log(self, record: Record, progress: Progress, steps: int) -> Progress:
        """Write to all loggers; the loss is the mean since the last record."""
        record |= {
            "loss": sum(progress.losses) / len(progress.losses),
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
            **self.throughput.record(),
            "seconds_left": round(progress.seconds / progress.step * (steps - progress.step), 1),
        }
        if self.loggers:
            with self.publishing():
                for logger in self.loggers:
                    logger.log(record)
        return msgspec.structs.replace(progress, losses=())


def _describe(options: ExecutionOptions, processes: Processes) -> dict[str, str | int]:
    """Return everything that exact repetition depends on."""
    return options.environment.describe() | {"processes": processes.size}


def _resume(
    run: Run, checkpoint: Checkpoint, environment: dict[str, str | int], steps: int
) -> None:
    changed = [
        f"{name} was {was} and is {environment.get(name)}"
        for name, was in checkpoint.environment.items()
        if name not in ("python", "regard") and environment.get(name) != was
    ]
    if changed and checkpoint.progress.step < steps:
        warnings.warn(
            f"{run.path}: {'; '.join(changed)}: training goes on, but its weights won't be "
            "bit-identical to those of an uninterrupted run",
            stacklevel=2,
        )
    publish_best(checkpoint.path, run.path)  # the kill may have come between the two


def _stops_early(progress: Progress, config: TrainingConfig) -> bool:
    return 0 < config.patience <= progress.checks_since_best


@dataclass
class _Interrupt:
    """Whether Ctrl-C was pressed."""

    wanted: bool = False


@contextmanager
def _deferred_interrupt() -> Iterator[_Interrupt]:
    """Note the first Ctrl-C instead of raising it; a second one raises at once."""
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.wanted:
            raise KeyboardInterrupt
        interrupt.wanted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
