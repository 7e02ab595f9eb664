"""Training goes on after any interruption as if nothing had happened."""

import errno
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from killed import Killed, kill_in_step, require_exact_resume
from plans import plan_pretraining
from regard import api, files
from regard.config import override
from regard.errors import NonFiniteError, UserError
from regard.runs.recipes import RECIPES
from regard.tasks.world import WorldConfig, make_world
from regard.text.corpus import Document
from regard.training import optimizers, step
from regard.training.checkpoint import require_checkpoint
from regard.training.loggers import read_metrics
from regard.training.loop import InterruptedTraining
from regard.training.plan import Plan
from regard.training.step import PrefetchedBatches, Validation
from tiny_tasks import SETTINGS

TINY = [
    *("model.n_layers=1", "model.d_model=16", "model.dropout=0.1", "data.validation=0.1"),
    *("objective.questions=0", "objective.clozes=0", "objective.cloze_relevance=0"),
    *("objective.next_token=0.5", "objective.span_corruption=0.5"),
    *("training.batch=8", "training.accumulation=2", "training.log_every=1"),
]


@pytest.fixture(scope="module")
def corpus() -> list[Document]:
    world = make_world(WorldConfig(people=80, absent=0, biographies=1))
    return [Document(text, f"world:{i}") for i, text in enumerate(world.documents)]


def plan(corpus: list[Document], out: Path, *, steps: int = 7, every: int = 3) -> Plan:
    recipe = override(
        RECIPES["demo"], [*TINY, f"training.steps={steps}", f"training.checkpoint_every={every}"]
    )
    return plan_pretraining(corpus, out, recipe)


def final_state(out: Path) -> dict[str, torch.Tensor]:
    """Everything that the next step would depend on."""
    checkpoint = require_checkpoint(out)
    state = {"step": torch.tensor(checkpoint.progress.step)}
    for name in ("model", "optimizer"):
        tensors = load_file(checkpoint.path / f"{name}.safetensors")
        state |= {f"{name}.{key}": value for key, value in tensors.items()}
    return state | {f"best.{k}": v for k, v in load_file(out / "model.safetensors").items()}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    # Exact: the same operations on the same shapes.
    assert all(torch.equal(found[name], expected[name]) for name in expected)


Ended = tuple[dict[str, torch.Tensor], list[dict[str, Any]]]
"""The final state and metrics of a run."""


