"""Self-supervised learning from raw text: masked tokens, and labels that are parts of the text."""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.data import IGNORE
from regard.data.batch import RowFormat, sequential_batches
from regard.data.causal import Documents
from regard.data.masked import mask_all, mask_tokens
from regard.errors import UserError
from regard.models.builders import MaskedLanguageModel
from regard.models.config import EncoderConfig
from regard.positions.config import PositionsConfig
from regard.studies.figure import Line, bar_chart, figure, heat_map
from regard.studies.finding import at_least, at_most, equal, table
from regard.studies.positions.permutation import KINDS
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import untrained
from regard.text.config import CharactersConfig, SpecialTokensConfig, WordsConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer

ROUNDING, SEEN = 1e-10, 0.01
"""Bounds of rounding errors in float64 for scores of about 1, and of a relevant difference."""
DRAWN = 12
"""Maximum number of masks in the figure."""
TEXT = (
    "The harbour lay still when the old boat came home. Nobody had seen it leave, and nobody "
    "knew the woman who stood at its bow. She threw a rope over the nearest post, looked up at "
    "the houses above the harbour, and laughed. The children were the first to come down the "
    "steps. They asked where she had been, and she told them of a town behind the sea in which "
    "the streets were made of water and the people slept in the afternoon. The old men did not "
    "believe her. But the children went home and drew the town behind the sea, and in the "
    "evening the whole harbour was full of little boats made of paper."
)
MASK, FIRST = 1, 2
"""Ids of the mask and of the first character."""
SHOWN = 40
"""Number of tokens of each example in the table."""


@study()
def masked_autoencoder(
    text: Annotated[str, Meta(min_length=1, max_length=1000)] = (
        "the man chased the dog and the dog chased the cat"
    ),
    masking: Annotated[float, Meta(gt=0, lt=1)] = 0.4,
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal",
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
    row, hidden = torch.tensor([ids]), torch.tensor(labels) != IGNORE
    model = bidirectional(tokenizer.size, len(ids), layers, KINDS[positions], seed)
    kept = model(row)[0, hidden]
    with without_positions(model, hidden):
        dropped = model(row)[0, hidden]
    yield at_most("gap between masks, positions dropped too", gap(dropped), ROUNDING)
    yield at_least("gap between masks, positions kept", gap(kept), SEEN)
    other = row.clone()
    other[0, -1] = (row[0, -1] + 1) % model.body.embedding.num_embeddings
    change = (model(other) - model(row))[0, 0].abs().max()
    yield at_least("change of the first output by the last word", change, SEEN)
    behind = [tokenizer.decode([label]) for label in labels if label != IGNORE][:DRAWN]
    axes: dict[str, Any] = {"x": "predicted token", "y": "mask of", "rows": behind}
    panels = []
    for title, scores in {"positions kept": kept, "positions dropped too": dropped}.items():
        chances = scores[:DRAWN].softmax(-1)
        most = float(chances.max())
        panels.append(heat_map(chances, title=title, most=most, unit="probability", **axes))
    same = "the same" if gap(dropped[:DRAWN]) < ROUNDING else "not the same"
    yield figure(*panels, same=same)


def without_positions(
    model: MaskedLanguageModel, hidden: Bool[Tensor, " n"]
) -> AbstractContextManager[object]:
    """Remove the position vectors of hidden tokens, if the model has any."""
    if model.body.absolute is None:
        return nullcontext()
    return model.body.absolute.register_forward_hook(
        lambda _, __, vectors: vectors.masked_fill(hidden[:, None], 0.0)
    )


def gap(scores: Float[Tensor, "masks vocabulary"]) -> float:
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


@study()
def free_labels(
    text: Annotated[str, Meta(min_length=40, max_length=5000)] = TEXT,
    masking: Annotated[float, Meta(gt=0, le=1)] = 0.15,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Are novels useful for pretraining, though they have no labels?

    Yes: the labels are parts of the text. Each token except the first is the label for the tokens
    before it; each masked token is the label for the tokens around it. A model trained on these
    labels predicts held-out text better than a guess.

    $$ \text{next token: } (x_1 \ldots x_i) \to x_{i+1}, \quad \text{masked token: } \tilde{x} \to
    x_i $$

    A model counts which character follows which in three quarters of the text, and predicts the
    last quarter.

    Figure. Loss on the last quarter of the text, which is held out, of predictions by the frequency
    of single characters and by the frequency of pairs. Dotted: all characters are equally likely.

    Args:
        text: raw text
        masking: share of tokens to choose
    """
    special = SpecialTokensConfig(bos="", eos="", sep="", mask="<mask>")
    tokenizer = train_tokenizer(CharactersConfig(special_tokens=special), [text])
    document, regular = tokenizer.encode(text), tokenizer.regular_ids
    row = Documents([document], RowFormat(len(document) - 1, 0))  # the text in one row
    examples, rng = next(sequential_batches(row, 1)), np.random.default_rng(seed)
    masked, labels = mask_tokens(document, rng, mask=MASK, regular_ids=regular, share=masking)
    chosen = np.array(labels) != IGNORE
    shifted = np.mean(examples.labels[0].numpy() == document[1:])
    right = np.mean(np.equal(labels, document)[chosen])
    losses = held_out_losses(document, len(regular))
    yield equal("next-token labels", examples.n_targets, len(document) - 1)
    yield equal("share of next-token labels that are the next token", shifted, 1)
    count = max(1, round(masking * len(document)))
    yield equal("masked-token labels per draw", chosen.sum(), count)
    yield equal("share of masked-token labels that are the masked token", right, 1)
    yield at_most("loss of pairs on held-out text", losses["pairs"], losses["guess"])
    marked = "".join("·" if i == IGNORE else tokenizer.decode([i]) for i in labels[:SHOWN])
    rows = [
        ("next token", *(tokenizer.decode(document[i : i + SHOWN]) for i in (0, 1))),
        ("masked tokens", tokenizer.decode(masked[:SHOWN]), marked),
    ]
    yield table(["objective", "input", "labels"], rows)
    yield bar_chart({"": losses}, Line(y=losses["guess"]), y="loss per character, nats")


def held_out_losses(document: list[int], vocabulary: int) -> dict[str, float]:
    """Return the mean losses in nats on the last quarter, of a guess and of counts before it."""
    numbers = np.array(document) - FIRST
    cut = len(numbers) * 3 // 4
    training, held_out = numbers[:cut], numbers[cut:]
    follows = np.zeros((vocabulary, vocabulary))
    np.add.at(follows, (training[:-1], training[1:]), 1)

    def loss(counts: Float[np.ndarray, "before after"]) -> float:
        """Return the mean loss of predicting by counts, each plus one."""
        chances = (counts + 1) / (counts + 1).sum(1, keepdims=True)
        return float(-np.log(chances[held_out[:-1], held_out[1:]]).mean())

    return {
        "guess": math.log(vocabulary),
        "single tokens": loss(np.broadcast_to(follows.sum(0), follows.shape)),
        "pairs": loss(follows),
    }
