"""Whatever a user gets wrong about tasks is told in one line, and nothing is left behind."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from combinations import each_once
from regard.evaluation import tasks
from regard.training.sources import probe
from tiny import MODEL, STEPS, Command, refused
from tiny_tasks import task_recipe, task_settings, trained_run

pytestmark = pytest.mark.usefixtures("folder")

CLASSES = task_settings("classification", "encoder, classification")


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_ROWS", 8)
    monkeypatch.setattr(tasks, "PROBE_ROWS", 8)


@cache
def trained(task: str, family: str) -> TemporaryDirectory[str]:
    """A run for a task, which is removed with the process."""
    recipe = task_recipe(task, family, "tokenizer.kind=byte-pairs", "tokenizer.size=300")
    folder: TemporaryDirectory[str] = TemporaryDirectory()
    trained_run(Path(folder.name) / "run", recipe)
    return folder


def put_run(folder: Path, task: str, family: str) -> None:
    """A run for a task, in the test's own folder."""
    shutil.copytree(Path(trained(task, family).name) / "run", folder / "run")


# the command line itself


def test_a_wrong_command_is_explained(regard: Command) -> None:
    for arguments, says in [
        (["tasks", "casing"], "casing"),
        (["train", "cooking", "--out", "new"], "train cooking: there is no such task; there are: "),
        (["train", "masked", "text.txt", "--out", "new"], "train masked: there is no such task"),
        (["train", "casing"], "--out"),
        (["train", "casing", "pairs.tsv", "pairs.tsv", "--out", "new"], "one file, not 2"),
        (["train", "casing", "nowhere.tsv", "--out", "new"], "nowhere.tsv: no such file"),
        (["train", "casing", "nowhere.txt", "--out", "new"], "nowhere.txt: no such file"),
        (["train", "casing", "--out", "new", "--tokenizer", "none"], "none/tokenizer.json"),
        (["train", "casing", "--out", "new", "task.size=3"], "task.size: no such field"),
        (["train", "casing", "--out", "new", "task.training=0"], "task.training"),
        (["train", "retrieval", "--out", "new", "task.people=2000"], "choose fewer"),
        (["train", "mqar", "--out", "new", "task.length=63"], "length = 63 is odd"),
        (["train", "casing", "--out", "new", "task.kind=cooking"], "task.kind"),
        (["train", "casing", "--out", "new", "training.patience=2"], "nothing is held out"),
    ]:
        refused(regard(*arguments), says)


def test_a_recipe_of_another_task_is_refused(regard: Command) -> None:
    for command, says in [
        ("train casing task.kind=translation", "task.kind=translation; set task.kind=casing"),
        ("train casing --recipe translation", "has task.kind=translation; set task.kind=casing"),
        ("train copy --recipe default", "train copy: the recipe has no task; set task.kind=copy"),
        ("train questions pairs.tsv task.kind=casing", "is learned by `regard train casing`"),
        ("train text text.txt --recipe sort", "is learned by `regard train sort`"),
        ("pretrain text.txt task.kind=casing", "is learned by `regard train casing`"),
    ]:
        refused(regard(*command.split(), "--out", "new"), says)


# models that can't


def test_a_model_that_cannot_learn_it_is_refused(regard: Command) -> None:
    for command, says in [
        ("train casing head.kind=classification", "is no head for model.kind=encoder-decoder"),
        ("train classification head.kind=masked-lm", "doesn't answer; choose lm"),
        ("train copy model.kind=encoder-decoder", "set model.kind=decoder, rnn or fixed-window"),
        ("train questions pairs.tsv model.kind=encoder-decoder", "causal language model"),
        ("pretrain text.txt objective.masked_tokens=1", "take --recipe masked"),
        ("pretrain text.txt --recipe masked objective.next_token=1", "objective.next_token=0"),
    ]:
        refused(regard(*command.split(), "--out", "new"), says)


# examples


@each_once(
    {
        "command": ["train classification FILE --out new", "evaluate run FILE"],
        ("text", "says"): [
            ("", "bad.tsv: is empty"),
            (
                "fine\tgood\nbad\t\n",
                "bad.tsv:2: the label is empty; a line holds a text, a tab, and",
            ),
        ],
    }
)
def test_bad_examples_are_named(
    regard: Command, folder: Path, command: str, text: str, says: str
) -> None:
    put_run(folder, "classification", "encoder, classification")
    (folder / "bad.tsv").write_text(text, "utf-8")
    settings = CLASSES if command.startswith("train") else ()
    refused(regard(*command.replace("FILE", "bad.tsv").split(), *settings), says)


def test_questions_without_documents_cannot_be_ranked(regard: Command, folder: Path) -> None:
    put_run(folder, "retrieval", "encoder, embedding")
    (folder / "bad.tsv").write_text("Who comes from Leeds and bakes bread?\n", "utf-8")
    refused(regard("evaluate", "run", "bad.tsv"), "bad.tsv:1: has no document")


