"""Five steps of each recipe give the stored losses and weights.

`pytest -m slow tests/test_golden.py --record-golden` stores them again; the commit says why.
"""

import hashlib
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from products import seen_products
from regard.cli import main
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES, TASKS
from regard.tasks.probes import ProbeConfig

pytestmark = pytest.mark.slow

STORED = Path(__file__).with_name("golden.json")
FAMILIES = [a + b for a in ("Fin", "Lan", "Mar", "Ren") for b in ("ch", "ge", "low", "ner")]
NAMES = [f"{name} {family}" for name in ("Ada", "Otto", "Mira", "Jonas") for family in FAMILIES]
PLACES = ("Leeds", "Rome", "Oslo")
PEOPLE = [f"{name}. Born in {PLACES[i % 3]}, a baker." for i, name in enumerate(NAMES)]
QUESTIONS = [f"Where was {name} born?\t{PLACES[i % 3]}" for i, name in enumerate(NAMES)]


def is_probe(recipe: Recipe) -> bool:
    return isinstance(recipe.task, ProbeConfig)


SMALL_TASK = ["task.training=400", "task.test=20"]
WHOLE = ["data.documents=files", "data.validation=0", "tokenizer.unknown=error"]
"""All characters of one file, as they stand: what was stored before these had other defaults."""
RUNS: dict[str, list[str]] = {
    "default": ["pretrain", "text.txt"],
    "questions": ["train", "questions", "pairs.tsv"],
    "course": ["pretrain", "text.txt"],
    "course-questions": ["train", "questions", "pairs.tsv"],
    "modern": ["pretrain", "text.txt", "--questions", "pairs.tsv"],
    "demo": ["pretrain", "text.txt", "--questions", "pairs.tsv"],
    "demo-questions": ["train", "questions", "pairs.tsv"],
    "masked": ["pretrain", "text.txt"],
    "text": ["train", "text", "text.txt", *WHOLE],
    "casing": ["train", "casing", *SMALL_TASK],
    "summaries": ["train", "summaries", *SMALL_TASK, "task.people=100"],
    "translation": ["train", "translation", *SMALL_TASK],
    "classification": ["train", "classification", *SMALL_TASK],
    "tagging": ["train", "tagging", *SMALL_TASK],
    "entailment": ["train", "entailment", *SMALL_TASK],
    "retrieval": ["train", "retrieval", *SMALL_TASK, "task.people=100"],
    **{name: ["train", name] for name, recipe in TASKS.items() if is_probe(recipe)},
    "world": ["train", "world", "task.training=40", "task.test=20", "task.people=200"],
}
"""A command for each recipe, on data that are made in a moment."""

LIMITS = ("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "DNNL_MAX_CPU_ISA")
"""Variables that keep a machine's libraries from some of its instructions."""


def machine() -> str:
    """What the last bit of a sum may depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    first, *_ = cpuinfo.read_text().split("\n\n") if cpuinfo.exists() else [""]
    facts = dict(re.findall(r"^(\S.*?)\s*: (.*)$", first, re.MULTILINE))
    # Hosts share a name; kernels choose by instructions and cache, MKL's and oneDNN's by these too.
    chosen = [facts.get(name, "") for name in ("model", "stepping", "cache size", "flags")]
    chosen += [os.environ.get(name, "") for name in LIMITS]
    kind = hashlib.sha256("\n".join(chosen).encode()).hexdigest()[:12]
    capability = torch.backends.cpu.get_cpu_capability()
    name = facts.get("model name", platform.machine())
    return ", ".join([name, kind, platform.machine(), capability, torch.__version__])


def five_steps(recipe: str, folder: Path) -> dict[str, Any]:
    """The losses of five steps, and a hash of the weights after them that knows no names."""
    (folder / "text.txt").write_text("\n".join(PEOPLE) + "\n", "utf-8")
    (folder / "pairs.tsv").write_text("\n".join(QUESTIONS) + "\n", "utf-8")
    command, *arguments = RUNS[recipe]
    settings = ["steps=5", "log_every=1", "checkpoint_every=5"]
    flags = ["--recipe", recipe, "--out", "run", "--precision", "float32"]
    flags += ["--device", "cpu", "--threads", "1"]
    made = [f"training.{setting}" for setting in settings]
    with seen_products() as seen:
        assert main.run([command, *arguments, *made, *flags]) == 0
    assert seen == {torch.float32}
    lines = (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
    weights = load_file(folder / "run" / "model.safetensors").values()
    hashes = sorted(hashlib.sha256(w.contiguous().numpy().tobytes()).hexdigest() for w in weights)
    return {"losses": losses, "weights": hashlib.sha256("".join(hashes).encode()).hexdigest()}


@pytest.mark.parametrize("recipe", RUNS)
def test_five_steps_are_those_that_are_stored(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """To the bit where the machine is the one that stored them.

    Elsewhere sums have another order, and the first loss, of the weights that the seed drew, is off
    by a few dozen roundings. Of later losses precision bounds nothing: the optimizer divides by the
    size of a gradient, so that a weight whose gradient is rounding alone moves by lr either way.
    """
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    try:
        found = five_steps(recipe, tmp_path)
    finally:
        torch.set_num_threads(threads)
    stored = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    if request.config.getoption("--record-golden"):
        kept = stored.get("runs", {}) if stored.get("machine") == machine() else {}
        stored = {"machine": machine(), "runs": kept | {recipe: found}}
        STORED.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
        return
    expected = stored["runs"][recipe]
    bound = 64 * torch.finfo(torch.float32).eps
    assert found["losses"][0] == pytest.approx(expected["losses"][0], rel=bound)
    if stored["machine"] == machine():
        assert found == expected


def test_each_recipe_is_stored() -> None:
    # Five steps of gpt-small take half an hour on a CPU; finetuning begins with a run.
    from_scratch = {name for name in RECIPES if not name.endswith("finetune")}
    stored = json.loads(STORED.read_text("utf-8"))["runs"]
    assert set(RUNS) == from_scratch - {"gpt-small"} == set(stored)
