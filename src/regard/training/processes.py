"""The processes of one training, as torchrun starts them.

Each process plans the same training and makes each global batch, so they exchange little: the sum
of the losses, failures, and a request to stop. The first process writes.
"""

import atexit
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError, UserError, first_line
from regard.operating_system import is_launched, is_running

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")

TIMEOUT = timedelta(minutes=30)
"""Longest wait for other processes."""
CONNECTED = timedelta(minutes=1)
"""Longest wait for the store of torchrun, which exists before its processes start."""
NOTICED = 5.0
"""Seconds within which a dead process is found, or a failure reported."""


class StoppedElsewhere(RegardError):
    """Another process failed and reports why; this one ends with its exit code."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("another process failed")
        self.exit_code = exit_code


class LostProcessError(RegardError):
    """Another process of the training ended."""


@dataclass(frozen=True)
class Processes:
    """Rank of this process and number of processes: one, unless torchrun started several."""

    rank: int = 0
    size: int = 1
    store: "Store | None" = field(default=None, repr=False)
    name: str = field(default_factory=lambda: uuid4().hex)
    """Name that is equal in all processes, and unique to them."""
    _names: Iterator[int] = field(default_factory=count, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Return the sums of the values of all processes, bit-identical in each.

        Raises:
            LostProcessError: another process ended.
        """
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            raise (self.lost() if is_lost(error) else error) from error
        summed: list[float] = total.tolist()
        return summed

    def wait(self) -> None:
        """Wait until all processes have called this."""
        self.sum(0.0)  # torch doesn't wait for a sum of no values

    def alone(self, work: Callable[[], object]) -> None:
        """Do work in the first process while the others wait, however long it takes.

        Raises:
            StoppedElsewhere: the work failed in the first process.
            LostProcessError: another process ended.
        """
        failure: Exception | None = None
        done = f"regard/done/{self.next_name()}"
        if self.is_first:
            try:
                work()
            except Exception as error:  # raised below, after the others are informed
                failure = error
            if self.store:
                self.store.set(done, "")
        try:
            while self.store and not self.store.check([done]):
                time.sleep(0.01)
        except dist.DistError as error:
            raise self.lost() from error
        (failed,) = self.sum(failure is not None)
        if failure:
            raise failure
        if failed:
            raise self.stopped_elsewhere()

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do work in the first process, then in the others, which find the files of the first."""
        made: list[T] = []
        self.alone(lambda: made.append(work()))
        return made[0] if made else work()

    def next_name(self) -> str:
        """Return a name that is equal in all processes, and another one at each call."""
        return f"{self.name}-{next(self._names)}"

    @contextmanager
    def in_step(self, name: str, abandoned: threading.Event) -> Iterator[None]:
        """Do work in each process, and wait until all have done theirs, unless it is `abandoned`.

        Waits by the store, so that a thread may wait while the main thread of each process trains.

        Raises:
            StoppedElsewhere: the work failed in another process, or was abandoned.
        """
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # raised below, after the others are informed
            failure = error
        succeeded = self.store is None or self._all_succeed(name, failure is None, abandoned)
        if failure:
            raise failure
        if not succeeded:
            raise StoppedElsewhere(RegardError.exit_code)

    def _all_succeed(self, name: str, success: bool, abandoned: threading.Event) -> bool:
        """Report to the other processes, and return whether all report success."""
        assert self.store is not None
        self.store.set(f"regard/{name}/{self.rank}", str(success))
        keys = [f"regard/{name}/{rank}" for rank in range(self.size)]
        deadline = time.monotonic() + TIMEOUT.total_seconds()
        while not self.store.check(keys):
            if abandoned.wait(0.02) or time.monotonic() > deadline:
                return False
        return all(self.store.get(key) == b"True" for key in keys)

    def require_equal(self, **values: str) -> None:
        """Raise unless all processes have the same values.

        They are exchanged by the store: `all_gather_object` unpickles.

        Raises:
            UserError: names the value and the processes.
        """
        if self.store is None:
            return
        for name, value in values.items():
            self.store.set(f"regard/{name}/{self.rank}", value)
        self.wait()
        for name in sorted(values):
            found = [self.store.get(f"regard/{name}/{rank}") for rank in range(self.size)]
            others = [str(rank) for rank, value in enumerate(found) if value != found[0]]
            if others:
                raise UserError(
                    f"process {', '.join(others)}: has another {name} than process 0; "
                    "start all processes with the same command, files and version"
                )

    def may_report(self, exit_code: int) -> bool:
        """Return whether this process is the first to report a failure."""
        if self.store is None:
            return True
        own = f"{self.rank} {exit_code}"
        try:
            return bool(self.store.compare_set("regard/failure", "", own).decode() == own)
        except dist.DistError:  # torchrun itself, which keeps the store, has ended
            return self.is_first

    def stopped_elsewhere(self) -> StoppedElsewhere:
        """Wait for the report of the process that failed, and return an error with its exit code.

        Torchrun terminates all processes when one ends, the one that reports included.
        """
        assert self.store is not None
        try:
            self.store.wait(["regard/failure"], timedelta(seconds=NOTICED))
        except dist.DistStoreError:  # a program that doesn't report
            return StoppedElsewhere(RegardError.exit_code)
        return StoppedElsewhere(int(self.store.get("regard/failure").split()[1]))

    def lost(self) -> LostProcessError:
        """Return the error of a training that lost a process."""
        try:
            gone = self._gone()
        except dist.DistError:  # torchrun itself, which keeps the store, has ended
            gone = []
        reason = f"process {', '.join(gone)} ended" if gone else "the processes were terminated"
        return LostProcessError(
            f"{reason}, so this training stopped; repeat the command with --resume"
        )

    @contextmanager
    def termination_explained(self) -> Iterator[None]:
        """Raise `LostProcessError` when torchrun terminates this process, or a connection breaks.

        When a process ends, torchrun terminates the others, and kills them 30 seconds later.
        """
        if self.size == 1 or threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_signal: int, _frame: FrameType | None) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            raise self.lost()

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        except Exception as error:
            if not is_lost(error):
                raise
            # Until the error is printed; torchrun kills this process 30 seconds later.
            before = signal.SIG_IGN
            signal.signal(signal.SIGTERM, before)
            if isinstance(error, LostProcessError):
                raise
            raise self.lost() from error
        finally:
            signal.signal(signal.SIGTERM, before)

    def _gone(self) -> list[str]:
        """Wait for a process of this machine to end, and return those that have ended."""
        assert self.store is not None
        deadline = time.monotonic() + NOTICED
        while time.monotonic() < deadline:
            gone = []
            for rank in range(self.size):
                host, pid = self.store.get(f"regard/process/{rank}").decode().rsplit(" ", 1)
                if host == socket.gethostname() and not is_running(int(pid)):
                    gone.append(f"{rank} (pid {pid})")
            if gone:
                return gone
            time.sleep(0.1)
        return []


def join_processes() -> Processes:
    """Return the processes that torchrun started; the first call connects them.

    Raises:
        RegardError: the others can't be reached.
    """
    return _connect() if is_launched() else Processes()


@cache
def _connect() -> Processes:
    try:
        launched = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store, rank, size = next(rendezvous("env://", timeout=CONNECTED if launched else TIMEOUT))
        if torch.cuda.is_available():  # otherwise all take the first one
            local = int(os.environ.get("LOCAL_RANK", rank))
            torch.cuda.set_device(local % torch.cuda.device_count())
        store.set_timeout(TIMEOUT)
        name = agree_on_name(store, rank, size)
        store = dist.PrefixStore(name, store)  # type: ignore[attr-defined] # torch hides it
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise RegardError(
            f"the other processes can't be reached ({reason}); start all of them by torchrun"
        ) from None
    atexit.register(dist.destroy_process_group)
    store.set(f"regard/process/{rank}", f"{socket.gethostname()} {os.getpid()}")
    return Processes(rank, size, store, name)


def agree_on_name(store: "Store", rank: int, size: int) -> str:
    """Return the same name in all processes, which no earlier attempt had.

    torchrun keeps its store over restarts, so keys of an earlier attempt would be mistaken for
    those of this one, and connecting would hang (pytorch/pytorch#135712). An earlier process may
    have left a question here, but it doesn't confirm the answer.
    """
    own = uuid4().hex
    if rank:
        store.set(f"regard/question/{rank}", own)
        name = store.get(f"regard/answer/{own}").decode()  # waits for it
        store.set(f"regard/confirmed/{name}/{rank}", "")
        return name
    others = set(range(1, size))
    while others:
        for other in others:
            if store.check([question := f"regard/question/{other}"]):
                store.set(f"regard/answer/{store.get(question).decode()}", own)
        others = {rank for rank in others if not store.check([f"regard/confirmed/{own}/{rank}"])}
        time.sleep(0.01)
    return own


def is_restart() -> bool:
    """Return whether torchrun has restarted the processes after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def is_lost(error: BaseException) -> bool:
    """Return whether an error comes from the connection to another process."""
    named = any(word in str(error) for word in ("gloo", "Connection closed", "Connection reset"))
    return isinstance(error, LostProcessError | dist.DistError) or (
        isinstance(error, RuntimeError) and named
    )
