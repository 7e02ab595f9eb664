"""Whatever a user gets wrong about tasks is told in one line, and nothing is left behind."""

import shlex
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tiny import MODEL, STEPS, Command, refused, succeeded
from tiny_tasks import task_recipe, task_settings, trained_run

pytestmark = pytest.mark.usefixtures("folder", "few_rows")

CLASSES = " ".join(task_settings("classification", "encoder, classification"))
COPY = " ".join(task_settings("copy", "decoder"))
RUNS = {
    "a labeler": ("classification", "encoder, classification"),
    "an embedder of documents": ("retrieval", "encoder, embedding"),
    "an encoder-decoder": ("casing", "encoder-decoder"),
    "a decoder": ("casing", "decoder"),
    "a run of a probe": ("copy", "decoder"),
}
"""Task and family of the run in the folder `run`."""
MISTAKES = {
    "no run": [
        ("train cooking --out new", "train cooking: there is no such task; there are: "),
        ("train masked text.txt --out new", "train masked: there is no such task"),
        ("train casing", "--out"),
        ("train casing pairs.tsv pairs.tsv --out new", "one file, not 2"),
        ("train casing nowhere.tsv --out new", "nowhere.tsv: no such file"),
        ("train casing --out new --mix a=1", "--mix: is for `train text`"),
        ("train casing --out new --test a.csv", "--test is for a task trained on a file"),
        ("train casing --out new task.kind=cooking", "task.kind"),
        ("train casing --out new training.patience=2", "nothing is held out"),
    ],
    "a recipe of another task": [
        ("train casing --out new task.kind=translation", "=translation; set task.kind=casing"),
        ("train casing --out new --recipe translation", "has task.kind=translation; set task.kind"),
        ("train copy --out new --recipe default", "train copy: the recipe has no task; set task."),
    ],
    "an option of other tasks": [
        (
            "train classification --documents lines --out new",
            "--documents is for other tasks (text)",
        ),
        ("train copy --text review --out new", "--text is for other tasks (text, casing, "),
        ("train text --label stars --out new", "--label is for other tasks (casing, "),
        ("train questions --no-header --out new", "--header is for other tasks (casing, "),
        ("train copy --skip-bad --out new", "--skip-bad is for other tasks (text, casing, "),
        ("train classification --text a --out new", "--text is for a file; name one, or leave it"),
    ],
    "a labeler": [
        ("evaluate run bad.tsv", "bad.tsv:2: the label is empty; a line holds a text, a tab, and"),
        ("evaluate run --paraphrase {}?", "--paraphrase: has no use for"),
        ("evaluate run --seed 3", "--seed: has no use for"),
        ("evaluate run --baseline majority", "--baseline: needs PAIRS, a file"),
        ("evaluate run --predictions nowhere/x", "nowhere/x: can't be written"),
        ("generate run fine --num-beams 2", "--num-beams is for a model that generates, and this"),
        ("generate run fine --max-new-tokens 3", "--max-new-tokens is for a model that generates"),
        ("generate run fine --stop-string x", "--stop-string is for a model that generates"),
        ("generate run fine --seed 1", "--seed is for a model that generates, and this one labels"),
    ],
    "an embedder of documents": [
        ("evaluate run alone.tsv", "alone.tsv:1: has no document"),
        ("evaluate run --predictions a.txt", "--predictions: run is scored"),
    ],
    "an encoder-decoder": [
        ("evaluate run uneven.txt", "uneven.txt: no character keeps its length in the other case"),
    ],
    "a decoder": [("evaluate run --report page.html", "--report: has no use for")],
    "a run of a probe": [
        (f"train copy pairs.tsv --out new {COPY}", "=copy: is a probe, which makes its own rows"),
        ("evaluate run pairs.tsv", "was trained on a probe"),
        ("evaluate run --predictions a.txt", "--predictions: run is scored"),
    ],
}
"""Commands, and a part of the line that each prints; what tasks refuse is tested beside them."""


@cache
def trained(task: str, family: str) -> TemporaryDirectory[str]:
    """A run for a task, which is removed with the process."""
    recipe = task_recipe(task, family, "tokenizer.kind=byte-pairs", "tokenizer.size=300")
    folder: TemporaryDirectory[str] = TemporaryDirectory()
    trained_run(Path(folder.name) / "run", recipe)
    return folder


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_explained(regard: Command, folder: Path, kind: str) -> None:
    if kind in RUNS:
        shutil.copytree(Path(trained(*RUNS[kind]).name) / "run", folder / "run")
    (folder / "bad.tsv").write_text("fine\tgood\nbad\t\n", "utf-8")
    (folder / "alone.tsv").write_text("Who comes from Leeds and bakes bread?\n", "utf-8")
    (folder / "uneven.txt").write_text("ß\nßß\n", "utf-8")
    for arguments, says in MISTAKES[kind]:
        refused(regard(*shlex.split(arguments)), says)


def test_an_encoder_of_masks_answers_nothing(regard: Command, folder: Path) -> None:
    command = ("pretrain", "text.txt", "--recipe", "masked", "--out", "run", *MODEL, *STEPS)
    succeeded(regard(*command))
    (folder / "mine.tsv").write_text("Ada\tRome\n", "utf-8")
    for arguments in ("evaluate run mine.tsv", "evaluate run text.txt", "generate run Ada"):
        refused(regard(*arguments.split()), "needs a causal language model")
    refused(regard("evaluate", "run"), "has no task and no held-out text; name a file")


def test_a_task_is_resumed_as_it_began(regard: Command, folder: Path) -> None:
    command = ("train", "classification", "--out", "run", *CLASSES.split())
    succeeded(regard(*command))
    refused(regard(*command), "run: holds a run; choose another --out, or resume it with --resume")
    refused(regard(*command, "--resume", "task.seed=1"), "another recipe")
    (folder / "mine.tsv").write_text("fine\tnegative\nbad\tpositive\n", "utf-8")
    refused(regard(*command, "mine.tsv", "--resume"), "run/origin.json: fingerprint was")
