"""Training that begins with the weights of a run: what is kept, what is new, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from killed import require_exact_resume
from plans import plan_named, plan_task
from regard.api import train
from regard.errors import UserError
from regard.huggingface.convert.folder import load_start
from regard.models.tensors import saved_tensors
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.training.plan import Plan
from regard.uncertainty.calibration import require_answering
from tiny import BIOGRAPHIES, QUESTIONS
from tiny_folders import bert_folder, bert_pieces, gpt2_folder, gpt2_pieces
from tiny_tasks import REVIEWS, SETTINGS, task_recipe, writer

NOWHERE = Path("nowhere")
SHORT = ["training.steps=2", "training.batch=4", "training.checkpoint_every=1"]


@pytest.fixture(scope="module")
def parent() -> Run:
    return writer()


def plan(task: str, data: Any, start: Run, *settings: str, out: Path = NOWHERE) -> Plan:
    return plan_named(task, data, out=out, settings=[*SHORT, *settings], start=start)


def assert_same_body(run: Run, start: Run) -> None:
    ours, theirs = (saved_tensors(one.model.body) for one in (run, start))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert run.tokenizer.fingerprint == start.tokenizer.fingerprint
    assert run.recipe.model == start.recipe.model
    assert run.recipe.template == start.recipe.template
    assert run.origin["parent"] == str(start.path)


def test_a_decoder_goes_on_with_texts_and_questions(parent: Run) -> None:
    for task, data in (("text", list(BIOGRAPHIES)), ("questions", QUESTIONS)):
        run = plan(task, data, parent).run
        assert_same_body(run, parent)
        assert torch.equal(run.language_model.head.weight, parent.language_model.head.weight)
        assert "new_tensors" not in run.origin


def test_a_new_task_has_a_new_head(parent: Run) -> None:
    made = plan("classification", REVIEWS, parent)
    assert_same_body(made.run, parent)
    new = made.run.origin["new_tensors"]
    assert new == [f"head.{name}" for name in saved_tensors(made.run.model.head)]
    assert made.run.origin["dropped_tensors"] == ["head.weight"]
    assert made.describe()["new_tensors"] == ", ".join(new)
    again = plan("classification", REVIEWS, parent).run
    other = plan("classification", REVIEWS, parent, "seed=1").run
    weights = [saved_tensors(run.model)[new[0]] for run in (made.run, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_head_is_kept_for_the_same_labels(parent: Run) -> None:
    start = plan("classification", REVIEWS, parent).run
    same = plan("classification", REVIEWS[:4], start, "seed=5").run
    kept, theirs = (saved_tensors(run.model) for run in (same, start))
    assert all(torch.equal(kept[name], theirs[name]) for name in theirs)
    renamed = [
        Example(text=row.text, answer={"yes": "good", "no": "bad"}[row.answer or ""], where="r:1")
        for row in REVIEWS
    ]
    other = plan("classification", renamed, start, "seed=5").run
    assert_same_body(other, start)
    assert other.origin["new_tensors"] == other.origin["dropped_tensors"]


def test_an_encoder_decoder_learns_another_task() -> None:
    start = writer("encoder-decoder")
    run = plan("summaries", QUESTIONS, start).run
    assert_same_body(run, start)
    assert "new_tensors" not in run.origin


def test_training_is_by_default_the_finetuning_of_the_start() -> None:
    start = writer("decoder", "finetuning=demo-finetune", "training.lr=0.5")
    run = plan("classification", REVIEWS, start).run
    assert (run.recipe.training.lr, run.recipe.training.steps) == (5e-4, 2)
    assert run.recipe.finetuning == "demo-finetune"


def test_hugging_face_models_are_a_start(tmp_path: Path) -> None:
    gpt2_folder(tmp_path / "gpt2", gpt2_pieces(), {})
    bert_folder(tmp_path / "bert", bert_pieces())
    gpt2, bert = (load_start(f"hf:{tmp_path / name}") for name in ("gpt2", "bert"))
    assert_same_body(plan("questions", QUESTIONS, gpt2).run, gpt2)
    made = plan("classification", REVIEWS, bert)
    assert_same_body(made.run, bert)
    assert made.run.origin["parent"] == f"hf:{tmp_path / 'bert'}"
    run = train(
        "text",
        list(BIOGRAPHIES),
        out=tmp_path / "run",
        start=f"hf:{tmp_path / 'gpt2'}",
        settings=SHORT,
        device="cpu",
    )
    loaded = Run.load(run.path)
    assert loaded.origin["parent_weights"]
    assert (run.path / "tokenizer.json").read_bytes() == (
        tmp_path / "gpt2/tokenizer.json"
    ).read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("hf")]


@pytest.mark.parametrize("task", ["text", "classification"])
def test_it_is_resumed_exactly_and_with_the_same_start_alone(
    parent: Run, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = REVIEWS
    if task == "text":
        data = tmp_path / "text.txt"
        data.write_text("".join(f"{line}\n" for line in BIOGRAPHIES * 4), "utf-8")
    run = require_exact_resume(
        lambda out: plan(task, data, parent, out=out), tmp_path, 2, monkeypatch
    )
    other = writer("decoder", "seed=9")
    with pytest.raises(UserError, match=r"parent_weights was .* and is"):
        plan(task, data, other, "seed=0", out=run).execute(SETTINGS, resume=True)


def test_what_contradicts_the_start_is_refused(parent: Run) -> None:
    for task, settings, says in [
        ("text", ["model.n_layers=3"], r"model\.n_layers = 3: .* has 1, .* can't be changed"),
        ("text", ["model.kind=rnn"], r"model\.kind = rnn: .* has decoder"),
        ("text", ["model.attention.kind=elu"], r"model\.attention\.kind = elu: .* has softmax"),
        ("text", ["tokenizer.kind=words"], r"tokenizer\.kind = words: .* has characters"),
        ("text", ["head.kind=embedding"], "head.kind=embedding"),
    ]:
        with pytest.raises(UserError, match=says) as refusal:
            plan(task, list(BIOGRAPHIES), parent, *settings)
        assert "\n" not in str(refusal.value)


def test_starts_that_do_not_fit_are_refused(parent: Run) -> None:
    encoder = plan_task(NOWHERE, task_recipe("classification", "encoder, classification")).run
    texts = list(BIOGRAPHIES)
    cases: list[tuple[str, Any, Run, dict[str, Any], str]] = [
        ("text", texts, parent, {"recipe": "text"}, r"context_length = 128: nowhere has 320"),
        ("questions", QUESTIONS, parent, {"tokenizer": parent.tokenizer}, "comes with --from"),
        ("copy", None, parent, {}, "a probe"),
        ("text", texts, encoder, {}, r"model\.kind=encoder"),
        ("translation", None, encoder, {}, "lm"),
    ]
    for task, data, start, choices, says in cases:
        with pytest.raises(UserError, match=says):
            plan_named(task, data, out=NOWHERE, settings=SHORT, start=start, **choices)


def test_a_run_of_a_task_that_goes_on_with_questions_can_be_asked(parent: Run) -> None:
    assert parent.recipe.task is not None
    require_answering(plan("questions", QUESTIONS, parent).run)
