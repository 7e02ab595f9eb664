"""Labels from raw text: next tokens and masked tokens."""

import math
from typing import Annotated

import numpy as np
from jaxtyping import Float
from msgspec import Meta

from regard.data import IGNORE
from regard.data.batch import Batch, RowFormat, sequential_batches
from regard.data.causal import Documents
from regard.data.masked import mask_tokens
from regard.studies.figure import Chart, Figure, Line, bars
from regard.studies.finding import Evidence, Measurement, at_most, equal, table
from regard.studies.study import Seed, study
from regard.text.config import CharactersConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer

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
FATES = ("⁇", "another", "itself")
"""What a chosen token is replaced by."""


@study(
    question="Are novels useful for pretraining, though they have no labels?",
    claim="Yes: the text is its own labels. Each token except the first is a label for those "
    "before it; each masked token is one for those around it. A model trained on these "
    "predicts held-out text better than a guess.",
    formula=r"\text{next token: } (x_1 \ldots x_i) \to x_{i+1}, \quad "
    r"\text{masked token: } \tilde{x} \to x_i",
)
def free_labels(
    text: Annotated[str, Meta(min_length=40, max_length=5000, description="raw text")] = TEXT,
    masking: Annotated[float, Meta(gt=0, le=1, description="share of tokens to choose")] = 0.15,
    draws: Annotated[int, Meta(ge=10, le=400, description="times that tokens are chosen")] = 200,
    seed: Seed = 0,
) -> Evidence:
    """A novel has no annotations, but any part of it that is hidden is known. Shifted by one, the
    text is the list of right answers for a model that reads from the left: n tokens give n − 1
    labels. For a model that reads from both sides, some tokens are chosen. Of these, four fifths
    become ⁇, a tenth becomes a random token (which may happen to be the right one), and a tenth
    stays, so that the model can't rely on any token (Devlin et al., 2019).

    The simplest of models shows that the labels are useful: it counts which character follows which
    in three quarters of the text, and predicts the last quarter. A text of random letters has
    labels too, but there is nothing to learn from them. `linear-probe` shows what a Transformer
    learns from such labels.
    """
    tokenizer = train_tokenizer(CharactersConfig(), [text])
    document = tokenizer.encode(text)
    examples = next_tokens(document)
    chosen = max(1, round(masking * len(document)))
    draw = np.random.default_rng(seed)
    masked = [
        mask_tokens(document, draw, mask=MASK, regular_ids=tokenizer.regular_ids, share=masking)
        for _ in range(draws)
    ]
    labels = np.array([row for _, row in masked])
    losses = unseen_losses(document, len(tokenizer.regular_ids))
    return Evidence(
        numbers=(
            equal("next-token labels", examples.n_targets, len(document) - 1),
            equal(
                "share of them that is the next token of the text",
                np.mean(examples.labels[0].numpy() == document[1:]),
                1,
            ),
            equal("masked-token labels a draw", (labels != IGNORE).sum() / draws, chosen),
            equal(
                "share of them that is the masked token",
                np.mean((labels == document)[labels != IGNORE]),
                1,
            ),
            *_fates(document, masked, tokenizer.size),
            at_most("loss on held-out text, against a guess", losses["pairs"], losses["guess"]),
        ),
        figure=_figure(losses),
        table=table(["objective", "input", "labels"], _shown(tokenizer, document, masked[0])),
    )


def next_tokens(document: list[int]) -> Batch:
    """Return the next-token labels of a document in one row."""
    whole = Documents([document], RowFormat(len(document) - 1, 0))
    return next(sequential_batches(whole, 1))


def fate_shares(document: list[int], masked: list[tuple[list[int], list[int]]]) -> list[float]:
    """Return the shares of chosen tokens that became ⁇, another token, or stayed."""
    ids, labels = (np.array(rows) for rows in zip(*masked, strict=True))
    shown = ids[labels != IGNORE]
    there = np.broadcast_to(document, ids.shape)[labels != IGNORE]
    hidden, stayed = np.mean(shown == MASK), np.mean(shown == there)
    return [float(hidden), float(1 - hidden - stayed), float(stayed)]


def unseen_losses(document: list[int], vocabulary: int) -> dict[str, float]:
    """Return the mean loss in nats on the last quarter: of a guess, and of counts before it."""
    cut = len(document) * 3 // 4
    seen, unseen = next_tokens(document[:cut]), next_tokens(document[cut:])
    follows = _counts(seen, vocabulary)
    return {
        "guess": math.log(vocabulary),
        "single tokens": _loss(np.broadcast_to(follows.sum(0), follows.shape), unseen),
        "pairs": _loss(follows, unseen),
    }


def _counts(batch: Batch, vocabulary: int) -> Float[np.ndarray, "before after"]:
    """How often a token follows another."""
    counts = np.zeros((vocabulary, vocabulary))
    np.add.at(counts, _places(batch), 1)
    return counts


def _loss(counts: Float[np.ndarray, "before after"], batch: Batch) -> float:
    """Mean loss of predicting by counts, each plus one."""
    chances = (counts + 1) / (counts + 1).sum(1, keepdims=True)
    return float(-np.log(chances[_places(batch)]).mean())


def _places(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and labels, numbered without special tokens."""
    ids, labels = batch.input_ids[0], batch.labels[0]
    return ids.numpy() - FIRST, labels.numpy() - FIRST


def _fates(
    document: list[int], masked: list[tuple[list[int], list[int]]], size: int
) -> list[Measurement]:
    """Shares of the replacements of chosen tokens, with their expected values."""
    n = sum(label != IGNORE for _, labels in masked for label in labels)
    lucky = 0.1 / (size - FIRST)
    shares = (0.8, 0.1 - lucky, 0.1 + lucky)
    errors = [math.sqrt(share * (1 - share) / n) for share in shares]
    return [
        equal(f"replaced by: {fate}", measured, share, within=4 * error + 1e-12)
        for fate, measured, share, error in zip(
            FATES, fate_shares(document, masked), shares, errors, strict=True
        )
    ]


def _shown(
    tokenizer: Tokenizer, document: list[int], masked: tuple[list[int], list[int]], n: int = 40
) -> list[tuple[str, str, str]]:
    """Beginning of an example of each kind."""
    ids, labels = masked
    told = "".join("·" if i == IGNORE else tokenizer.decode([i]) for i in labels[:n])
    return [
        ("next token", tokenizer.decode(document[:n]), tokenizer.decode(document[1 : n + 1])),
        ("masked tokens", tokenizer.decode(ids[:n]), told),
    ]


def _figure(losses: dict[str, float]) -> Figure:
    chart = Chart(
        bars=[bars(losses.values())],
        names=list(losses),
        lines=[Line(y=losses["guess"])],
        y="loss a character, in nats",
    )
    return Figure(
        panels=[chart],
        caption="Loss on the last quarter of the text, which is held out, of predicting by the "
        "frequency of each character before it (single tokens) and by what follows what (pairs). "
        "Dotted: all characters equally likely.",
    )
