"""SLURM jobs, submitted by submitit (the extra `slurm`)."""

from collections.abc import Generator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.comparison.config import SlurmConfig
from regard.comparison.jobs import run_in_jobs
from regard.comparison.worker import train_cell
from regard.errors import UserError, require_packages

if TYPE_CHECKING:
    import submitit

_SUBMITTED = "_submitted.pkl"
"""Suffix of submitit's file of a job, which is deleted once the job is known to have ended."""


def require_slurm(config: SlurmConfig) -> None:
    """Check that jobs can be submitted.

    Raises:
        UserError: submitit or SLURM is missing.
    """
    require_packages("--executor slurm needs", "slurm", "submitit")
    import submitit

    if config.cluster == "slurm" and submitit.SlurmExecutor.affinity() < 0:
        raise UserError(
            "--executor slurm: there is no srun here; start it where jobs are submitted, or try "
            "--resource cluster=local"
        )


def run_on_slurm(
    cells: Sequence[Path], config: SlurmConfig, *, folder: Path, threads: int, jobs: int | None
) -> Generator[Path, None, None]:
    """Train each cell in a job; yield each that has ended. Files of the jobs are in `folder`.

    At most `jobs` are queued or running (default: all). Jobs of an earlier, killed command are
    canceled.

    Raises:
        UserError: SLURM refuses a job.
    """
    if not cells:
        return
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    _cancel_former_jobs(folder, config)
    executor = submitit.AutoExecutor(folder, cluster=config.cluster)
    executor.update_parameters(**_parameters(config, threads))

    def submit(cell: Path) -> _SlurmJob:
        try:
            with redirect_stderr(StringIO()):  # submitit prints the error as well
                return _SlurmJob(executor.submit(TrainCell(), str(cell.absolute())))
        except (FailedJobError, FailedSubmissionError) as error:
            said = " ".join(str(error).split())
            raise UserError(f"SLURM refuses the job: {said}; see --resource and --jobs") from None

    yield from run_in_jobs(cells, submit, at_once=jobs or len(cells))


class TrainCell:
    """Train a cell in a job, which is queued again if it is preempted or times out."""

    def __call__(self, cell: str) -> None:
        """Train the cell."""
        train_cell(Path(cell))

    def checkpoint(self, cell: str) -> "submitit.helpers.DelayedSubmission":
        """Return the remaining work: the same call, as a cell resumes from its folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, cell)


@dataclass(frozen=True)
class _SlurmJob:
    _job: "submitit.Job[None]"

    def has_ended(self) -> bool:
        ended = bool(self._job.done())
        if ended:
            self._forget()
        return ended

    def reason(self) -> str:
        return f"its job ended as {self._job.state} (see {self._job.paths.stderr})"

    def cancel(self) -> None:
        self._job.cancel(check=False)
        self._forget()

    def _forget(self) -> None:
        self._job.paths.submitted_pickle.unlink(missing_ok=True)


def _cancel_former_jobs(folder: Path, config: SlurmConfig) -> None:
    """Cancel the unfinished jobs of earlier commands."""
    from submitit.core.plugins import get_executors

    job_class = get_executors()[config.cluster].job_class
    for submitted in folder.glob(f"*{_SUBMITTED}"):
        job_id = submitted.name.removesuffix(_SUBMITTED)
        _SlurmJob(job_class(folder, job_id)).cancel()


def _parameters(config: SlurmConfig, threads: int) -> dict[str, Any]:
    """Return submitit's parameters; None leaves a parameter at its default."""
    return {
        "name": "regard",
        "timeout_min": config.timeout_min,
        "mem_gb": config.mem_gb,
        "cpus_per_task": config.cpus_per_task or threads,
        "gpus_per_node": config.gpus_per_node or None,
        "slurm_partition": config.slurm_partition,
        "slurm_account": config.slurm_account,
        "slurm_additional_parameters": config.slurm_additional_parameters or None,
    }
