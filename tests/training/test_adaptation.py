"""Adaptation of trained weights: what is frozen, and low-rank updates."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.errors import UserError
from regard.huggingface.export import export_run
from regard.huggingface.folder import load_start
from regard.models.builders import Model
from regard.runs.run import Run
from regard.runs.tensors import merged_tensors, saved_tensors
from regard.tasks.examples import Example
from regard.training import optimizers
from regard.training.adaptation import release
from regard.training.optimizers import make_optimizers
from regard.training.plan import Plan, plan_training
from tiny import BIOGRAPHIES, QUESTIONS
from tiny_folders import gpt2_folder, gpt2_pieces
from tiny_tasks import SETTINGS, sharp_run, task_recipe

NOWHERE = Path("nowhere")
SHORT = ["training.steps=3", "training.batch=4", "training.checkpoint_every=1", "training.lr=0.1"]
LORA = ["training.lora.rank=2"]
REVIEWS = tuple(
    Example(text=f"Ada was {word}", answer=label, where=f"rows:{number}")
    for number, (word, label) in enumerate([("born", "yes"), ("in Rome", "no")] * 4, 1)
)


@pytest.fixture(scope="module")
def parent() -> Run:
    alphabet = [Example(text=text, answer="x", where="a:1") for text in BIOGRAPHIES]
    words = [Example(text=f"{q.text} yes no", answer=q.answer, where="a:2") for q in QUESTIONS]
    recipe = task_recipe("casing", "decoder", "model.tie_head=false")
    return sharp_run(recipe, [*alphabet, *words])


def plan(task: str, data: Any, start: Run | None, *settings: str, out: Path = NOWHERE) -> Plan:
    return plan_training(task, data, out=out, settings=[*SHORT, *settings], start=start)


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in saved_tensors(model).items()}


def changed(before: dict[str, torch.Tensor], model: nn.Module) -> set[str]:
    after = saved_tensors(model)
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


def in_optimizers(model: Model, made: Plan) -> set[str]:
    groups = [g for one in make_optimizers(model, made.config) for g in one.param_groups]
    trained = {id(p) for group in groups for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in trained}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("part", ["body", "embeddings"])
def test_frozen_parameters_stay_as_they_are(
    parent: Run, part: str, optimizer: str, tmp_path: Path
) -> None:
    settings = [f"training.freeze={part}", f"training.optimizer.kind={optimizer}"]
    made = plan("text", list(BIOGRAPHIES), parent, *settings, out=tmp_path / "run")
    model, names = made.run.model, set(saved_tensors(made.run.model))
    frozen = {n for n in names if n.startswith("body." if part == "body" else "body.embedding.")}
    assert frozen
    assert in_optimizers(model, made) == names - frozen
    assert made.describe()["trained_parameters"] < made.run.n_parameters
    made.execute(SETTINGS)
    assert changed(copied(parent.model), Run.load(tmp_path / "run").model) == names - frozen
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_low_rank_updates_start_at_the_base_and_leave_it(parent: Run) -> None:
    made = plan("text", list(BIOGRAPHIES), parent, *LORA)
    plain = plan("text", list(BIOGRAPHIES), parent)
    assert made.describe()["loss_before"] == plain.describe()["loss_before"]
    model = made.run.model
    updates = {name for name, _ in model.named_parameters() if "lora_" in name}
    assert in_optimizers(model, made) == updates
    assert len(updates) == 2 * 4
    chosen = plan("text", list(BIOGRAPHIES), parent, *LORA, 'training.lora.targets=["o_proj"]')
    assert in_optimizers(chosen.run.model, chosen) == {n for n in updates if "o_proj" in n}


def test_low_rank_updates_are_merged(parent: Run) -> None:
    model = plan("text", list(BIOGRAPHIES), parent, *LORA).run.model.double().eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    ids = torch.arange(20)[None] % 7
    with torch.no_grad():
        expected, packed = model(input_ids=ids), merged_tensors(model)
        release(model)
        found = model(input_ids=ids)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert packed.keys() == saved_tensors(parent.model).keys() == saved_tensors(model).keys()
    for name, tensor in saved_tensors(model).items():
        torch.testing.assert_close(packed[name], tensor, rtol=1e-12, atol=1e-12)


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


@pytest.mark.parametrize("task", ["text", "classification"])
def test_low_rank_training_is_resumed_exactly(
    parent: Run, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = REVIEWS if task == "classification" else list(BIOGRAPHIES)
    plan(task, data, parent, *LORA, out=tmp_path / "whole").execute(SETTINGS)
    original = optimizers.clip_gradients

    def killing(*args: Any) -> float:
        if args[3] == 3:
            raise Killed
        return original(*args)

    with monkeypatch.context() as patched:
        patched.setattr("regard.training.loop.clip_gradients", killing)
        with pytest.raises(Killed):
            plan(task, data, parent, *LORA, out=tmp_path / "run").execute(SETTINGS)
    plan(task, data, parent, *LORA, out=tmp_path / "run").execute(SETTINGS, resume=True)
    run, whole = (Run.load(tmp_path / name) for name in ("run", "whole"))
    assert not changed(copied(run.model), whole.model)
    known = copied(parent.model)
    moved = {n for n, t in saved_tensors(run.model).items() if not torch.equal(t, known.get(n, t))}
    assert moved
    assert all(name.endswith("_proj.weight") for name in moved)


def test_an_adapted_run_is_exported(tmp_path: Path) -> None:
    gpt2_folder(tmp_path / "gpt2", gpt2_pieces(), {})
    start = load_start(f"hf:{tmp_path / 'gpt2'}")
    plan("questions", QUESTIONS, start, *LORA, out=tmp_path / "run").execute(SETTINGS)
    run = Run.load(tmp_path / "run")
    export_run(run, tmp_path / "out")
    back = load_start(f"hf:{tmp_path / 'out'}")
    assert not changed(copied(run.model), back.model)
    assert changed(copied(run.model), start.model)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["training.freeze=head"], r"training\.freeze: .*'head'; allowed: body, embeddings, none"),
        (["training.lora.rank=0"], r"training\.lora\.rank: .*>= 1"),
        (["training.lora.alpha=nan"], r"training\.lora\.alpha: "),
        (['training.lora.targets=["q_prj"]'], r"training\.lora\.targets: no linear layer 'q_prj'"),
        ([*LORA, "training.freeze=body"], "lora freezes the body already"),
    ],
)
def test_impossible_adaptations_are_refused(parent: Run, settings: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says) as refusal:
        plan("text", list(BIOGRAPHIES), parent, *settings)
    assert "\n" not in str(refusal.value)


def test_adaptation_needs_trained_weights_and_something_to_train(parent: Run) -> None:
    for setting in ("training.freeze=embeddings", *LORA):
        with pytest.raises(UserError, match="adapts trained weights; name them by --from"):
            plan("questions", QUESTIONS, None, setting)
    tied = sharp_run(task_recipe("casing", "decoder", "model.tie_head=true"))
    text = tied.tokenizer.decode([8, 9, 10])
    with pytest.raises(UserError, match="the head is tied to the embeddings"):
        plan("text", [text], tied, "training.freeze=body")
    classifier = plan("classification", REVIEWS, parent).run
    with pytest.raises(UserError, match="freezes the head"):
        plan("text", list(BIOGRAPHIES), classifier, *LORA)
