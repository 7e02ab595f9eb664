"""lm-evaluation-harness scores a run, by the tasks of the docs, as Regard does."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.config import override
from regard.evaluation.perplexity import text_perplexity
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.text.corpus import read_corpus
from regard.text.tokenizer import train_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs lm-eval, of the extra eval"),
]

DOCS = Path(__file__).parents[2] / "docs/hugging-face.md"
TEXTS = ["Ada was born in Oslo.", "Otto lives in Rome.", "Mira is a baker."]
CHOICES = [
    {"question": "Ada was born in", "choices": ["Oslo", "Rome"], "answer": 0},
    {"question": "Otto lives in", "choices": ["Oslo", "Rome"], "answer": 1},
    {"question": "Mira is a", "choices": ["baker", "Rome"], "answer": 0},
]


def make_run(path: Path) -> Run:
    """A run whose weights are so large that its numbers are far from uniform."""
    settings = [
        *("model.n_layers=1", "model.n_heads=2", "model.d_model=16", "model.context_length=32"),
        *("data.documents=lines", 'template.document="{bos}{document}"'),
    ]
    recipe = override(RECIPES["text"], settings)
    run = Run.new(path, recipe, train_tokenizer(recipe.tokenizer, TEXTS), {"stage": "none"})
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.mul_(4)
    run.save_description()
    run.save_weights()
    run.model.eval()
    return run


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def harness(folder: Path, task: str, model_args: str) -> tuple[dict[str, float], list[Any]]:
    """The scores of a task, and the log-likelihoods of each record."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    flags = ["--model", "hf", "--model_args", model_args, "--device", "cpu"]
    flags += ["--include_path", "tasks", "--tasks", task, "--output_path", task, "--log_samples"]
    command = [sys.executable, "-m", "lm_eval", *flags]
    subprocess.run(command, cwd=folder, env=os.environ | offline, check=True, timeout=300)
    (results,) = folder.glob(f"{task}/*/results_*.json")
    (samples,) = folder.glob(f"{task}/*/samples_*.jsonl")
    lines = map(json.loads, samples.read_text("utf-8").splitlines())
    rows = sorted(lines, key=lambda row: row["doc_id"])
    scores: dict[str, float] = json.loads(results.read_text("utf-8"))["results"][task]
    return scores, [row["filtered_resps"] for row in rows]


@torch.inference_mode()
def log_likelihood(run: Run, text: str, continuation: str) -> float:
    """Of a continuation of a text in the run's template."""
    before, _ = run.encode(text)
    after = run.tokenizer.encode(continuation)
    logits = run.language_model(torch.tensor([[*before, *after][:-1]]))[0, len(before) - 1 :]
    return float(logits.log_softmax(-1).gather(1, torch.tensor(after)[:, None]).sum())


def test_the_harness_gives_our_numbers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    write_jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    write_jsonl(tmp_path / "choices.jsonl", CHOICES)
    (tmp_path / "tasks").mkdir()
    for task in re.findall(
        r"```yaml\n(task: (?:choices|texts)\n.*?)```", DOCS.read_text("utf-8"), re.S
    ):
        (tmp_path / "tasks" / f"{task.split()[1]}.yaml").write_text(task, "utf-8")
    results, found = harness(tmp_path, "choices", "pretrained=run,trust_remote_code=True")
    ours = [
        [log_likelihood(run, str(one["question"]), f" {choice}") for choice in one["choices"]]  # type: ignore[attr-defined]
        for one in CHOICES
    ]
    for theirs, own in zip(found, ours, strict=True):
        assert [float(score) for score, _ in theirs] == pytest.approx(own, rel=1e-5)
    right = [row.index(max(row)) == one["answer"] for row, one in zip(ours, CHOICES, strict=True)]
    assert results["acc,none"] == pytest.approx(sum(right) / len(right))

    options = "pretrained=run,trust_remote_code=True,add_bos_token=False"
    results, _ = harness(tmp_path, "texts", options)
    score = text_perplexity(run, read_corpus(TEXTS), run.environment())
    assert results["bits_per_byte,none"] == pytest.approx(score.bits_per_character, rel=1e-5)
    assert score.tokens == sum(map(len, TEXTS))
