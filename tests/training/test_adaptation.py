"""Adaptation of trained weights: what is frozen, and low-rank updates."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from killed import require_exact_resume
from plans import plan_named, plan_task
from regard.errors import UserError
from regard.huggingface.convert.export import export_run
from regard.huggingface.convert.folder import load_start
from regard.models.builders import Model
from regard.models.layers import Layer
from regard.models.tensors import merged_tensors, saved_tensors
from regard.runs.run import Run
from regard.training.adaptation import release
from regard.training.optimizers import make_optimizers
from regard.training.plan import Plan
from tiny import BIOGRAPHIES, QUESTIONS
from tiny_folders import gpt2_folder, gpt2_pieces
from tiny_tasks import REVIEWS, SETTINGS, add_gradients, sharp_run, task_recipe, writer

NOWHERE = Path("nowhere")
SHORT = ["training.steps=3", "training.batch=4", "training.checkpoint_every=1", "training.lr=0.1"]
LORA = ["training.lora.rank=2"]


@pytest.fixture(scope="module")
def parent() -> Run:
    return writer("decoder", "model.tie_head=false")


def plan(task: str, data: Any, start: Run | None, *settings: str, out: Path = NOWHERE) -> Plan:
    return plan_named(task, data, out=out, settings=[*SHORT, *settings], start=start)


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in saved_tensors(model).items()}


def changed(before: dict[str, torch.Tensor], model: nn.Module) -> set[str]:
    after = saved_tensors(model)
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


def in_optimizers(model: Model, made: Plan) -> set[str]:
    groups = [
        g for one in make_optimizers(model, made.run.recipe.training) for g in one.param_groups
    ]
    trained = {id(p) for group in groups for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in trained}


@pytest.mark.parametrize(("part", "optimizer"), [("body", "adamw"), ("embeddings", "muon")])
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
    assert made.loss_before()["loss_before"] == plain.loss_before()["loss_before"]
    model = made.run.model
    updates = {name for name, _ in model.named_parameters() if "lora_" in name}
    assert in_optimizers(model, made) == updates
    assert len(updates) == 2 * 4
    chosen = plan("text", list(BIOGRAPHIES), parent, *LORA, 'training.lora.targets=["o_proj"]')
    assert in_optimizers(chosen.run.model, chosen) == {n for n in updates if "o_proj" in n}


def test_low_rank_updates_are_merged(parent: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = plan("text", list(BIOGRAPHIES), parent, *LORA).run.model.double().eval()
    monkeypatch.setattr("regard.training.adaptation._cast", lambda *_: None)  # stay in float64
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


@pytest.mark.parametrize("task", ["text", "classification"])
def test_low_rank_training_is_resumed_exactly(
    parent: Run, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = REVIEWS if task == "classification" else list(BIOGRAPHIES)
    run = Run.load(
        require_exact_resume(
            lambda out: plan(task, data, parent, *LORA, out=out), tmp_path, 3, monkeypatch
        )
    )
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


def test_impossible_adaptations_are_refused(parent: Run) -> None:
    for settings, says in [
        (["training.freeze=head"], r"training\.freeze: .*'head'; allowed: body, embeddings, none"),
        (["training.lora.rank=0"], r"training\.lora\.rank: .*>= 1"),
        (["training.lora.alpha=nan"], r"training\.lora\.alpha: "),
        (['training.lora.targets=["q_prj"]'], r"training\.lora\.targets: no linear layer 'q_prj'"),
        ([*LORA, "training.freeze=body"], "lora freezes the body already"),
    ]:
        with pytest.raises(UserError, match=says) as refusal:
            plan("text", list(BIOGRAPHIES), parent, *settings)
        assert "\n" not in str(refusal.value)


def test_adaptation_needs_trained_weights_and_something_to_train(parent: Run) -> None:
    for setting in ("training.freeze=embeddings", *LORA):
        with pytest.raises(UserError, match="adapts trained weights; give them by --from"):
            plan("questions", QUESTIONS, None, setting)
    tied = sharp_run(task_recipe("casing", "decoder", "model.tie_head=true"))
    text = tied.tokenizer.decode([8, 9, 10])
    with pytest.raises(UserError, match="the head is tied to the embeddings"):
        plan("text", [text], tied, "training.freeze=body")
    classifier = plan("classification", REVIEWS, parent).run
    with pytest.raises(UserError, match="freezes the head"):
        plan("text", list(BIOGRAPHIES), classifier, *LORA)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder", "encoder, classification"])
def test_gradient_checkpointing_changes_no_gradient(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = "classification" if "classification" in family else "casing"
    parts = ("encoder.", "decoder.") if family == "encoder-decoder" else ("",)
    dropout = [f"model.{part}dropout=0.3" for part in parts]
    recomputed = 0
    original = Layer.forward

    def counting(self: Layer, *args: Any) -> torch.Tensor:
        nonlocal recomputed
        recomputed += 1
        return original(self, *args)

    monkeypatch.setattr(Layer, "forward", counting)
    gradients, losses, calls = [], [], []
    for checkpointing in ("false", "true"):
        setting = f"training.gradient_checkpointing={checkpointing}"
        made = plan_task(NOWHERE, task_recipe(task, family, *dropout, setting))
        made.run.model.train()
        recomputed = 0
        with torch.random.fork_rng():
            torch.manual_seed(3)
            losses.append(add_gradients(made.run.model, made.sampler.batch(0), 2))
        calls.append(recomputed)
        gradients.append({name: p.grad for name, p in made.run.model.named_parameters()})
    assert calls[1] == 2 * calls[0] > 0
    assert losses[0] == losses[1]
    for name, gradient in gradients[0].items():
        assert gradient is not None
        assert torch.equal(gradient, gradients[1][name])  # type: ignore[arg-type]


def test_gradient_checkpointing_is_for_transformers() -> None:
    with pytest.raises(
        UserError, match=r"training\.gradient_checkpointing: requires a Transformer"
    ):
        plan_task(NOWHERE, task_recipe("casing", "rnn", "training.gradient_checkpointing=true"))


@pytest.mark.parametrize(("lora", "optimizer"), [([], "muon"), (LORA, "adamw")])
def test_weights_are_trained_in_bfloat16(
    parent: Run, tmp_path: Path, lora: list[str], optimizer: str
) -> None:
    settings = ["training.param_dtype=bfloat16", f"training.optimizer.kind={optimizer}", *lora]
    made = plan("text", list(BIOGRAPHIES), parent, *settings, out=tmp_path / "run")
    types = {n: p.dtype for n, p in made.run.model.named_parameters() if "lora_" not in n}
    assert set(types.values()) == {torch.bfloat16}
    made.execute(SETTINGS)
    saved = load_file(tmp_path / "run/model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    loaded = saved_tensors(Run.load(tmp_path / "run").model)
    after = saved_tensors(made.run.model)
    for name, tensor in loaded.items():
        assert tensor.dtype == after[name].dtype == torch.float32
        assert torch.equal(tensor, saved[name].float())
        assert torch.equal(tensor, after[name])
    (tmp_path / "run/checkpoints/3").rename(tmp_path / "last")
    plan("text", list(BIOGRAPHIES), parent, *settings, out=tmp_path / "run").execute(
        SETTINGS, resume=True
    )
    again = load_file(tmp_path / "run/model.safetensors")
    assert all(torch.equal(again[name], saved[name]) for name in saved)


def test_bfloat16_weights_fit_all_positions() -> None:
    for positions in ["learned", "sinusoidal", "alibi", "t5-bias", "rotary"]:
        settings = ["training.param_dtype=bfloat16", f"model.positions.kind={positions}"]
        made = plan_task(NOWHERE, task_recipe("casing", "decoder", *settings))
        plain = plan_task(NOWHERE, task_recipe("casing", "decoder", settings[1]))
        found, expected = (
            add_gradients(one.run.model, one.sampler.batch(0)) for one in (made, plain)
        )
        assert found == pytest.approx(expected, rel=0.01)


COMPILED = {
    "lora": LORA,
    "gradient checkpointing": ["training.gradient_checkpointing=true"],
    "both": [*LORA, "training.gradient_checkpointing=true"],
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", COMPILED.values(), ids=COMPILED)
def test_compiled_training_is_the_same(
    parent: Run, settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recomputed activations and merged updates too; the backend compiles to operations of ATen."""
    compiler, compiled = torch.compile, list[nn.Module]()

    def compile_body(body: nn.Module, *, dynamic: bool) -> Any:
        compiled.append(body)
        return compiler(body, dynamic=dynamic, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", compile_body)
    runs = []
    for compile in (False, True):
        torch.compiler.reset()
        out = tmp_path / str(compile)
        made = plan("text", list(BIOGRAPHIES), parent, *settings, out=out)
        made.execute(replace(SETTINGS, compile=compile))
        runs.append(Run.load(out))
    eager, found = runs
    assert compiled
    assert changed(copied(parent.model), eager.model)
    # The same operations in float32, of which the compiler may reorder additions.
    for name, tensor in saved_tensors(eager.model).items():
        torch.testing.assert_close(found.model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)
