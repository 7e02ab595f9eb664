"""Every mechanism on the main job: how well it learns the fictional world, how fast, how large.

The demo's recipe (text and questions together) with each mechanism in turn, each in a process of
its own, so that its peak memory is its own:

    python benchmarks/world.py [--steps 1200] [--only KIND] [--out docs/figures]

writes world.json and prints the table of `docs/attention.md`. With --only, softmax is measured
beside that kind, and the other rows of world.json stay as they are.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from regard.config import override
from regard.device import peak_memory_mb
from regard.environment import ExecutionEnvironment
from regard.evaluation.answers import answer
from regard.metrics import accuracy
from regard.runs.recipes import RECIPES
from regard.tasks.world import QUESTIONS, WorldConfig, make_world
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource
from regard.uncertainty.signals import quick_signals

SETTINGS: dict[str, list[str]] = {
    "softmax": [],
    "argmax": [],
    "bigbird": ["model.attention.block_size=8"],
    "sliding-window": ["model.attention.size=16", "model.attention.block_size=16"],
    "elu": [],
    "polynomial": [],
    "fourier": ["model.n_heads=8", "model.attention.features=128", "model.attention.sigma=8.0"],
    "favor-positive": ["model.n_heads=8", "model.attention.features=128"],
    "favor-trigonometric": ["model.n_heads=8", "model.attention.features=256"],
    "favor-hyperbolic": ["model.n_heads=8", "model.attention.features=64"],
}
"""The mechanisms that can be causal, and how they are made.

Random features are for narrow heads: at a width of 64, as softmax has here, their error is large.
"""


def measure(kind: str, steps: int) -> dict[str, Any]:
    """Train one and ask it about the people that the text tells of."""
    torch.set_num_threads(2)
    environment = ExecutionEnvironment.choose("auto", "auto")
    recipe = override(
        replace(RECIPES["demo"], objective=RECIPES["world"].objective),
        [f"model.attention.kind={kind}", *SETTINGS[kind], f"training.steps={steps}"],
    )
    world = make_world(WorldConfig(seed=0))
    with tempfile.TemporaryDirectory() as folder:
        source = DocumentSource(world.documents, world.questions("qa_train", QUESTIONS))
        plan = plan_training(source, recipe, Path(folder) / kind)
        progress = plan.execute(ExecutionOptions(environment=environment, quiet=True))
    answers = answer(plan.run, world.questions("text_only"), environment, signals=quick_signals())
    states = plan.run.language_model.init_state(1, recipe.model.context_length)
    right = accuracy([answer.correct for answer in answers])
    return {
        "accuracy": right.value,
        "accuracy_95": [right.low, right.high],
        "tokens_per_second": round(progress.tokens / progress.seconds),
        "peak_memory_mb": round(peak_memory_mb()),
        "state_bytes": states.bytes,
        "settings": SETTINGS[kind],
        "machine": environment.describe(),
    }


def measure_apart(kind: str, steps: int) -> dict[str, Any]:
    """The same in a process of its own; what stops it is a result too."""
    command = [sys.executable, __file__, "--one", kind, "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reasons = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"stopped": reasons[-1], "settings": SETTINGS[kind]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def row(kind: str, found: dict[str, Any]) -> str:
    """A line of the table, in Markdown."""
    settings = ", ".join(x.removeprefix("model.") for x in found["settings"])
    if "stopped" in found:
        return f"| `{kind}` | {settings} | {found['stopped']} | | | |"
    low, high = (f"{100 * x:.1f}" for x in found["accuracy_95"])
    speed = f"{found['speed']:.2f}" if "speed" in found else "–"
    return (
        f"| `{kind}` | {settings} | {100 * found['accuracy']:.1f} % [{low}, {high}] "
        f"| {speed} | {found['peak_memory_mb']:,} MB "
        f"| {found['state_bytes'] / 1024:,.0f} KiB |"
    )


def main() -> None:
    """Measure all, or one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--only", action="append", choices=SETTINGS)
    parser.add_argument("--one", choices=SETTINGS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.steps)))
        return
    place = arguments.out / "world.json"
    found = known(place, arguments.steps)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print("| kind | settings | accuracy | speed over softmax's | peak memory | state |")
    print("|---|---|---|---|---|---|")
    for kind in dict.fromkeys(["softmax", *(arguments.only or SETTINGS)]):
        found[kind] = measure_apart(kind, arguments.steps)
        softmax = found["softmax"].get("tokens_per_second")
        if softmax and "stopped" not in found[kind]:
            found[kind]["speed"] = found[kind]["tokens_per_second"] / softmax
        print(row(kind, found[kind]), flush=True)
        ordered = {kind: found[kind] for kind in SETTINGS if kind in found}
        everything = {"steps": arguments.steps, "mechanisms": ordered}
        place.write_text(json.dumps(everything, indent=1) + "\n")


def known(place: Path, steps: int) -> dict[str, dict[str, Any]]:
    """What was measured before, with as many steps."""
    if not place.exists():
        return {}
    before = json.loads(place.read_text())
    return dict(before["mechanisms"]) if before["steps"] == steps else {}


if __name__ == "__main__":
    main()
