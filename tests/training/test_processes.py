"""How processes find each other, and work in step."""

import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from regard.errors import RegardError
from regard.training import processes
from regard.training.processes import (
    LostProcessError,
    Processes,
    StoppedElsewhere,
    agree_on_name,
    join_processes,
)


def test_processes_agree_on_a_name_that_no_earlier_attempt_had() -> None:
    store = HashStore()
    names = []
    for _ in range(3):  # each finds what those before have left
        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(agree_on_name, store, 0, 3)
            third = pool.submit(agree_on_name, store, 2, 3)
            time.sleep(0.1)  # the second finds the others waiting
            second = pool.submit(agree_on_name, store, 1, 3)
            found = {process.result(timeout=30) for process in (first, second, third)}
        names.append(found)
    assert all(len(found) == 1 for found in names)
    assert len(set.union(*names)) == 3


def in_threads(size: int, work: Callable[[Processes], None]) -> list[Exception | None]:
    """Do work in threads that stand for processes, and return their errors."""
    store = HashStore()

    def attempt(rank: int) -> Exception | None:
        try:
            work(Processes(rank, size, store, "training"))
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(attempt, range(size)))


def test_a_step_ends_when_all_have_done_it() -> None:
    done = []

    def work(processes: Processes) -> None:
        with processes.in_step("step", Event()):
            time.sleep(0.05 * processes.rank)
            done.append(processes.rank)
        assert len(done) == 3

    assert in_threads(3, work) == [None] * 3


def test_a_step_that_fails_in_one_process_fails_in_all() -> None:
    def work(processes: Processes) -> None:
        with processes.in_step("step", Event()):
            if processes.rank == 1:
                raise OSError("full")

    first, second, third = in_threads(3, work)
    assert isinstance(second, OSError)
    assert isinstance(first, StoppedElsewhere)
    assert isinstance(third, StoppedElsewhere)


def test_others_wait_for_the_work_of_the_first_without_a_connection_that_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[object] = []

    def summed(processes: Processes, *_: float) -> list[float]:
        order.append(processes.rank)
        return [0.0]

    def work() -> None:
        time.sleep(0.2)
        order.append("work")

    monkeypatch.setattr(Processes, "sum", summed)
    assert in_threads(2, lambda processes: processes.alone(work)) == [None] * 2
    assert order[0] == "work"


def test_a_lost_store_is_a_lost_process() -> None:
    class Gone(HashStore):
        def check(self, _keys: list[str]) -> bool:
            raise dist.DistNetworkError("Connection reset by peer")

        def get(self, _key: str) -> bytes:
            raise dist.DistNetworkError("Connection reset by peer")

    with pytest.raises(LostProcessError, match="repeat the command with --resume"):
        Processes(1, 2, Gone()).alone(lambda: None)


def test_a_step_that_is_abandoned_does_not_wait_for_a_dead_process() -> None:
    abandoned = Event()
    abandoned.set()
    alone = Processes(0, 2, HashStore())
    with pytest.raises(StoppedElsewhere), alone.in_step("step", abandoned):
        pass


def test_trainings_of_the_same_processes_have_different_names() -> None:
    one, two = Processes(0, 2, name="a"), Processes(1, 2, name="a")
    names = [one.next_name(), one.next_name()]
    assert names == [two.next_name(), two.next_name()]
    assert len({*names, Processes().next_name(), Processes().next_name()}) == 4


def test_processes_whose_launcher_has_ended_stop_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]  # where nobody listens once it is closed
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    variables |= {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "CONNECTED", timedelta(seconds=0.2))
    with pytest.raises(RegardError, match="processes can't be reached") as error:
        join_processes()
    assert "\n" not in str(error.value)


def test_a_lost_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    for rank, pid in enumerate((11, 12)):
        store.set(f"regard/process/{rank}", f"{socket.gethostname()} {pid}")
    monkeypatch.setattr(processes, "is_running", lambda pid: pid == 11)
    assert str(Processes(0, 2, store).lost()).startswith("process 1 (pid 12) ended")


def test_termination_waits_until_a_lost_process_is_reported() -> None:
    """Whether a sum of this process or torchrun has found the loss."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(LostProcessError), Processes(0, 2, HashStore()).termination_explained():
            raise LostProcessError("process 1 ended")
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_process_reports_that_the_launcher_has_ended() -> None:
    class Ended(HashStore):
        def compare_set(self, *_: str) -> bytes:
            raise dist.DistNetworkError("failed to recv")

    assert [Processes(rank, 2, Ended()).may_report(1) for rank in range(2)] == [True, False]
