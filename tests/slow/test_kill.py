"""A real kill -9 at an arbitrary moment loses nothing."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from launched import Forked
from regard.cli import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has imported torch"),
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
    assert main.run(["world", "--out", str(folder), "people=200", "absent=20"]) == 0
    return folder


@pytest.fixture(scope="module")
def whole(world: Path) -> Path:
    """The run that nobody kills, of a process that isn't forked: its sets have their own order."""
    out = world.parent / "whole"
    subprocess.run([sys.executable, *command(world, out)], check=True, capture_output=True)
    return out


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.findings) for i in (1, 2))]
)
def test_kill_9(seed: int, world: Path, whole: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    draw, kills = random.Random(seed), 0
    while kills < 3:
        process = Forked(0, command(world, killed))
        wait_for_training(killed, process)
        time.sleep(draw.uniform(0, 1.0))
        process.kill()
        assert process.wait() in (-signal.SIGKILL, 0)
        kills += 1
    log = tmp_path / "log"
    assert Forked(0, command(world, killed), log).wait() == 0, log.read_text("utf-8")
    for name in ("model.safetensors", "checkpoints/300/optimizer.safetensors"):
        expected, found = load_file(whole / name), load_file(killed / name)
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def wait_for_training(run: Path, process: Forked) -> None:
    """Until the metrics grow, so that the kill hits the training and not the start."""
    metrics = run / "metrics.jsonl"
    before = metrics.stat().st_size if metrics.exists() else 0
    while process.poll() is None:
        if metrics.exists() and metrics.stat().st_size != before:
            return
        time.sleep(0.01)
