"""The smallest task of each kind, and the smallest model of each family that can learn it."""

from collections.abc import Sequence
from pathlib import Path

import torch

from plans import plan_task
from regard.config import override
from regard.data.batch import Batch
from regard.environment import ExecutionEnvironment
from regard.models.builders import Model
from regard.runs.recipe import Recipe
from regard.runs.recipes import TASKS
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.training.loop import ExecutionOptions
from regard.training.step import accumulate_gradients
from tiny import BIOGRAPHIES, QUESTIONS

CPU = ExecutionEnvironment(torch.device("cpu"), torch.float32)
SETTINGS = ExecutionOptions(environment=CPU, quiet=True)

_STACK = ("n_layers=1", "n_heads=2", "d_model=16", "dropout=0", "positions.kind=rotary")
_BLOCK = "context_length=320"
_LAYERS = ("n_layers=1", "d_model=16", "dropout=0", _BLOCK)


def _family(kind: str, head: str, *settings: str) -> tuple[str, ...]:
    made = (f"model.kind={kind}", *(f"model.{setting}" for setting in settings))
    width = ("head.width=8",) if head == "embedding" else ()
    return (*made, f"head.kind={head}", *width)


_SIDES = [f"{side}.{setting}" for side in ("encoder", "decoder") for setting in (*_STACK, _BLOCK)]
CONTINUING = {
    "decoder": _family("decoder", "lm", *_STACK, _BLOCK),
    "rnn": _family("rnn", "lm", *_LAYERS),
    "fixed-window": _family("fixed-window", "lm", "size=4", "d_model=16", "d_hidden=16", _BLOCK),
}
"""Families that continue texts, which is an answer too."""
WRITING = CONTINUING | {
    "encoder-decoder": _family("encoder-decoder", "lm", *_SIDES),
    "rnn-encoder-decoder": _family("rnn-encoder-decoder", "lm", *_LAYERS),
}
"""Families that write answers."""
LABELING = {
    "encoder, classification": _family(
        "encoder", "classification", *_STACK, _BLOCK, "n_token_types=0"
    ),
    "decoder, classification": _family("decoder", "classification", *_STACK, _BLOCK),
    "rnn, classification": _family("rnn", "classification", *_LAYERS, "bidirectional=true"),
    "encoder with segments, classification": _family(
        "encoder", "classification", *_STACK, _BLOCK, "n_token_types=2"
    ),
}
EMBEDDING = {
    "encoder, embedding": _family("encoder", "embedding", *_STACK, _BLOCK),
    "decoder, embedding": _family("decoder", "embedding", *_STACK, _BLOCK),
    "rnn, embedding": _family("rnn", "embedding", *_LAYERS),
}
FAMILIES = WRITING | LABELING | EMBEDDING
"""All that learn tasks of texts with answers, but for tags."""
TAGGING = {
    "encoder, tags": _family("encoder", "token-classification", *_STACK, _BLOCK),
    "encoder with segments, tags": _family(
        "encoder", "token-classification", *_STACK, _BLOCK, "n_token_types=2"
    ),
    "decoder, tags": _family("decoder", "token-classification", *_STACK, _BLOCK),
    "rnn, tags": _family("rnn", "token-classification", *_LAYERS),
    "rnn both ways, tags": _family("rnn", "token-classification", *_LAYERS, "bidirectional=true"),
}
"""Families that tag words."""
RECONSTRUCTING = {"decoder, reconstruction": _family("decoder", "reconstruction", *_STACK, _BLOCK)}
"""Families that reconstruct a row from one hidden state."""
_ALL = FAMILIES | TAGGING | RECONSTRUCTING

