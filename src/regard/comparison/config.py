"""Where the cells of a comparison are trained, and with which resources."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from regard.config import Config, Count, Positive


class LocalConfig(Config, frozen=True, tag_field="kind", tag="local"):
    """Worker processes on this machine."""


class SlurmConfig(Config, frozen=True, tag_field="kind", tag="slurm"):
    """SLURM jobs, one per cell, submitted by submitit. Fields have submitit's names."""

    cluster: Literal["slurm", "local"] = "slurm"
    """Cluster of submitit; local: processes on this machine, to try a grid without SLURM."""
    timeout_min: Positive = 240
    """Time limit of a job in minutes; a cell that reaches it is queued again, up to 3 times."""
    mem_gb: Annotated[float, Meta(gt=0)] | None = None
    """Memory of a cell in GB. Default: the cluster's."""
    cpus_per_task: Positive | None = None
    """CPU cores of a cell. Default: its threads."""
    gpus_per_node: Count = 0
    """GPUs of a cell."""
    slurm_partition: str | None = None
    """Partition of the jobs. Default: the cluster's."""
    slurm_account: str | None = None
    """Account of the jobs. Default: the user's."""
    slurm_additional_parameters: dict[str, str | int | bool] = msgspec.field(default_factory=dict)
    """Other options of sbatch, such as {qos = "long"}."""


class RayConfig(Config, frozen=True, tag_field="kind", tag="ray"):
    """Tasks of a Ray cluster, one per cell. Fields have Ray's names."""

    address: str = "auto"
    """Address of the cluster; auto: RAY_ADDRESS, or the cluster that this machine belongs to."""
    num_cpus: Annotated[float, Meta(gt=0)] | None = None
    """CPU cores of a cell. Default: its threads."""
    num_gpus: Annotated[float, Meta(ge=0)] = 0
    """GPUs of a cell."""
    memory: Annotated[int, Meta(ge=1)] | None = None
    """Memory of a cell in bytes, by which Ray places it. Default: unlimited."""


ExecutorConfig = LocalConfig | SlurmConfig | RayConfig
"""Where the cells of a comparison are trained."""
