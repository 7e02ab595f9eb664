"""`regard convert` makes a run of another mechanism, and says what changed."""

import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from regard.models.tensors import saved_tensors
from regard.runs.run import Run
from regard.runs.start import convert
from regard.training import optimizers, step
from regard.training.loop import InterruptedTraining
from regard.training.plan import plan_converted
from tiny import MODEL, STEPS, Command, refused, succeeded

ELU = "model.attention.kind=elu"


def test_a_run_goes_on_with_another_mechanism(regard: Command, run: Path) -> None:
    outcome = succeeded(regard("convert", "run", "--out", "elu", ELU, "--text", "text.txt"))
    before, after, _, where = outcome.out.splitlines()
    assert before.startswith("before: perplexity: ")
    assert after.startswith("after: perplexity: ")
    assert before.split()[2] != after.split()[2]
    assert where == "Run: elu"
    said = succeeded(regard("evaluate", "run", "text.txt")).out
    assert said.startswith(before.removeprefix("before: "))
    assert "conversion" in succeeded(regard("info", "elu")).out
    succeeded(regard("evaluate", "elu", "pairs.tsv"))  # it answers, as its parent did
    succeeded(regard("finetune", "pairs.tsv", "--from", "elu", "--out", "more", *STEPS))
    made = saved_tensors(Run.load(run.parent / "elu").model)
    parent = saved_tensors(Run.load(run).model)
    assert made.keys() == parent.keys()
    assert all(torch.equal(made[name], parent[name]) for name in parent)


@pytest.mark.usefixtures("run")
def test_it_lists_new_and_dropped_tensors(regard: Command) -> None:
    relative = "model.positions.kind=relative-bias"
    outcome = succeeded(regard("convert", "run", "--out", "there", relative))
    assert outcome.out == (
        "new: body.bias.values\nTo score it: regard evaluate there FILE\n"
        "To train it: regard train TASK FILE --from there --out NEW\nRun: there\n"
    )
    outcome = succeeded(regard("convert", "there", "--out", "back", "model.positions.kind=rotary"))
    assert outcome.out.startswith("dropped: body.bias.values\n")


@pytest.mark.usefixtures("run")
def test_a_place_that_can_not_be_locked_is_named_as_given(regard: Command, folder: Path) -> None:
    (folder / ".elu.lock").mkdir()
    refused(regard("convert", "run", "--out", "elu", ELU), " elu: can't be written: ")
    refused(regard("convert", "run", "--out", "text.txt/elu", ELU), " text.txt/elu: can't", "Not a")


def test_an_interrupted_command_leaves_nothing(
    regard: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "save_description", Mock(side_effect=KeyboardInterrupt))
    outcome = regard("convert", run.name, "--out", "elu", ELU)
    assert outcome.code == 130
    assert not outcome.new


def test_held_out_tokens_are_scored(regard: Command, folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(300)), "utf-8")
    flags = ("data.validation=0.2", "training.optimizer.kind=adamw", *MODEL, *STEPS)
    succeeded(regard("train", "text", "long.txt", "--out", "lm", *flags))
    outcome = succeeded(regard("convert", "lm", "--out", "elu", ELU))
    before, after, *_ = outcome.out.splitlines()
    assert before.removeprefix("before: ") in succeeded(regard("evaluate", "lm")).out
    assert after.startswith("after: perplexity: ")
    assert after.removeprefix("after: ") in succeeded(regard("evaluate", "elu")).out


@pytest.mark.parametrize("adapted", ["training.lora.rank=2", "training.freeze=embeddings"])
def test_all_weights_of_a_converted_run_are_trained(
    regard: Command, folder: Path, adapted: str
) -> None:
    """New tensors are random: frozen ones would stay so."""
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(300)), "utf-8")
    succeeded(regard("train", "text", "long.txt", "--out", "lm", *MODEL, *STEPS))
    flags = ("--from", "lm", "--out", "tuned", *STEPS, adapted)
    succeeded(regard("train", "text", "long.txt", *flags))
    relative = ["model.positions.kind=relative-bias"]
    made = convert(Run.load(folder / "tuned"), folder / "new", relative)
    assert made.origin["new_tensors"] == ["body.bias.values"]
    plan = plan_converted(made, 2)
    assert all(parameter.requires_grad for parameter in plan.run.model.parameters())


def value(line: str) -> float:
    return float(line.partition("perplexity: ")[2].split()[0])


