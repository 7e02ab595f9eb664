"""A small encoder and decoder of sentences, and the attention of the encoder's heads."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.explorer.intercept import capture_attention
from regard.runs.run import Run
from regard.studies.model_cache import cached_run
from regard.studies.trained_models.sentences import Labeled, labeled_texts
from regard.training.plan import Plan, plan_training
from regard.training.sources.documents import DocumentSource

TEXTS = 4000
LAYERS, HEADS, WIDTH = 2, 4, 64


Steps = Annotated[int, Meta(ge=1, le=4000, description="training steps")]
"""Parameter shared by studies."""


def plan_reader(steps: int, seed: int, *, heads: int = HEADS) -> Plan:
    """Return the plan to train the encoder."""
    masks = ("template.prompt={question}", "objective.masking=0.25")
    sizes = (f"model.n_heads={heads}", f"training.steps={steps}")
    return plan_texts("masked", seed, [*masks, *sizes])


def plan_texts(recipe: str, seed: int, settings: Sequence[str]) -> Plan:
    """Return the plan to train a small model by a recipe on the texts of a seed."""
    small = (
        *("tokenizer.kind=words", "data.validation=0", "template.document={document}"),
        *(f"model.n_layers={LAYERS}", f"model.n_heads={HEADS}", f"model.d_model={WIDTH}"),
        *("model.context_length=32", f"seed={seed}"),
    )
    corpus = [text.text for text in labeled_texts(seed, "training", TEXTS)]
    settings = [*small, *settings]
    return plan_training(DocumentSource(corpus), recipe, "unused", settings=settings)


def plan_decoder(steps: int, seed: int) -> Plan:
    """Return the plan to train a decoder of the same size on the same texts."""
    return plan_texts("default", seed, [f"training.steps={steps}"])


def trained_reader(steps: int, seed: int, *, heads: int = HEADS) -> Run:
    """Return the trained encoder."""
    return cached_run(plan_reader(steps, seed, heads=heads))


class Row(NamedTuple):
    """A text with a masked word."""

    ids: list[int]
    place: int
    """Place of the mask."""
    other: int
    """Place of the word that determines the masked one."""
    target: int
    """Id of the masked word."""


def masked_rows(run: Run, texts: Sequence[Labeled], relation: str) -> list[Row]:
    """Return each text with one dependent of the relation masked."""
    rows, mask = [], run.tokenizer.special.require("mask")
    for text in texts:
        ids = run.tokenizer.encode(text.text)
        for dependent, other in text.pairs[relation]:
            masked = [*ids[:dependent], mask, *ids[dependent + 1 :]]
            rows.append(Row(masked, dependent, other, ids[dependent]))
    return rows


def weights_of(run: Run, rows: Sequence[Row]) -> list[Float[Tensor, "heads keys"]]:
    """Return the attention weights from the mask of each row, of all heads layer by layer."""
    return [
        torch.cat([layer.weights[0, :, row.place] for layer in capture_attention(run.model, ids)])
        for row, ids in ((row, torch.tensor([row.ids])) for row in rows)
    ]


def hits(run: Run, rows: Sequence[Row]) -> Bool[Tensor, "rows heads"]:
    """Return whether each head's largest weight is on the word that determines the masked one."""
    attended = torch.stack([weights.argmax(-1) for weights in weights_of(run, rows)])
    return attended == torch.tensor([row.other for row in rows])[:, None]
