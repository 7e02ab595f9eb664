"""The training loop: steps, validation, checkpoints, and exact resumption."""

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from types import FrameType

import msgspec
import numpy as np
import torch
from torch import nn

from regard.attention import KernelAttention
from regard.data.batch import Batch, Sampler
from regard.errors import NonFiniteError, NormalizerError, RegardError
from regard.models.builders import CompiledBody, Model
from regard.runs.recipe import TrainingConfig
from regard.runs.run import ExecutionEnvironment, Precision, Run, load_weights
from regard.training.adaptation import release
from regard.training.loggers import Logger, Record, make_loggers
from regard.training.state import (
    KEPT,
    Progress,
    clip_gradients,
    load_checkpoint,
    make_optimizers,
    newest_checkpoint,
    rate_factor,
    save_checkpoint,
    set_rate,
)

CPU_TOKENS = 2048
"""What a CPU is best given at a time.

Activations of more leave its cache, and are so large that the C library asks the system anew for
each of them; of fewer, the products slow down (benchmarks/training.py).
"""


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
    quiet: bool = False
    kept_checkpoints: int = KEPT
    """Newest checkpoints that stay on disk."""
    tensorboard: bool = True
    """Whether events are written for TensorBoard, where it is installed."""
    publishing: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered before every write to the run's folder; may raise, so that nothing is written."""

    @staticmethod
    def choose(
        device: str = "auto",
        precision: Precision = "auto",
        threads: int | None = None,
        compile: bool = False,
    ) -> "ExecutionOptions":
        """Return options with the execution environment that these choose.

        Raises:
            UserError: the device isn't there.
        """
        environment = ExecutionEnvironment.choose(device, precision, threads)
        return ExecutionOptions(environment=environment, compile=compile)


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
    is held out), and so does `run.model`.

    Raises:
        NonFiniteError: a loss or gradient became NaN or infinite.
        InterruptedTraining: Ctrl-C; the state is saved.
    """
    model, environment = run.model.to(options.environment.device), options.environment
    optimizers = make_optimizers(model, config)
    with options.publishing():
        progress = _resume(run, optimizers, environment, sampler.steps)
        loggers = make_loggers(
            run.path,
            title,
            sampler.steps,
            progress.step,
            quiet=options.quiet,
            tensorboard=options.tensorboard,
        )
    trainer = _Trainer(run, optimizers, validation, config, options, loggers, at_checkpoint)
    body = torch.compile(model.body, dynamic=True) if options.compile else model.body
    model.train()
    try:
        with _deferred_interrupt() as interrupt:
            while progress.step < sampler.steps and not _stops_early(progress, config):
                progress = trainer.step(progress, sampler, body)
                if interrupt.wanted and progress.step < sampler.steps:
                    trainer.save(progress)
                    raise InterruptedTraining(
                        f"stopped after step {progress.step} of {sampler.steps}; all is saved in "
                        f"{run.path}. To go on, repeat the command with --resume"
                    )
    except Exception as error:
        if options.compile and type(error).__module__.startswith("torch._"):
            reason = str(error).strip().splitlines()[0]
            raise RegardError(f"--compile: doesn't work here ({reason}); leave it out") from error
        raise
    finally:
        for logger in loggers:
            logger.close()
    if config.changes_model:
        release(model)
    load_weights(run.path / "model.safetensors", run)
    model.eval()
    return progress


@dataclass
class _Trainer:
    """The parts that each step needs."""

    run: Run
    optimizers: list[torch.optim.Optimizer]
    validation: Sequence[Batch]
    config: TrainingConfig
    options: ExecutionOptions
    loggers: Sequence[Logger]
    at_checkpoint: CheckpointReport

    def step(self, progress: Progress, sampler: Sampler, body: CompiledBody) -> Progress:
        """One optimiser step, with validation, checkpoint and metrics when they are due."""
        started, model, config = time.perf_counter(), self.run.model, self.config
        batch, number = sampler.batch(progress.step), progress.step + 1
        # A row of the context length has so many targets before the token that may follow it.
        seen = sampler.rows_before(progress.step) * (self.run.recipe.model.context_length - 1)
        factor = rate_factor(progress.step, sampler.steps, seen, config.schedule)
        set_rate(self.optimizers, factor)
        parts = best_parts(batch, self.options.environment, config.accumulation)
        try:
            with _own_randomness(self.run.recipe.seed, progress.step, self.options.environment):
                loss = accumulate_gradients(
                    model, batch, self.options.environment, parts=parts, body=body
                )
            norm = clip_gradients(model, config.max_grad_norm, loss, number)
        except NonFiniteError:
            if progress.step:
                self.save(progress)  # the weights are still those after the last step
            raise
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - started
        progress = msgspec.structs.replace(
            progress,
            step=number,
            tokens=progress.tokens + batch.positions,
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
        if log_due:
            check_normalizers(model, number)
        if checkpoint_due:
            progress, validated = self._validate(progress)
            record |= validated | self.at_checkpoint(validated)
        if log_due:
            progress = self._log(record, progress, sampler.steps)
        if checkpoint_due:
            self.save(progress)  # last, for resuming cuts the metrics back to it
        return progress

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, then the weights, if they are the best.

        In this order, so that the weights never run ahead of the state that training resumes from.
        """
        run = self.run
        environment = self.options.environment.describe()
        kept = self.options.kept_checkpoints
        with self.options.publishing():
            save_checkpoint(run, self.optimizers, progress, environment, kept=kept)
            best = progress.best_step == progress.step or not self.validation
            if best or not (run.path / "model.safetensors").exists():
                run.save_weights()

    def _validate(self, progress: Progress) -> tuple[Progress, Record]:
        if not self.validation:
            return msgspec.structs.replace(progress, best_step=progress.step), {}
        loss = mean_loss(self.run.model, self.validation, self.options.environment)
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

    def _log(self, record: Record, progress: Progress, steps: int) -> Progress:
        """Write to all loggers; the loss is the mean since the last record."""
        record |= {
            "loss": sum(progress.losses) / len(progress.losses),
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
            "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9)),
            "seconds_left": round(progress.seconds / progress.step * (steps - progress.step), 1),
        }
        with self.options.publishing():
            for logger in self.loggers:
                logger.log(record)
        return msgspec.structs.replace(progress, losses=())