_FEW = ("task.training=12", "task.test=6")
TEXT_TASKS = {
    "casing": (*_FEW, "task.shortest=4", "task.longest=8"),
    "summaries": (*_FEW, "task.people=6", "task.others=1", "task.filler=0", "task.tellings=1"),
    "translation": _FEW,
    "classification": _FEW,
    "tagging": (*_FEW, "tokenizer.kind=byte-pairs", "tokenizer.size=300"),
    "entailment": _FEW,
    "retrieval": (*_FEW, "task.people=6"),
    "world": (*_FEW, "task.people=80", "task.biographies=1"),
}
"""The settings that make a task small, by its name."""
_TOKENS = ("task.vocabulary=8", "task.length=4")
PROBES = {
    "mqar": ("task.vocabulary=8", "task.pairs=2", "task.length=8"),
    "copy": _TOKENS,
    "selective-copy": (*_TOKENS, "task.noise=3"),
    "induction": ("task.vocabulary=8", "task.length=8"),
    "sort": _TOKENS,
    "reverse": _TOKENS,
    "needle": ("task.vocabulary=8", "task.length=8"),
    "parity": ("task.length=4", "task.test_length=8"),
    "state-tracking": ("task.items=3", "task.length=4"),
    "in-context-recall": ("task.vocabulary=8", "task.length=8"),
    "noisy-recall": ("task.vocabulary=12", "task.noise_vocabulary=4", "task.length=8"),
    "fuzzy-recall": ("task.vocabulary=9", "task.length=16"),
    "memorization": ("task.vocabulary=9", "task.length=8"),
    "compression": _TOKENS,
    "repeated": ("task.vocabulary=8", "task.length=8", "task.shortest=2", "task.longest=4"),
    "indirect-object": ("task.vocabulary=8",),
    "bigram-backcopy": ("task.vocabulary=8", "task.length=8"),
}
_SHORT = (
    "tokenizer.kind=characters",
    "training.optimizer.kind=adamw",
    "training.steps=2",
    "training.batch=4",
    "training.checkpoint_every=2",
)


def examples(*pairs: tuple[str, str]) -> list[Example]:
    """Texts with answers, as from the lines of a file."""
    return [
        Example(text=text, answer=answer, where=f"my.tsv:{line}")
        for line, (text, answer) in enumerate(pairs, start=1)
    ]


def add_gradients(model: Model, batch: Batch, parts: int = 1) -> float:
    """Add the gradients of a batch's mean loss, taken in parts, and return that loss."""
    return accumulate_gradients(model.loss, batch.split(parts), batch.n_targets, CPU)


def task_settings(task: str, family: str) -> tuple[str, ...]:
    """The settings that make a task's recipe tiny, with a model of a family."""
    return (*_SHORT, *(TEXT_TASKS | PROBES)[task], *_ALL[family])


def task_recipe(task: str, family: str, *settings: str) -> Recipe:
    """The task's recipe with these settings, and more."""
    return override(TASKS[task], [*task_settings(task, family), *settings])


def sharp_run(recipe: Recipe, examples: Sequence[Example] | None = None) -> Run:
    """An untrained run whose weights are so large that its answers differ, in evaluation mode."""
    run = plan_task(Path("nowhere"), recipe, examples).run
    generator = torch.Generator().manual_seed(recipe.seed)
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            mean = float("norm" in name and name.endswith("weight"))
            parameter.copy_(mean + torch.randn(parameter.shape, generator=generator) * 0.4)
    run.model.eval()
    return run


def writer(family: str = "decoder", *settings: str) -> Run:
    """A sharp run that writes, whose tokenizer has all characters of the data of `tiny`."""
    alphabet = [Example(text=text, answer="x", where="a:1") for text in BIOGRAPHIES]
    words = [Example(text=f"{q.text} yes no", answer=q.answer, where="a:2") for q in QUESTIONS]
    return sharp_run(task_recipe("casing", family, *settings), [*alphabet, *words])


REVIEWS = tuple(
    Example(text=f"Ada was {word}", answer=label, where=f"rows:{number}")
    for number, (word, label) in enumerate([("born", "yes"), ("in Rome", "no")] * 4, 1)
)
"""Texts with labels, in characters of `writer`."""


def trained_run(out: Path, recipe: Recipe, examples: Sequence[Example] | None = None) -> Run:
    """A run that was trained for its recipe's task."""
    plan = plan_task(out, recipe, examples)
    plan.execute(SETTINGS)
    return plan.run
