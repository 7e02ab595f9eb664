"""Masked tokens with and without their position."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.data import IGNORE
from regard.data.masked import mask_all
from regard.errors import UserError
from regard.models.builders import MaskedLanguageModel
from regard.models.config import EncoderConfig
from regard.positions.config import PositionsConfig
from regard.studies.figure import figure, heat_map
from regard.studies.finding import at_least, at_most
from regard.studies.positions.permutation import KINDS
from regard.studies.random_models import untrained
from regard.studies.study import EvidenceParts, Seed, study
from regard.text.config import WordsConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer

Kind = Literal["sinusoidal", "learned", "rotary"]
Scores = Float[Tensor, "masks vocabulary"]
ROUNDING, SEEN = 1e-10, 0.01
"""Bounds of rounding errors in float64 for scores of about 1, and of a relevant difference."""
DRAWN = 12
"""Maximum number of masks in the figure."""


@study()
def masked_autoencoder(
    text: Annotated[str, Meta(min_length=1, max_length=1000)] = (
        "the man chased the dog and the dog chased the cat"
    ),
    masking: Annotated[float, Meta(gt=0, lt=1)] = 0.4,
    positions: Kind = "sinusoidal",
    layers: Annotated[int, Meta(ge=1, le=6)] = 2,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Does a mask replace the position of a token too?

    No. If it did, all masks of a text would have the same output, whatever the weights and the
    hidden tokens. With positions, each mask has its own output, which depends on the tokens on both
    sides.

    $$ z_i = z_j = e_{mask} \Rightarrow f(z)_i = f(z)_j, \quad z_i = e_{mask} + p_i \ne z_j $$

    The outputs of a random encoder at its masks are compared, with their positions and without.

    Figure. Prediction at each mask, one row per mask. With positions the rows differ; with the
    positions dropped too they are {same}.

    Args:
        text: input text
        masking: share of words to hide
        positions: position encoding of the model
        layers: number of layers
    """
    tokenizer, ids, labels = _hidden(text, masking, seed)
    row, hidden = torch.tensor([ids]), torch.tensor([label != IGNORE for label in labels])
    model = bidirectional(tokenizer.size, len(ids), layers, KINDS[positions], seed)
    kept = model(row)[0, hidden]
    with without_positions(model, hidden):
        dropped = model(row)[0, hidden]
    behind = [tokenizer.decode([label]) for label in labels if label != IGNORE]
    yield at_most("gap between masks, positions dropped too", gap(dropped), ROUNDING)
    yield at_least("gap between masks, positions kept", gap(kept), SEEN)
    other = row.clone()
    other[0, -1] = (row[0, -1] + 1) % model.body.embedding.num_embeddings
    change = float((model(other) - model(row))[0, 0].abs().max())
    yield at_least("change of the first output by the last word", change, SEEN)
    axes: dict[str, Any] = {"x": "predicted token", "y": "mask of", "rows": behind[:DRAWN]}
    maps = {"positions kept": kept, "positions dropped too": dropped}
    panels = []
    for title, scores in maps.items():
        chances = scores[:DRAWN].softmax(-1)
        most = float(chances.max())
        panels.append(heat_map(chances, title=title, most=most, unit="probability", **axes))
    same = "the same" if gap(dropped[:DRAWN]) < ROUNDING else "not the same"
    yield figure(*panels, same=same)


@contextmanager
def without_positions(model: MaskedLanguageModel, hidden: Bool[Tensor, " n"]) -> Iterator[None]:
    """Remove the position vectors of hidden tokens, if the model has any."""
    if model.body.absolute is None:
        yield
        return

    def drop(_module: object, _read: object, vectors: Tensor) -> Tensor:
        return vectors.masked_fill(hidden[:, None], 0.0)

    handle = model.body.absolute.register_forward_hook(drop)
    try:
        yield
    finally:
        handle.remove()


def gap(scores: Scores) -> float:
    """Return the largest difference between masks in the score of one token."""
    return float((scores.amax(0) - scores.amin(0)).max())


def _hidden(text: str, masking: float, seed: int) -> tuple[Tokenizer, list[int], list[int]]:
    """Return a tokenizer, the ids of a text with some words masked, and labels at the masks.

    Raises:
        UserError: fewer than two words are hidden.
    """
    tokenizer = train_tokenizer(WordsConfig(), [text])
    document = tokenizer.encode(text)
    mask = tokenizer.special.require("mask")
    ids, labels = mask_all(document, np.random.default_rng(seed), mask=mask, share=masking)
    masks = ids.count(mask)
    if masks < 2:
        raise UserError(
            f"masked-autoencoder: masking = {masking:g} of {len(ids)} words hides {masks}, "
            "but at least two are compared; use a larger share, or a longer text"
        )
    return tokenizer, ids, labels


def bidirectional(
    vocabulary: int, n: int, layers: int, positions: PositionsConfig, seed: int
) -> MaskedLanguageModel:
    """Return an encoder with random weights and a masked language modeling head."""
    sizes: dict[str, Any] = {"context_length": max(n, 8), "n_layers": layers, "d_model": 32}
    config = EncoderConfig(n_heads=4, dropout=0.0, positions=positions, **sizes)
    return untrained(partial(MaskedLanguageModel, config, vocabulary), seed)
