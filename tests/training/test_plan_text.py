"""Training on texts: tokens on disk, held-out documents, and what a resumed plan reads again."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import product
from math import exp
from pathlib import Path

import pytest
import torch

from plans import plan_text
from refusals import refusal
from regard.api import evaluate
from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.evaluation.perplexity import TextScore
from regard.files import held_alone
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.text import packed
from regard.training.plan import Plan
from regard.training.sources import text as text_source
from tiny_tasks import CPU, SETTINGS

TINY = ["context_length=16", "n_layers=1", "n_heads=2", "d_model=8"]
STEPS = ["steps=2", "batch=2", "checkpoint_every=1", "log_every=1"]

FAILING = """from regard.attention import Softmax


class Mine(Softmax):
    name = "mine"

    def __init__(self):
        raise ValueError("no")
"""


def recipe(*settings: str) -> Recipe:
    tiny = [*(f"model.{size}" for size in TINY), *(f"training.{one}" for one in STEPS)]
    return override(RECIPES["text"], [*tiny, *settings])


def text_of(plan: Plan) -> str:
    stream = plan.sampler._datasets[0]._stream  # type: ignore[attr-defined]
    return plan.run.tokenizer.decode(stream.read(0, len(stream)).tolist())


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"Document {i} is a line.\n" for i in range(200)), "utf-8")
    return path


def test_documents_are_held_out_by_the_seed(lines: Path, tmp_path: Path) -> None:
    plan = plan_text(lines, tmp_path / "run", recipe())
    assert plan.data.facts["documents"] == "200 lines (detected; --documents chooses)"
    assert plan.run.recipe.data.documents == "lines"
    kept = text_of(plan).split("<sep>")
    assert len(kept) == 196  # one of 50 is held out
    again = plan_text(lines, tmp_path / "again", recipe())
    other = plan_text(lines, tmp_path / "other", recipe("seed=1"))
    assert text_of(again) == text_of(plan) != text_of(other)


def test_of_one_document_the_end_is_held_out(tmp_path: Path) -> None:
    text = "word " * 100
    (tmp_path / "a.txt").write_text(text, "utf-8")
    plan = plan_text(tmp_path / "a.txt", tmp_path / "run", recipe("data.validation=0.2"))
    assert text_of(plan) == text[:400]
    assert plan.data.facts["validation_tokens"] == 100


def test_the_share_of_documents_is_held_out() -> None:
    for share in (0.02, 0.3, 0.4, 0.9):
        held_out = packed.held_out_documents(share, 0)
        assert sum(map(held_out, range(1000))) == round(1000 * share), share
        assert not held_out(0)


def test_one_document_of_each_block_is_held_out() -> None:
    for share, seed in product((0.02, 0.1, 1 / 3, 0.5), range(20)):
        size, held_out = round(1 / share), packed.held_out_documents(share, seed)
        chosen = [index for index in range(20 * size) if held_out(index)]
        assert [index // size for index in chosen] == list(range(20)), share
        assert chosen[0] == size - 1


def cut_all(data: bytearray) -> None:
    data.clear()


def flip_bit(data: bytearray) -> None:
    data[len(data) // 2 & ~1] ^= 1


def test_a_text_that_is_too_short_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "short.txt", tmp_path / "run"
    path.write_text("ab")
    for share in (0.5, 0.6):
        with refusal(UserError, rf"^{path}: is too short to learn from; give a longer text"):
            plan_text(path, out, recipe(f"data.validation={share}"))
        assert not out.exists()
    with pytest.warns(UserWarning, match="has 2 training tokens"):
        plan_text(path, out, recipe("data.validation=0"))


def test_damaged_tokens_are_named(lines: Path, tmp_path: Path) -> None:
    plan_text(lines, tmp_path / "run", recipe())
    damages: tuple[tuple[str, Callable[[bytearray], None]], ...] = (
        ("training.bin", cut_all),
        ("training.bin", flip_bit),
        ("training.starts", flip_bit),
    )
    for name, damage in damages:
        path = tmp_path / "run/tokens" / name
        whole = path.read_bytes()
        data = bytearray(whole)
        damage(data)
        path.write_bytes(data)
        with refusal(UserError, r"run/tokens: is damaged .* delete it", damage.__name__):
            plan_text(lines, tmp_path / "run", recipe())
        path.write_bytes(whole)


def test_no_text_stops_a_training(tmp_path: Path) -> None:
    """What the vocabulary lacks is written in bytes, in held-out text and in prompts too."""
    path = tmp_path / "a.txt"
    path.write_text("plain text, " * 50 + "□ 😀 <0x41>", "utf-8")
    plan = plan_text(path, tmp_path / "run", recipe("data.validation=0.1"))
    tokenizer = plan.run.tokenizer
    for text in ("□⁇😀", "ж漢\0", "<0x41> <□>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokens_are_read_again(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    first = plan_text(lines, out, recipe())
    with monkeypatch.context() as patched:
        patched.setattr(text_source, "pack_corpus", pytest.fail)
        patched.setattr(packed, "inspect_file", pytest.fail)
        assert text_of(plan_text(lines, out, recipe())) == text_of(first)
    lines.write_text(lines.read_text("utf-8") + "One more.\n", "utf-8")
    assert "One more." in text_of(plan_text(lines, out, recipe()))


def test_a_resumed_run_does_not_tokenize_again(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither text nor tokens are written or read as a whole; an interrupted training goes on."""
    out = tmp_path / "run"
    plan_text(lines, out, recipe()).execute(SETTINGS)
    written = {path: path.stat().st_mtime_ns for path in (out / "tokens").iterdir()}
    shutil.rmtree(out / "checkpoints")
    monkeypatch.setattr(text_source, "pack_corpus", pytest.fail)
    monkeypatch.setattr(packed, "inspect_file", pytest.fail)
    monkeypatch.setattr(packed, "read_pieces", pytest.fail)
    progress = plan_text(lines, out, recipe()).execute(SETTINGS, resume=True)
    assert progress.step == plan_text(lines, out, recipe()).sampler.steps
    assert {path: path.stat().st_mtime_ns for path in (out / "tokens").iterdir()} == written