def _resume(
    run: Run, optimizers: list[torch.optim.Optimizer], environment: ExecutionEnvironment, steps: int
) -> Progress:
    checkpoint = newest_checkpoint(run.path)
    if checkpoint is None:
        return Progress()
    load_checkpoint(checkpoint, run, optimizers)
    here = environment.describe()
    changed = [
        f"{name} was {was} and is {here.get(name)}"
        for name, was in checkpoint.environment.items()
        if name not in ("python", "regard") and here.get(name) != was
    ]
    if changed and checkpoint.progress.step < steps:
        warnings.warn(
            f"{run.path}: {'; '.join(changed)}: training goes on, but its weights won't be "
            "bit-identical to those of an uninterrupted run",
            stacklevel=2,
        )
    if checkpoint.progress.best_step == checkpoint.progress.step:
        run.save_weights()  # the kill may have come between checkpoint and weights
    return checkpoint.progress


def _stops_early(progress: Progress, config: TrainingConfig) -> bool:
    return 0 < config.patience <= progress.checks_since_best


@contextmanager
def _own_randomness(seed: int, step: int, environment: ExecutionEnvironment) -> Iterator[None]:
    """Dropout that depends on seed and step alone; the global generator stays untouched."""
    devices = [environment.device] if environment.device.type == "cuda" else []
    mixed = int(np.random.SeedSequence([seed, 4, step]).generate_state(1)[0])
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(mixed)
        if devices:
            torch.cuda.manual_seed(mixed)
        yield


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


def best_parts(batch: Batch, environment: ExecutionEnvironment, at_least: int = 1) -> int:
    """Return the number of parts in which a machine is fastest through a batch."""
    if environment.device.type != "cpu":
        return at_least
    return max(at_least, round(batch.positions / CPU_TOKENS))


def accumulate_gradients(
    model: Model,
    batch: Batch,
    environment: ExecutionEnvironment,
    *,
    parts: int = 1,
    body: CompiledBody | None = None,
) -> float:
    """Add up the gradients of the mean loss over the targets of a batch, taken in parts.

    Returns:
        That mean loss, in nats.
    """
    n_targets, total = batch.n_targets, 0.0
    for part in batch.split(parts):
        with environment.autocast():
            loss = model.loss(part.to(environment.device), body) / n_targets
        loss.backward()
        total += loss.item()
    return total


@torch.no_grad()
def mean_loss(model: Model, batches: Sequence[Batch], environment: ExecutionEnvironment) -> float:
    """Return the mean loss per target in evaluation mode, in nats."""
    model.eval()
    with environment.autocast():
        losses = [model.loss(batch.to(environment.device)).item() for batch in batches]
    model.train()
    return sum(losses) / sum(batch.n_targets for batch in batches)


def check_normalizers(model: nn.Module, step: int) -> None:
    """Raise if compiled kernel attention has divided by a sum that wasn't positive.

    Raises:
        NormalizerError: names step and layer. Uncompiled attention raises at once.
    """
    for name, module in model.named_modules():
        if isinstance(module, KernelAttention) and int(module.nonpositive):
            raise NormalizerError(
                f"step {step}: in {name}, the weights of {int(module.nonpositive)} queries added "
                "up to zero or less since training started; the last checkpoint is from before. "
                "Lower the learning rate, or take features that are always positive"
            )
