"""Cells in jobs: submitted a few at a time, again when they die, and canceled when nobody waits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regard.comparison import jobs
from regard.comparison.folder import Outcome, give_up, publish, read_outcome
from regard.comparison.jobs import run_in_jobs
from regard.errors import UserError
from regard.runs.claim import Claim


@pytest.fixture(autouse=True)
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0)
    monkeypatch.setattr(jobs, "REFUSED_SECONDS", 0)


LOOKS = 6
"""Looks at a job until it has ended."""


@dataclass
class FakeJob:
    """A job that ends after its work."""

    work: Callable[[], None]
    looks: int = 0
    canceled: bool = False

    def has_ended(self) -> bool:
        self.looks += 1
        if self.looks == LOOKS:
            self.work()
        return self.looks >= LOOKS

    def reason(self) -> str:
        return "its node is gone"

    def cancel(self) -> None:
        self.canceled = True


@dataclass
class FakeCluster:
    """Jobs that finish their cells, but for the first ones of some cells."""

    deaths: dict[str, int] = field(default_factory=dict)
    jobs: list[tuple[str, FakeJob]] = field(default_factory=list)
    most: int = 0
    limit: int = 1000

    def submit(self, cell: Path) -> FakeJob:
        if sum(one.looks < LOOKS for _, one in self.jobs) == self.limit:
            raise UserError("too many jobs")
        job = FakeJob(lambda: self.work(cell))
        self.jobs.append((cell.name, job))
        self.most = max(self.most, sum(one.looks < LOOKS for _, one in self.jobs))
        return job

    def work(self, cell: Path) -> None:
        claim = Claim.take(cell)
        if self.deaths.get(cell.name, 0):
            self.deaths[cell.name] -= 1
        else:
            publish(claim, Outcome(state="finished", attempt=claim.number))


def make_cells(folder: Path, *names: str) -> list[Path]:
    cells = [folder / name for name in names]
    for cell in cells:
        cell.mkdir()
    return cells


def state(cell: Path) -> str:
    outcome = read_outcome(cell)
    return outcome.state if outcome else "waits"


def test_a_refused_job_is_submitted_later(tmp_path: Path) -> None:
    cluster, cells = FakeCluster(limit=2), make_cells(tmp_path, *"abcde")
    assert set(run_in_jobs(cells, cluster.submit, at_once=5)) == set(cells)
    assert cluster.most == 2
    assert not any(job.canceled for _, job in cluster.jobs)


def test_a_job_refused_by_an_idle_cluster_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too many jobs"):
        list(run_in_jobs(make_cells(tmp_path, "a"), FakeCluster(limit=0).submit, at_once=1))


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_cells_are_submitted_a_few_at_a_time(at_once: int, tmp_path: Path) -> None:
    cells, cluster = make_cells(tmp_path, *"abcde"), FakeCluster()
    assert sorted(run_in_jobs(cells, cluster.submit, at_once=at_once)) == cells
    assert cluster.most == at_once
    assert [state(cell) for cell in cells] == ["finished"] * 5


def test_a_job_that_dies_is_submitted_again(tmp_path: Path) -> None:
    cells, cluster = make_cells(tmp_path, "a", "b"), FakeCluster(deaths={"a": 2})
    assert list(run_in_jobs(cells, cluster.submit, at_once=2)) == [cells[1], cells[0]]
    assert [name for name, _ in cluster.jobs] == ["a", "b", "a", "a"]
    assert [state(cell) for cell in cells] == ["finished", "finished"]


def test_a_cell_whose_jobs_die_three_times_has_failed(tmp_path: Path) -> None:
    cells, cluster = make_cells(tmp_path, "a", "b"), FakeCluster(deaths={"a": 3})
    give_up(cells[0], "an earlier failure doesn't end it")
    assert list(run_in_jobs(cells, cluster.submit, at_once=1)) == [cells[1], cells[0]]
    outcome = read_outcome(cells[0])
    assert outcome is not None
    assert (outcome.state, outcome.reason) == ("failed", "its node is gone, 3 times")
    assert len(cluster.jobs) == 4


def test_a_cell_that_finished_does_not_fail_afterwards(tmp_path: Path) -> None:
    (cell,) = make_cells(tmp_path, "a")
    FakeCluster().work(cell)
    give_up(cell, "its end came late")
    assert state(cell) == "finished"


def test_jobs_that_nobody_waits_for_are_canceled(tmp_path: Path) -> None:
    cells, cluster = make_cells(tmp_path, *"abc"), FakeCluster()
    ended = run_in_jobs(cells, cluster.submit, at_once=2)
    assert next(ended) == cells[0]
    ended.close()
    assert [(name, job.canceled) for name, job in cluster.jobs] == [("a", False), ("b", True)]
