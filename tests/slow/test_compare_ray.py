"""Cells on a Ray cluster of two nodes, of which one is killed (make test-ray)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from regard.comparison.config import RayConfig
from regard.comparison.executors import run_locally
from regard.comparison.folder import create_cell, read_outcome
from regard.comparison.grid import CellSettings
from regard.comparison.plan import plan_comparison
from regard.comparison.ray_tasks import connect_to_ray, run_on_ray
from regard.comparison.scheduler import train_comparison
from regard.comparison.table import MEASURED
from regard.runs.recipes import find_recipe
from tiny_comparisons import TINY, tiny_grid

ray = pytest.importorskip("ray", reason="the extra ray isn't installed")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings

STEPS = ("training.steps=300", "training.checkpoint_every=50", "training.log_every=50")
MEMORY = 10**8
"""Bytes of the object store of a node; cells put nothing there."""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without cores, and two nodes with one core each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=MEMORY)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def make_cells(out: Path) -> list[Path]:
    recipes = (find_recipe("mqar", [*TINY, *STEPS, f"seed={seed}"]) for seed in range(2))
    return [create_cell(out, recipe, CellSettings(device="cpu")) for recipe in recipes]


def test_the_cell_of_a_killed_node_resumes_on_the_other(cluster: Any, tmp_path: Path) -> None:
    cells, alone = make_cells(tmp_path / "ray"), make_cells(tmp_path / "alone")
    list(run_locally(alone, jobs=1, log=tmp_path / "log"))
    config = RayConfig(address=cluster.address)
    connect_to_ray(config)
    killer = Thread(target=kill_a_node, args=(cluster, cells))
    killer.start()
    assert sorted(run_on_ray(cells, config, threads=1, jobs=None)) == sorted(cells)
    killer.join()
    outcomes = [read_outcome(cell) for cell in cells]
    assert [one and one.state for one in outcomes] == ["finished", "finished"]
    assert sorted(one.attempt for one in outcomes if one) == [1, 2]
    for cell, other in zip(cells, alone, strict=True):
        weights = [path / "model.safetensors" for path in (cell, other)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
    check_tables(config, tmp_path)


def kill_a_node(cluster: Any, cells: list[Path]) -> None:
    """Kill one of the two nodes as soon as each has trained a part of a cell."""
    while not all(list((cell / "checkpoints").glob("*")) for cell in cells):
        time.sleep(0.01)
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)


def check_tables(config: RayConfig, folder: Path) -> None:
    """Compare the tables of a small grid, trained by Ray and by worker processes."""
    usual = {"seeds": 1, "tune": {}, "cell": {"device": "cpu"}}
    tables = [
        train_comparison(
            plan_comparison(tiny_grid(**usual, executor=executor)), folder / name
        ).table()
        for name, executor in (
            ("here", {"kind": "local"}),
            ("there", {"kind": "ray", "address": config.address}),
        )
    ]
    here, there = (
        [{k: v for k, v in row.items() if k not in MEASURED} for row in table] for table in tables
    )
    assert there == here
    assert len(there) == 2
