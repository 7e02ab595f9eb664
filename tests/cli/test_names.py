"""Names on the command line: groups print their help, unknown names suggest the nearest."""

import shutil
from pathlib import Path

import pytest

from tiny import Command, refused, succeeded


def test_a_group_without_a_command_prints_its_help(regard: Command) -> None:
    for group in ["", "study", "attention", "exercises"]:
        bare = succeeded(regard(*group.split()))
        for flag in ("--help", "-h"):
            assert succeeded(regard(*group.split(), flag)).out == bare.out
        assert "Commands:" in bare.out


def test_an_unknown_name_suggests_the_nearest(regard: Command) -> None:
    for command, nearest in [
        ("trian", "train"),
        ("study lits", "list"),
        ("train tagginng --out new", "tagging"),
        ("config --recipe demmo", "demo"),
        ("config --recip demo", "--recipe"),
        ("config model.n_layer=3", "n_layers"),
        ("config modle.n_layers=3", "model"),
        ("config model.kind=decodr", "decoder"),
        ("generate nowhere Ada --precision float23", "float32"),
        ("attention check linformr", "linformer"),
        ("study run averging", "averaging"),
        ("book --out new --only jhu-hw6", "jhu-hw5"),
        ("birthplaces --data . --arm pretraind", "pretrained"),
    ]:
        outcome = regard(*command.split())
        refused(outcome, "id you mean")
        assert nearest in outcome.err[outcome.err.index("id you mean") :]


def test_a_run_that_is_not_there_suggests_the_nearest(regard: Command, run: Path) -> None:
    for command in ["info rum", "evaluate rum pairs.tsv", "look rum text"]:
        refused(regard(*command.split()), "rum: is not a run folder", f"did you mean {run.name}?")


def test_a_name_that_is_not_near_lists_the_runs_there(
    regard: Command, run: Path, folder: Path
) -> None:
    """Equal folders made unlike names near."""
    shutil.copytree(run, folder / "runs" / "mine")
    refused(
        regard("info", "runs/nope"), "runs/nope: is not a run", f"; runs there: {Path('runs/mine')}"
    )
    refused(regard("info", "runs"), "; runs there: ")
    refused(regard("info", "runs/mime"), f"did you mean {Path('runs/mine')}?")


@pytest.mark.usefixtures("run")
def test_a_hugging_face_folder_where_a_run_is_needed_is_imported(regard: Command) -> None:
    succeeded(regard("export-hf", "run", "--out", "run-hf"))
    mend = "regard import-hf run-hf --out NEW"
    for command in ("info run-hf", "generate hf:run-hf Ada", "evaluate run-hf pairs.tsv"):
        refused(regard(*command.split()), mend)
    succeeded(regard(*mend.split()[1:]))
    succeeded(regard("generate", "NEW", "Ada", "--max-new-tokens", 2))


@pytest.mark.usefixtures("run")
def test_a_run_where_a_hugging_face_folder_is_needed_is_used_as_it_is(regard: Command) -> None:
    says = ("run: is a Regard run already; use it without", "generate run")
    for command in (
        *("look hf:run Ada", "import-hf run --out new"),
        "finetune pairs.tsv --from hf:run --out new",
    ):
        refused(regard(*command.split()), *says)


@pytest.mark.usefixtures("run")
def test_a_run_after_hf_is_given_without_it(regard: Command) -> None:
    refused(regard("info", "hf:run"), "hf:run: is not a run folder: write run, without hf:")


def test_of_many_names_the_nearest_come_first_and_the_others_are_counted(regard: Command) -> None:
    outcome = regard("study", "run", "averging")
    refused(outcome, "there are: averaging, ", " more; did you mean averaging?")
    assert len(outcome.err) < 400
