"""A real kill -9 at an arbitrary moment loses nothing."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from forked import Forked, start
from regard.tasks.world import WorldConfig, make_world
from regard.tasks.world_files import save_world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9 of POSIX"),
]


def command(world: Path, out: Path) -> list[str]:
    return [
        *("-m", "regard", "pretrain", str(world / "wiki.txt")),
        *("--questions", str(world / "birth_places_train.tsv"), "--out", str(out), "--resume"),
        *("--recipe", "demo", "--threads", "1", "training.steps=300"),
        *("training.checkpoint_every=10", "model.d_model=32", "model.dropout=0.1"),
        "training.log_every=1",
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "world"
    save_world(make_world(WorldConfig(people=200, absent=20)), folder)
    return folder


@pytest.fixture(scope="module")
def whole(world: Path) -> Path:
    """The run that nobody kills."""
    out = world.parent / "whole"
    train_to_the_end(world, out)
    return out


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.findings) for i in (1, 2))]
)
def test_kill_9(seed: int, world: Path, whole: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    draw, kills = random.Random(seed), 0
    while kills < 3:
        process = start(command(world, killed), tmp_path / "log")
        wait_for_training(killed, process)
        time.sleep(draw.uniform(0, 1.0))
        if process.poll() is None:
            process.kill()
        assert process.wait() in (-signal.SIGKILL, 0)
        kills += 1
    train_to_the_end(world, killed)
    for name in ("model.safetensors", "checkpoints/300/optimizer.safetensors"):
        expected, found = load_file(whole / name), load_file(killed / name)
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def train_to_the_end(world: Path, out: Path) -> None:
    log = out.with_name("log")
    assert start(command(world, out), log).wait() == 0, log.read_text("utf-8")


def wait_for_training(run: Path, process: Forked) -> None:
    """Until the metrics grow, so that the kill hits the training and not the start."""
    metrics = run / "metrics.jsonl"
    before = metrics.stat().st_size if metrics.exists() else 0
    while process.poll() is None:
        if metrics.exists() and metrics.stat().st_size != before:
            return
        time.sleep(0.01)