@pytest.fixture(scope="module")
def uninterrupted(corpus: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Those of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    plan(corpus, out).execute(SETTINGS)
    return final_state(out), steps_and_losses(out)


def steps_and_losses(out: Path) -> list[dict[str, Any]]:
    kept = ("step", "loss", "validation_loss", "lr", "gradient_norm", "tokens")
    return [
        {name: line[name] for name in kept if name in line}
        for line in read_metrics(out / "metrics.jsonl")
    ]


SEAMS = ("_write", "_rename", "_flush_folder", "append_line")


@contextmanager
def failing_at(
    monkeypatch: pytest.MonkeyPatch, moment: int, failure: Callable[[], BaseException] = Killed
) -> Iterator[list[str]]:
    """Let the given call of all that change the disk fail, half done where that is possible.

    Yields the names of the calls.
    """
    calls: list[str] = []

    def failing(name: str) -> Callable[..., None]:
        original: Callable[..., None] = getattr(files, name)

        def call(*args: Any) -> None:
            calls.append(name)
            if len(calls) == moment:
                if name == "_write":
                    original(args[0], args[1][: len(args[1]) // 2])
                if name == "append_line":
                    with args[0].open("a", encoding="utf-8") as file:
                        file.write(args[1][: len(args[1]) // 2])
                raise failure()
            original(*args)

        return call

    with monkeypatch.context() as patch:
        for name in SEAMS:
            patch.setattr(files, name, failing(name))
        patch.setattr("regard.training.loggers.append_line", failing("append_line"))
        yield calls


FAILURES: tuple[Callable[[], BaseException], ...] = (
    Killed,
    lambda: OSError(errno.ENOSPC, "No space left"),
)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 16])
def test_an_exit_at_any_write_flush_or_rename_loses_nothing(
    every: int,
    corpus: list[Document],
    uninterrupted: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with failing_at(monkeypatch, 0) as calls:
        plan(corpus, tmp_path / "count").execute(SETTINGS)
    assert len(calls) > 40
    moments = range(1, len(calls) + 1, every)
    turns = (
        product(moments, FAILURES) if every == 1 else zip(moments, cycle(FAILURES), strict=False)
    )
    for number, (moment, failure) in enumerate(turns):
        out = tmp_path / f"killed-{number}"
        with failing_at(monkeypatch, moment, failure), pytest.raises((Killed, OSError)):
            plan(corpus, out).execute(SETTINGS)
        plan(corpus, out).execute(SETTINGS, resume=True)
        assert_same(final_state(out), uninterrupted[0])
        assert steps_and_losses(out) == uninterrupted[1]


def kill_after(step_number: int, made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, and be killed in the step after that."""
    kill_in_step(step_number + 1, lambda: made.execute(SETTINGS), monkeypatch)


def trained_steps(out: Path) -> int:
    return require_checkpoint(out).progress.step


@pytest.mark.parametrize("stop_after", [1, 4, 6])
def test_a_stop_between_checkpoints_loses_nothing(
    stop_after: int,
    corpus: list[Document],
    uninterrupted: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also before the first checkpoint and in the middle of an epoch."""
    kill_after(stop_after, plan(corpus, tmp_path / "run"), monkeypatch)
    plan(corpus, tmp_path / "run").execute(SETTINGS, resume=True)
    assert_same(final_state(tmp_path / "run"), uninterrupted[0])
    assert steps_and_losses(tmp_path / "run") == uninterrupted[1]


def test_layers_of_different_kinds_resume_to_the_bit(
    corpus: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = "gated-deltanet+forgetting+top-k{k=3,indexer_heads=2}"
    layers = ["model.n_layers=3", f"model.pattern={pattern}"]
    recipe = override(
        RECIPES["demo"], [*TINY, *layers, "training.steps=5", "training.checkpoint_every=3"]
    )
    run = require_exact_resume(
        lambda out: plan_pretraining(corpus, out, recipe), tmp_path, 5, monkeypatch
    )
    assert_same(final_state(run), final_state(tmp_path / "whole"))


@pytest.mark.parametrize(("number", "steps"), [(signal.SIGTERM, 2), (signal.SIGINT, 7)])
def test_a_request_to_stop_saves_and_says_how_to_go_on(
    number: signal.Signals,
    steps: int,
    corpus: list[Document],
    uninterrupted: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler, original = signal.getsignal(number), optimizers.clip_gradients

    def pressing(*args: Any) -> float:
        if args[3] == steps:
            signal.raise_signal(number)
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(step, "clip_gradients", pressing)
        with pytest.raises(InterruptedTraining, match="--resume") as stopped:
            plan(corpus, tmp_path / "run").execute(SETTINGS)
    assert stopped.value.exit_code == 130
    assert signal.getsignal(number) == handler
    assert trained_steps(tmp_path / "run") == steps
    plan(corpus, tmp_path / "run").execute(SETTINGS, resume=True)
    assert_same(final_state(tmp_path / "run"), uninterrupted[0])


@pytest.mark.parametrize(
    ("where", "value"), [("loss", float("nan")), ("loss", float("inf")), ("gradient", float("inf"))]
)
def test_bad_numbers_stop_before_they_do_harm(
    where: str,
    value: float,
    corpus: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = plan(corpus, tmp_path / "run")
    before: dict[str, torch.Tensor] = {}
    original = step.accumulate_gradients

    def poisoned(*args: Any, **kwargs: Any) -> float:
        loss = original(*args, **kwargs)
        seen.append(loss)
        if len(seen) == 5:
            parameters = dict(made.run.model.named_parameters())
            before.update({name: p.detach().clone() for name, p in parameters.items()})
            if where == "loss":
                return value
            gradient = parameters["body.layers.0.feed_forward.up_proj.weight"].grad
            assert gradient is not None
            gradient[0, 0] = value
        return loss

    seen: list[float] = []
    monkeypatch.setattr(step, "accumulate_gradients", poisoned)
    named = "up_proj.weight" if where == "gradient" else "loss"
    with pytest.raises(NonFiniteError, match=rf"step 5: .*{named}"):
        made.execute(SETTINGS)
    for name, parameter in made.run.model.named_parameters():
        assert torch.equal(parameter, before[name])
    assert trained_steps(tmp_path / "run") == 4
    assert all(tensor.isfinite().all() for tensor in final_state(tmp_path / "run").values())


def test_a_bad_validation_loss_leaves_the_last_checkpoint_alone(
    corpus: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([1.0, float("nan")])
    monkeypatch.setattr(Validation, "_loss", lambda *_: next(losses))
    with pytest.raises(NonFiniteError, match="step 6: validation"):
        plan(corpus, tmp_path / "run").execute(SETTINGS)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").glob("[0-9]*")] == ["3"]


def test_another_text_is_not_resumed(corpus: list[Document], tmp_path: Path) -> None:
    """Even where the tokenizer is the same, as it is for the same sentences in another order."""
    plan(corpus, tmp_path / "run").execute(SETTINGS)
    with pytest.raises(UserError, match="fingerprint was"):
        plan(corpus[::-1], tmp_path / "run").execute(SETTINGS, resume=True)


def test_another_thread_count_warns_where_something_is_left_to_train(
    corpus: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, threads = tmp_path / "run", torch.get_num_threads()
    kill_after(4, plan(corpus, out), monkeypatch)
    try:
        torch.set_num_threads(threads + 1)
        with pytest.warns(UserWarning, match=rf"threads was {threads} and is {threads + 1}"):
            plan(corpus, out).execute(SETTINGS, resume=True)
        torch.set_num_threads(threads)
        plan(corpus, out).execute(SETTINGS, resume=True)  # warns of nothing: all is done
    finally:
        torch.set_num_threads(threads)


def test_early_stopping_waits_for_patience_and_keeps_the_best(
    corpus: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.6, 1.0])
    monkeypatch.setattr(Validation, "_loss", lambda *_: next(losses))
    recipe = override(
        RECIPES["demo"],
        [*TINY, "training.steps=50", "training.checkpoint_every=1", "training.patience=2"],
    )
    made = plan_pretraining(corpus, tmp_path / "run", recipe)
    progress = made.execute(SETTINGS)
    assert (progress.step, progress.best_step, progress.best_loss) == (4, 2, 2.0)
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(p, kept[name]) for name, p in made.run.model.named_parameters())


def test_dropout_leaves_the_global_generator_alone(corpus: list[Document], tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    plan(corpus, tmp_path / "run", steps=2).execute(SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_made_ahead_change_nothing(
    corpus: list[Document], uninterrupted: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.training.loop.batches_kind", lambda _: PrefetchedBatches)
    kill_after(3, plan(corpus, tmp_path / "run"), monkeypatch)
    plan(corpus, tmp_path / "run").execute(SETTINGS, resume=True)
    assert_same(final_state(tmp_path / "run"), uninterrupted[0])


def test_resuming_needs_the_same_test_rows(tmp_path: Path) -> None:
    for name in "abc":
        table = f"text,label\ngood {name},good\nbad {name},bad\n"
        (tmp_path / f"{name}.csv").write_text(table, "utf-8")
    settings = ["training.steps=2", "model.n_layers=1", "model.n_heads=2", "model.d_model=16"]

    def train(test: str) -> None:
        api.train(
            "classification",
            tmp_path / "a.csv",
            test=tmp_path / test,
            out=tmp_path / "run",
            settings=settings,
            resume=True,
        )

    train("b.csv")
    train("b.csv")
    with pytest.raises(UserError, match="test was"):
        train("c.csv")
