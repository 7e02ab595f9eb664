"""The training loop: steps, validation, checkpoints, and exact resumption."""

import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType

import torch

from regard.data.batch import Batch, Sampler
from regard.device import freed_memory_reused
from regard.dropout import dropouts
from regard.environment import ExecutionEnvironment, TrainingPrecision
from regard.errors import NonFiniteError, NormalizerError, RegardError, UserError, first_line
from regard.files import remove_unfinished
from regard.models.builders import Model
from regard.operations import OperationCounter
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
    require_intact,
)
from regard.training.loggers import CheckpointReport, Logger, MetricsLog, make_loggers
from regard.training.optimizers import Schedule, make_optimizers
from regard.training.processes import Processes, join_processes
from regard.training.replica import DataParallel, ParallelKind, Replica
from regard.training.step import OptimizerStep, StepResult, Validation, batches_kind
from regard.training.throughput import Throughput


class InterruptedTraining(RegardError):
    """The user stopped the training; everything is saved."""

    exit_code = 130


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Options of a training that don't change what is trained."""

    environment: ExecutionEnvironment
    compile: bool = False
    parallel: ParallelKind = "ddp"
    """Whether each process of torchrun holds the whole model (ddp) or a part of it (fsdp)."""
    quiet: bool = False
    kept_checkpoints: int = KEPT
    """Number of newest checkpoints that stay on disk."""
    tensorboard: bool = True
    """Whether events are written for TensorBoard, where it is installed."""
    loggers: tuple[Logger, ...] = ()
    """Additional loggers of the metrics."""
    count_operations: bool = False
    """Whether the floating-point operations of steps are counted, which is a sixth slower."""
    publishing: Publishing | None = None
    """Returns a context for each write to the run's folder; may raise, so that nothing is written.

    Default: a claim to the folder, valid until another process trains there.
    """

    @staticmethod
    def choose(
        device: str = "auto",
        precision: TrainingPrecision = "auto",
        threads: int | None = None,
        compile: bool = False,
        parallel: ParallelKind = "ddp",
    ) -> "ExecutionOptions":
        """Return options with a chosen execution environment.

        Raises:
            UserError: the device isn't available.
        """
        environment = ExecutionEnvironment.choose(device, precision, threads)
        return ExecutionOptions(environment=environment, compile=compile, parallel=parallel)


def train(
    run: Run,
    sampler: Sampler,
    validation: Sequence[Batch],
    options: ExecutionOptions,
    *,
    title: str,
    at_checkpoint: CheckpointReport,
) -> Progress:
    """Train the run's model from its newest checkpoint, or from the start if it has none.

    The run's folder ends up with the best weights by validation loss (the last ones where nothing
    is held out), and so does `run.model`. Of the processes of torchrun, the first writes.

    Raises:
        NonFiniteError: a loss or gradient became NaN or infinite.
        InterruptedTraining: Ctrl-C or SIGTERM; the state is saved.
        LostProcessError: another process of the training ended.
    """
    config, parts = run.recipe.training, _open(run, sampler, validation, options, title)
    progress, processes = parts.progress, parts.processes
    with (
        closing(parts.log),
        closing(parts.step),
        freed_memory_reused(),
        _deferred_interrupt(alone=processes.size == 1) as interrupt,
        processes.termination_explained(),
        parts.checkpoints,
        _errors_explained(options),
    ):
        while progress.step < sampler.steps and not stops_early(progress, config):
            done = parts.take_step(progress, interrupt.wanted)
            progress, record = done.added_to(progress), done.record()
            is_last = progress.step == sampler.steps
            is_checkpoint = is_last or progress.step % config.checkpoint_every == 0
            if is_checkpoint:
                progress, validated = parts.validation.measure(progress)
                record |= validated
                if processes.is_first:
                    record |= at_checkpoint(validated)
                processes.wait()  # so that all find a failed write at the same time
            if is_checkpoint or progress.step % config.log_every == 0:
                progress = parts.log.write(record, progress, sampler.steps)
            if is_checkpoint:
                parts.checkpoints.save(progress)  # last, since resuming truncates the metrics to it
            stops = done.is_interrupted or (processes.size == 1 and interrupt.wanted)
            if stops:  # after the last step, too: a command may have more to train
                parts.checkpoints.save(progress)
                parts.checkpoints.finish()
                raise InterruptedTraining(
                    f"stopped after step {progress.step} of {sampler.steps}; all is saved in "
                    f"{run.path}. To go on, repeat the command with --resume"
                )
        parts.checkpoints.finish()
    _load_best(run)
    return progress


@dataclass(kw_only=True)
class _Parts:
    """The parts of a training, and its progress so far."""

    progress: Progress
    processes: Processes
    step: OptimizerStep
    validation: Validation
    throughput: Throughput
    log: MetricsLog
    checkpoints: CheckpointWriter
    counts: bool
    """Whether operations are counted."""

    def take_step(self, progress: Progress, interrupted: bool) -> StepResult:
        """Take the next step; if it raises, the weights after the previous one are saved first."""
        counter = OperationCounter() if self.counts else None
        try:
            with counter or nullcontext():
                done = self.step.take(progress.step, interrupted)
        except NonFiniteError as error:
            everywhere = self.processes.size == 1 or not isinstance(error, NormalizerError)
            if progress.step and everywhere:  # all processes must save together
                self.checkpoints.save(progress)
            raise
        self.throughput.add(done.batch, done.seconds)
        return replace(done, operations=None if counter is None else counter.total)


