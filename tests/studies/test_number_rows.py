"""Rows of numbers."""

from typing import Literal

import numpy as np
import pytest
import torch

from regard.config import override
from regard.data import IGNORE
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.studies.number_rows import accuracy, plan_numbers, tokens_of

IDS = np.array([[0, 3, 2], [1, 1, 0]])
LABELS = np.array([[IGNORE, 1, 0], [1, IGNORE, 1]])


def recipe(kind: Literal["lm", "token-classification"]) -> Recipe:
    labels = ['head.labels=["no","yes"]'] if kind == "token-classification" else []
    model = "decoder" if kind == "lm" else "encoder"
    sizes = [f"model.kind={model}", "model.n_layers=1", "model.d_model=16"]
    return override(RECIPES["default"], [*sizes, f"head.kind={kind}", *labels])


@pytest.mark.parametrize("kind", ["lm", "token-classification"])
def test_labels_are_tokens_or_classes(kind: Literal["lm", "token-classification"]) -> None:
    plan = plan_numbers(recipe(kind), {"stage": "numbers"}, 4, IDS, LABELS)
    batch = plan.sampler.batch(0)
    pairs = zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True)
    rows = {tuple(ids[:3]): tuple(labels[:3]) for ids, labels in pairs}
    (first,) = plan.run.tokenizer.encode("0")
    expected = LABELS if kind == "token-classification" else tokens_of(plan.run, LABELS)
    for ids, labels in zip(IDS, expected, strict=True):
        assert rows[tuple(ids + first)] == tuple(labels)
    assert (tokens_of(plan.run, LABELS) == IGNORE).tolist() == (LABELS == IGNORE).tolist()
    text = plan.run.tokenizer.decode(tokens_of(plan.run, IDS)[0].tolist())
    assert text.split() == ["0", "3", "2"]


def test_accuracy_leaves_out_what_is_not_asked() -> None:
    logits = torch.eye(2)[torch.tensor([[0, 1, 1], [1, 0, 0]])]
    assert accuracy(logits, torch.from_numpy(LABELS)) == pytest.approx(2 / 4)