def test_tokens_come_along_and_are_trained_on(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither --steps nor `train text --from` tokenizes the text again."""
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(300)), "utf-8")
    flags = ("training.optimizer.kind=adamw", *MODEL, *STEPS)
    succeeded(regard("train", "text", "long.txt", "--out", "lm", *flags))
    with monkeypatch.context() as patched:
        patched.setattr("regard.training.sources.text.pack_corpus", pytest.fail)
        outcome = succeeded(regard("convert", "lm", "--out", "elu", ELU, "--steps", "4"))
        lines = [line for line in outcome.out.splitlines() if "perplexity: " in line]
        _, after, trained = lines
        assert trained.startswith("after 4 steps: perplexity: ")
        assert value(trained) < value(after)
        assert trained.removeprefix("after 4 steps: ") in succeeded(regard("evaluate", "elu")).out
        made = Run.load(folder / "elu")
        assert (made.recipe.training.steps, made.origin["steps"]) == (4, 4)
        patched.setattr("regard.text.packed.inspect_file", pytest.fail)
        more = ("train", "text", "long.txt", "--from", "elu", "--out", "more", *STEPS)
        succeeded(regard(*more))
    ids = [(folder / name / "tokens/training.bin").stat().st_ino for name in ("lm", "elu", "more")]
    assert len(set(ids)) == 1
    where = [*more, "data.validation=0.3"]
    where[where.index("more")] = "other"
    succeeded(regard(*where))
    assert (folder / "other/tokens/training.bin").stat().st_ino != ids[0]


def test_steps_need_a_language_model_and_a_stop_says_how_to_go_on(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(300)), "utf-8")
    succeeded(regard("train", "text", "long.txt", "--out", "lm", *MODEL, *STEPS))
    flags = ("head.kind=embedding", "--steps", "2")
    refused(regard("convert", "lm", "--out", "new", *flags), "requires a causal language model")
    assert not (folder / "new").exists()
    stop = Mock(side_effect=InterruptedTraining("repeat the command with --resume"))
    monkeypatch.setattr("regard.training.plan.Plan.execute", stop)
    outcome = regard("convert", "lm", "--out", "elu", ELU, "--steps", "2")
    assert outcome.code == 130
    assert "--resume" not in outcome.err
    assert "--from elu" in outcome.err


def test_a_stopped_training_of_a_converted_run_keeps_its_weights(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(300)), "utf-8")
    succeeded(regard("train", "text", "long.txt", "--out", "lm", *MODEL, *STEPS))
    original = optimizers.clip_gradients

    def pressing(*args: Any) -> float:
        if args[3] == 2:
            signal.raise_signal(signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(step, "clip_gradients", pressing)
    assert regard("convert", "lm", "--out", "elu", ELU, "--steps", "9").code == 130
    saved, last = (
        load_file(folder / "elu" / name / "model.safetensors") for name in (".", "checkpoints/2")
    )
    assert all(torch.equal(saved[name], last[name]) for name in last)
    more = ("--from", "elu", "--steps", "+2", "--out", "more")
    says = "step 2 of 9; regard convert can't resume it, so leave --steps out"
    refused(regard("train", "text", "long.txt", *more), says)


def test_more_steps_of_a_converted_run_equal_the_longer_training(
    regard: Command, folder: Path
) -> None:
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(300)), "utf-8")
    schedule = "training.schedule={kind='mingpt', positions=1000000, final=1}"
    succeeded(regard("train", "text", "long.txt", "--out", "lm", *MODEL, *STEPS, schedule))
    for name, steps in (("short", "4"), ("long", "6")):
        succeeded(regard("convert", "lm", "--out", name, ELU, "--steps", steps))
    more = ("--from", "short", "--steps", "+2", "--out", "more")
    refused(regard("train", "casing", *more), "the task differs")
    succeeded(regard("train", "text", "long.txt", *more))
    ours, theirs = (
        load_file(folder / name / "checkpoints/6/model.safetensors") for name in ("more", "long")
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_tokens_of_a_dry_run_are_not_those_of_another_run(regard: Command, folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"This is line {i}.\n" for i in range(99)), "utf-8")
    flags = ("--out", "a", *MODEL, *STEPS)
    succeeded(regard("train", "text", "long.txt", *flags, "--dry-run"))
    succeeded(regard("pretrain", "text.txt", *flags))
    assert not (folder / "a/tokens").exists()
    refused(regard("evaluate", "a"), "has no task and no held-out text")