def _load_best(run: Run) -> None:
    """Load the weights that the ended training has chosen into the run's model.

    Raises:
        UserError: their file is missing.
    """
    if run.recipe.training.changes_model:
        release(run.model)
    weights = run.path / "model.safetensors"
    if not weights.is_file():
        raise UserError(
            f"{weights}: is missing, though the training has ended; restore it from a copy, or "
            f"delete {run.path / 'checkpoints'} to train again"
        )
    load_weights(weights, run)
    run.model.eval()


def _open(
    run: Run, sampler: Sampler, validation: Sequence[Batch], options: ExecutionOptions, title: str
) -> _Parts:
    """Bring the run's model to its newest checkpoint, and make the parts of its training."""
    processes, environment, config = join_processes(), options.environment, run.recipe.training
    publishing: Publishing = nullcontext
    if processes.is_first:
        publishing = options.publishing or Claim.take(run.path / "checkpoints").publishing
    processes.wait()  # earlier attempts write nothing from here on, so all find the same checkpoint
    run.model.to(environment.device, torch.float64 if environment.is_double else None)
    checkpoint = newest_checkpoint(run.path)
    if checkpoint is not None:
        processes.alone(partial(_check_and_publish, checkpoint, run, publishing))
        load_weights(checkpoint.path / "model.safetensors", run)
    replica = _make_replica(run.model, processes, options.parallel, compile=options.compile)
    optimizers = make_optimizers(replica.model, config, environment.dtype)
    progress = Progress(operations=0)
    if checkpoint is not None:
        load_optimizers(checkpoint, optimizers)
        progress = checkpoint.progress
    described: dict[str, str | int] = {**environment.describe(), "processes": processes.size}
    loggers: list[Logger] = []
    if processes.is_first:
        with publishing():
            remove_unfinished(run.path / "checkpoints")  # earlier attempts publish nothing more
            if checkpoint is not None:
                _warn_of_changes(run, checkpoint, described, sampler.steps)
            place = (run.path, title, sampler.steps, progress.step)
            loggers = make_loggers(*place, quiet=options.quiet, tensorboard=options.tensorboard)
            loggers += options.loggers
    throughput = Throughput(run.model, run.recipe.model, environment, processes.size)
    batches = batches_kind(environment)(
        sampler,
        processes,
        environment,
        accumulation=config.accumulation,
        seed=run.recipe.seed,
        dropouts=dropouts(replica.model),
    )
    schedule = Schedule(config.schedule, sampler, run.recipe.model.context_length)
    replica.model.train()
    return _Parts(
        progress=progress,
        processes=processes,
        step=OptimizerStep(replica, optimizers, schedule, batches, environment, config),
        validation=Validation(run.model, replica, validation, environment),
        throughput=throughput,
        log=MetricsLog(loggers, throughput, publishing),
        checkpoints=CheckpointWriter(
            run,
            replica,
            optimizers,
            described,
            publishing,
            progress.step,
            kept=options.kept_checkpoints,
        ),
        counts=options.count_operations,
    )


def _make_replica(
    model: Model, processes: Processes, kind: ParallelKind, *, compile: bool
) -> Replica:
    """Return the replica of a model in this process."""
    if processes.size == 1:
        return Replica(model, processes, compile=compile)
    if kind == "fsdp":
        from regard.training.sharded import FullySharded  # torch's part takes a second to import

        return FullySharded(model, processes, compile=compile)
    return DataParallel(model, processes, compile=compile)


def check_options(config: TrainingConfig, options: ExecutionOptions, processes: Processes) -> None:
    """Raise for options that exclude one another, before a file is written.

    Raises:
        UserError: names the options.
    """
    changes = config.lora or config.freeze or config.param_dtype == "bfloat16"
    if processes.size > 1 and options.parallel == "fsdp" and changes:
        raise UserError(
            "--parallel fsdp: doesn't support lora, freeze and param_dtype=bfloat16; use ddp"
        )
    if options.count_operations and (options.compile or processes.size > 1):
        raise UserError(
            "--count-operations: counts one process, and no compiled code; leave out --compile and "
            "torchrun"
        )
    if options.environment.is_double and config.param_dtype == "bfloat16":
        raise UserError("--precision float64: contradicts param_dtype=bfloat16; leave one out")


@contextmanager
def _errors_explained(options: ExecutionOptions) -> Iterator[None]:
    """Explain errors of the compiler, and those of a full memory."""
    try:
        yield
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise RegardError(
                f"the memory is full ({first_line(error)}); set a larger training.accumulation, "
                "training.gradient_checkpointing=true or a smaller training.batch, and another "
                "--out"
            ) from error
        if options.compile and type(error).__module__.startswith("torch._"):
            reason = first_line(error)
            raise RegardError(f"--compile: doesn't work here ({reason}); leave it out") from error
        raise


def _check_and_publish(checkpoint: Checkpoint, run: Run, publishing: Publishing) -> None:
    """Check the files of a checkpoint, and move its best weights, before any process lists them."""
    require_intact(checkpoint)
    with publishing():
        publish_best(checkpoint.path, run.path)  # a kill may have prevented it


def _warn_of_changes(
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


def stops_early(progress: Progress, config: TrainingConfig) -> bool:
    """Return whether a training ends before its last step: validations don't improve."""
    return 0 < config.patience <= progress.checks_since_best


@dataclass
class _Interrupt:
    """Whether the training is to stop after its step."""

    wanted: bool = False


@contextmanager
def _deferred_interrupt(*, alone: bool) -> Iterator[_Interrupt]:
    """Note the first Ctrl-C instead of raising it; a second one raises at once.

    In a process `alone`, SIGTERM is noted too; others are terminated by torchrun.
    """
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.wanted:
            raise KeyboardInterrupt
        interrupt.wanted = True

    noted = (signal.SIGINT, signal.SIGTERM) if alone else (signal.SIGINT,)
    before = {number: signal.signal(number, note) for number in noted}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