def test_a_text_without_letters_to_turn_is_refused(regard: Command, folder: Path) -> None:
    put_run(folder, "casing", "encoder-decoder")
    (folder / "bad.txt").write_text("ß\nßß\n", "utf-8")
    says = "bad.txt: no character keeps its length in the other case"
    refused(regard("evaluate", "run", "bad.txt"), says)


def test_a_probe_takes_no_file_and_no_tokenizer(regard: Command, folder: Path) -> None:
    put_run(folder, "copy", "decoder")
    settings = task_settings("copy", "decoder")
    command = ("train", "copy", "--out", "new", *settings)
    refused(regard(*command, "pairs.tsv"), "task.kind=copy: is a probe, which makes its own rows")
    refused(regard(*command, "--tokenizer", "run"), "task.kind=copy: is a probe")
    refused(regard("evaluate", "run", "pairs.tsv"), "was trained on a probe")


# runs


def test_what_writes_nothing_generates_nothing(regard: Command, folder: Path) -> None:
    put_run(folder, "classification", "encoder, embedding")
    for flags in ((), ("--num-beams", "2")):
        refused(regard("generate", "run", "fine", *flags), "needs a causal language model")


def test_what_labels_does_not_write(regard: Command, folder: Path) -> None:
    put_run(folder, "classification", "encoder, classification")
    for flags in ("--num-beams 2", "--max-new-tokens 3", "--stop-string x", "--seed 1"):
        says = f"{flags.split()[0]} is for a model that generates, and this one labels"
        refused(regard("generate", "run", "fine", *flags.split()), says)


@pytest.mark.parametrize(
    ("task", "family", "prompt", "says"),
    [
        ("classification", "encoder, classification", "é" * 400, "1 prompts take more than"),
        ("entailment", "encoder, classification", "Ada", "prompt 1: has no second text"),
        ("tagging", "encoder, tags", "", "prompt 1: is empty"),
    ],
)
def test_bad_prompts_of_what_labels_are_refused(
    regard: Command, folder: Path, task: str, family: str, prompt: str, says: str
) -> None:
    put_run(folder, task, family)
    refused(regard("generate", "run", prompt), says)


def test_what_continues_no_text_is_not_finetuned(regard: Command, folder: Path) -> None:
    put_run(folder, "classification", "encoder, classification")
    refused(
        regard("finetune", "pairs.tsv", "--from", "run", "--out", "new"), "causal language model"
    )


def test_an_encoder_of_masks_answers_nothing(regard: Command, folder: Path) -> None:
    command = ("pretrain", "text.txt", "--recipe", "masked", "--out", "run", *MODEL, *STEPS)
    assert regard(*command).code == 0
    (folder / "mine.tsv").write_text("Ada\tRome\n", "utf-8")
    for arguments in ("evaluate run mine.tsv", "evaluate run text.txt", "generate run Ada"):
        refused(regard(*arguments.split()), "needs a causal language model")
    refused(regard("evaluate", "run"), "has no task and no held-out text; name a file")


def test_a_task_is_scored_in_its_own_way(regard: Command, folder: Path) -> None:
    put_run(folder, "classification", "encoder, classification")
    for flags, says in (
        (["--paraphrase", "{}?"], "--paraphrase: has no use for"),
        (["--seed", "3"], "--seed: has no use for"),
        (["--baseline", "majority"], "--baseline: needs PAIRS, a file"),
        (["--predictions", "nowhere/x"], "nowhere/x: can't be written"),
    ):
        refused(regard("evaluate", "run", *flags), says)


def test_only_labels_have_a_report(regard: Command, folder: Path) -> None:
    put_run(folder, "casing", "decoder")
    refused(regard("evaluate", "run", "--report", "page.html"), "--report: has no use for")


@pytest.mark.parametrize(
    ("task", "family"), [("retrieval", "encoder, embedding"), ("copy", "decoder")]
)
def test_what_gives_no_answers_has_no_predictions(
    regard: Command, folder: Path, task: str, family: str
) -> None:
    put_run(folder, task, family)
    refused(regard("evaluate", "run", "--predictions", "a.txt"), "--predictions: run is scored")


def test_bad_prompts_of_what_reads_a_source_are_refused(regard: Command, folder: Path) -> None:
    put_run(folder, "casing", "encoder-decoder")
    many = ("--max-new-tokens", "321")
    refused(regard("generate", "run", "Ada", *many), "takes 1 tokens, and with 321 new ones")
    refused(regard("generate", "run", ""), "prompt 1: is empty")
    refused(regard("generate", "run", "é" * 400), "prompt 1: takes")


def test_a_task_is_resumed_as_it_began(regard: Command, folder: Path) -> None:
    command = ("train", "classification", "--out", "run", *CLASSES)
    assert regard(*command).code == 0
    refused(regard(*command), "run: holds a run; choose another --out, or resume it with --resume")
    refused(regard(*command, "--resume", "task.seed=1"), "another recipe")
    (folder / "mine.tsv").write_text("fine\tnegative\nbad\tpositive\n", "utf-8")
    refused(regard(*command, "mine.tsv", "--resume"), "run/origin.json: fingerprint was")