def test_a_run_of_another_text_is_left_alone(lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    plan_text(lines, out, recipe()).execute(SETTINGS)
    lines.write_text("Another text.\n" * 100, "utf-8")
    with pytest.raises(UserError, match="holds a run of other texts"):
        plan_text(lines, out, recipe())


def test_two_trainings_do_not_tokenize_to_one_folder(lines: Path, tmp_path: Path) -> None:
    with held_alone(tmp_path / "run/tokens"), pytest.raises(UserError, match="is writing it; wait"):
        plan_text(lines, tmp_path / "run", recipe())
    assert list((tmp_path / "run").iterdir()) == []


def test_tokens_replaced_after_the_plan_are_left_alone(lines: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "run", tmp_path / "other.txt"
    other.write_text("Another text.\n" * 100, "utf-8")
    first, second = plan_text(lines, out, recipe()), plan_text(other, out, recipe())
    with pytest.raises(UserError, match="tokens: another command has replaced these tokens"):
        first.execute(SETTINGS)
    assert not (out / "config.toml").exists()
    second.execute(SETTINGS)
    assert "Another text." in text_of(plan_text(other, out, recipe()))


def test_what_a_kill_has_left_of_a_beginning_is_removed(lines: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "run", os.getpid() + 1
    plan = plan_text(lines, out, recipe())
    (out / f".config.toml.{other}.partial").write_text("format = 1", "utf-8")
    (out / ".tokens.partial").mkdir()
    plan.execute(SETTINGS)
    assert not list(out.glob(".*.partial"))


@pytest.mark.parametrize(
    "name", ["tokens/mine.txt", ".converted.partial/config.toml", "tokenizer_config.json"]
)
def test_files_of_others_are_left_alone(name: str, lines: Path, tmp_path: Path) -> None:
    other = tmp_path / "run" / name
    other.parent.mkdir(parents=True)
    other.write_text("mine", "utf-8")
    with pytest.raises(UserError, match="run: exists but is not a run folder; choose another"):
        plan_text(lines, tmp_path / "run", recipe()).execute(SETTINGS)
    assert other.read_text("utf-8") == "mine"


def test_tokens_are_not_replaced_while_a_run_begins(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / "run", tmp_path / "other.txt"
    other.write_text("Another text.\n" * 100, "utf-8")
    plan = plan_text(lines, out, recipe())
    with held_alone(out / "tokens"), pytest.raises(UserError, match="is writing it; wait"):
        plan.execute(SETTINGS)

    def held_after_the_beginning(folder: Path) -> AbstractContextManager[None]:
        monkeypatch.undo()
        plan.execute(SETTINGS)
        return held_alone(folder)

    monkeypatch.setattr(text_source, "held_alone", held_after_the_beginning)
    with pytest.raises(UserError, match="holds a run of other texts"):
        plan_text(other, out, recipe())
    assert "is a line" in text_of(plan_text(lines, out, recipe()))


def test_tokens_replaced_before_they_are_opened_are_refused(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, other = tmp_path / "run", tmp_path / "other.txt"
    other.write_text("Another text.\n" * 100, "utf-8")
    plan_text(lines, out, recipe())

    def open_replaced(folder: Path) -> packed.PackedCorpus:
        monkeypatch.undo()
        plan_text(other, out, recipe())
        return packed.open_packed(folder)

    monkeypatch.setattr(text_source, "open_packed", open_replaced)
    with pytest.raises(UserError, match="tokens: another command has replaced these tokens"):
        plan_text(lines, out, recipe())


def test_a_failed_tokenization_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{', "utf-8")
    with pytest.raises(UserError, match=r"a\.jsonl:2"):
        plan_text(tmp_path / "a.jsonl", tmp_path / "run", recipe())
    assert not (tmp_path / "run").exists()


def test_a_model_is_refused_before_the_tokenization(lines: Path, tmp_path: Path) -> None:
    mechanism = tmp_path / "mine.py"
    mechanism.write_text(FAILING, "utf-8")
    with pytest.raises(UserError, match="Mine can't be built"):
        plan_text(lines, tmp_path / "run", recipe(f"model.attention.kind={mechanism}:Mine"))
    assert not (tmp_path / "run").exists()


def test_checkpoints_report_perplexity_and_a_sample(lines: Path, tmp_path: Path) -> None:
    plan = plan_text(lines, tmp_path / "run", recipe())
    plan.execute(SETTINGS)
    lines_written = (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines_written]
    assert all(record["perplexity"] > 1 and record["sample"] for record in records)


def test_a_perplexity_beyond_the_largest_float_is_not_reported() -> None:
    assert text_source.perplexity_record({"validation_loss": 2.0}) == {"perplexity": exp(2.0)}
    assert text_source.perplexity_record({"validation_loss": 710.0}) == {}


def test_the_tokenizer_sees_a_sample_of_a_large_text(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = plan_text(lines, tmp_path / "whole", recipe("tokenizer.kind=words"))
    monkeypatch.setattr(packed, "SAMPLE_BYTES", 500)
    words = recipe("tokenizer.kind=words", "tokenizer.unknown=unk")
    sampled = plan_text(lines, tmp_path / "run", words)
    assert sampled.run.tokenizer.size < whole.run.tokenizer.size / 2
    assert sampled.data.facts["training_tokens"] == whole.data.facts["training_tokens"]


def test_records_beside_other_documents_are_said(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"text": "A record."}\n', "utf-8")
    files = [lines, tmp_path / "more.jsonl"]
    facts = plan_text(files, tmp_path / "run", recipe()).data.facts
    assert " lines and records (detected" in facts["documents"]
    with pytest.raises(UserError, match=r"lines\.txt: has no records with a field 'body'"):
        plan_text(lines, tmp_path / "new", recipe("data.table.text=body"))


def test_an_estimate_is_of_all_steps(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the memory where it is unknown: on Windows it is NaN, for which JSON has no form."""
    plan = plan_text(lines, tmp_path / "run", recipe("training.steps=7200"))
    needs = plan.estimate(CPU)
    assert needs["hours"] == pytest.approx(2 * needs["seconds_per_step"])
    assert needs["memory_mb"] > 0
    monkeypatch.setattr("regard.training.plan.peak_memory_mb", lambda _: float("nan"))
    assert plan.estimate(CPU).keys() == {"seconds_per_step", "hours"}


def test_an_estimate_in_float64_is_of_float64_weights(lines: Path, tmp_path: Path) -> None:
    plan = plan_text(lines, tmp_path / "run", recipe())
    plan.estimate(ExecutionEnvironment.choose("cpu", "float64"))
    assert {parameter.dtype for parameter in plan.run.model.parameters()} == {torch.float64}


def test_a_run_is_scored_on_its_held_out_tokens(lines: Path, tmp_path: Path) -> None:
    plan = plan_text(lines, tmp_path / "run", recipe("data.validation=0.1"))
    progress = plan.execute(SETTINGS)
    score = evaluate(plan.run)
    assert isinstance(score, TextScore)
    assert score.perplexity.value == pytest.approx(exp(progress.best_loss or 0), rel=1e-5)
    assert score.tokens == plan.data.facts["validation_tokens"] - 1
    unread = plan_text(lines, tmp_path / "all", recipe("data.validation=0"))
    unread.execute(SETTINGS)
    with pytest.raises(UserError, match="has no task and no held-out text; name a file"):
        evaluate(unread.run)


def test_a_run_is_scored_on_texts_like_its_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        record = '{"body": "A document of some length."}\n'
        (tmp_path / "in" / f"{name}.jsonl").write_text(record * 30, "utf-8")
    plan = plan_text(tmp_path / "in", tmp_path / "run", recipe("data.table.text=body"))
    plan.execute(SETTINGS)
    whole, one = (evaluate(plan.run, tmp_path / name) for name in ("in", "in/a.jsonl"))
    assert isinstance(whole, TextScore)
    assert isinstance(one, TextScore)
    assert whole.tokens == 2 * one.tokens > 0
    assert whole.perplexity.value == pytest.approx(one.perplexity.value)
