"""An encoder that reads labeled texts, and where its heads look."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.config import override
from regard.explorer.intercept import capture_attention
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.model_cache import cached_run
from regard.studies.trained_models.sentences import Labeled, labeled_texts
from regard.text.corpus import Document
from regard.training.plan import Plan, plan_pretraining

TEXTS = 4000
LAYERS, HEADS, WIDTH = 2, 4, 64


def reader_recipe(steps: int, seed: int) -> Recipe:
    """A small encoder that is trained by masked tokens."""
    return override(
        RECIPES["masked"],
        [
            *("tokenizer.kind=words", "data.validation=0"),
            *("template.document={document}", "template.prompt={question}"),
            *(f"model.n_layers={LAYERS}", f"model.n_heads={HEADS}", f"model.d_model={WIDTH}"),
            *(
                "objective.masking=0.25",
                "model.context_length=32",
                f"pretraining.steps={steps}",
                f"seed={seed}",
            ),
        ],
    )


def plan_reader(steps: int, seed: int) -> Plan:
    """Its training on texts of the seed."""
    texts = labeled_texts(seed, "training", TEXTS)
    corpus = [Document(text.text, f"text {i}") for i, text in enumerate(texts, 1)]
    return plan_pretraining(corpus, Path("unused"), reader_recipe(steps, seed))


def trained_reader(steps: int, seed: int) -> Run:
    """The trained one."""
    return cached_run(plan_reader(steps, seed))


Row = tuple[list[int], int, int]
"""Ids with a mask, the mask's place, and the place that it depends on."""


def masked_rows(run: Run, texts: Sequence[Labeled], relation: str) -> list[Row]:
    """Each text with one dependent of the relation masked."""
    rows, mask = [], run.tokenizer.special.require("mask")
    for text in texts:
        ids = run.tokenizer.encode(text.text)
        for dependent, other in text.pairs[relation]:
            rows.append(([*ids[:dependent], mask, *ids[dependent + 1 :]], dependent, other))
    return rows


def weights_of(run: Run, rows: Sequence[Row]) -> list[Float[Tensor, "heads keys"]]:
    """Of each row, what all heads, layer by layer, give to each key at the mask."""
    return [
        torch.cat([layer.weights[0, :, place] for layer in capture_attention(run.model, ids)])
        for ids, place in ((torch.tensor([ids]), place) for ids, place, _ in rows)
    ]


def found(run: Run, rows: Sequence[Row]) -> Bool[Tensor, "rows heads"]:
    """Whether the largest weight of each head lies where the mask depends on."""
    looked = torch.stack([weights.argmax(-1) for weights in weights_of(run, rows)])
    return looked == torch.tensor([other for _, _, other in rows])[:, None]
