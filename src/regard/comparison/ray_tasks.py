"""Tasks of a Ray cluster (the extra `ray`)."""

import logging
import os
import socket
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from regard.comparison.config import RayConfig
from regard.comparison.jobs import run_in_jobs
from regard.comparison.worker import train_cell
from regard.errors import UserError, require_packages

if TYPE_CHECKING:
    import ray

LISTENER_SECONDS = 10
"""Seconds within which a cluster must accept a connection."""


def connect_to_ray(config: RayConfig) -> None:
    """Connect to the cluster, unless this process is connected to one.

    Raises:
        UserError: Ray isn't installed, or there is no cluster.
    """
    require_packages("--executor ray needs", "ray", "ray")
    import ray

    if ray.is_initialized():
        return
    _require_listener(config.address)
    try:
        ray.init(config.address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise _no_cluster(config.address) from None


def _require_listener(address: str) -> None:
    """Check that a cluster listens at a host and port; Ray would wait more than a minute.

    Raises:
        UserError: nothing listens within LISTENER_SECONDS, or the address is malformed.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address in ("auto", "local"):
        return
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        host, port = place.hostname, place.port
        if not (host and port):
            raise ValueError
    except ValueError:
        raise UserError(
            f"--resource address={address}: write HOST:PORT, such as 10.0.0.1:6379"
        ) from None
    try:
        socket.create_connection((host, port), timeout=LISTENER_SECONDS).close()
    except OSError:
        raise _no_cluster(address) from None


def _no_cluster(address: str) -> UserError:
    return UserError(
        f"--executor ray: there is no Ray cluster at {address}; start one with ray start --head, "
        "or give --resource address=HOST:PORT"
    )


def run_on_ray(
    cells: Sequence[Path], config: RayConfig, *, threads: int, jobs: int | None
) -> Generator[Path, None, None]:
    """Train each cell in a task, at most `jobs` queued or running; yield each that has ended."""
    import ray

    task = ray.remote(train_cell).options(
        num_cpus=config.num_cpus or threads,
        num_gpus=config.num_gpus,
        memory=config.memory,
        max_retries=0,  # `run_in_jobs` submits failed tasks again
    )
    yield from run_in_jobs(
        cells, lambda cell: _RayTask(ray, task.remote(cell.absolute())), at_once=jobs or len(cells)
    )


@dataclass(frozen=True)
class _RayTask:
    _ray: ModuleType
    _result: "ray.ObjectRef[None]"

    def has_ended(self) -> bool:
        return bool(self._ray.wait([self._result], timeout=0)[0])

    def reason(self) -> str:
        try:
            self._ray.get(self._result)
        except self._ray.exceptions.RayError as error:
            return f"its task ended with {type(error).__name__}"
        return "its task ended without an outcome"

    def cancel(self) -> None:
        self._ray.cancel(self._result, force=True)
