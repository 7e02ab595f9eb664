"""Tasks of a Ray cluster (the extra `ray`)."""

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.comparison.config import RayConfig
from regard.comparison.jobs import run_in_jobs
from regard.comparison.worker import train_cell
from regard.errors import UserError

if TYPE_CHECKING:
    import ray


def connect_to_ray(config: RayConfig) -> None:
    """Connect to the cluster, unless this process is connected to one.

    Raises:
        UserError: Ray isn't installed, or there is no cluster.
    """
    try:
        import ray
    except ImportError:
        raise UserError(
            "--executor ray needs ray, which isn't installed: pip install 'regard[ray]'"
        ) from None
    if ray.is_initialized():
        return
    try:
        ray.init(config.address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise UserError(
            f"--executor ray: there is no Ray cluster at {config.address}; start one with "
            "ray start --head, or give --resource address=HOST:PORT"
        ) from None


def run_on_ray(
    cells: Sequence[Path], config: RayConfig, *, threads: int, jobs: int | None
) -> Generator[Path, None, None]:
    """Train each cell in a task; yield each that has ended. At most `jobs` wait or run."""
    import ray

    task = ray.remote(train_cell).options(
        num_cpus=config.num_cpus or threads,
        num_gpus=config.num_gpus,
        memory=config.memory,
        max_retries=0,  # it is submitted again as those of other clusters are
    )
    yield from run_in_jobs(
        cells,
        lambda cell: _RayTask(task.remote(cell.absolute())),
        at_once=jobs or len(cells),
    )


@dataclass(frozen=True)
class _RayTask:
    _result: "ray.ObjectRef[None]"

    def has_ended(self) -> bool:
        import ray

        ended, _ = ray.wait([self._result], timeout=0)
        return bool(ended)

    def reason(self) -> str:
        import ray

        try:
            ray.get(self._result)
        except ray.exceptions.RayError as error:
            return f"its task ended with {type(error).__name__}"
        return "its task ended without an outcome"

    def cancel(self) -> None:
        import ray

        ray.cancel(self._result, force=True)
