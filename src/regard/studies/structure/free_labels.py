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
from regard.studies.figure import Line, bar_chart
from regard.studies.finding import at_most, equal, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.text.config import CharactersConfig, SpecialTokensConfig
from regard.text.tokenizer import train_tokenizer

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

    Of the masked tokens, four fifths are hidden, a tenth becomes a random token (possibly the right
    one), and a tenth stays (Devlin et al., 2019). A model counts which character follows which in
    three quarters of the text, and predicts the last quarter.

    Figure. Loss on the last quarter of the text, which is held out, of predictions by the frequency
    of single characters and by the frequency of pairs. Dotted: all characters are equally likely.

    Args:
        text: raw text
        masking: share of tokens to choose
    """
    special = SpecialTokensConfig(bos="", eos="", sep="", mask="<mask>")
    tokenizer = train_tokenizer(CharactersConfig(special_tokens=special), [text])
    document = tokenizer.encode(text)
    examples = next_tokens(document)
    chosen = max(1, round(masking * len(document)))
    rng, regular = np.random.default_rng(seed), tokenizer.regular_ids
    masked = mask_tokens(document, rng, mask=MASK, regular_ids=regular, share=masking)
    labels = np.array(masked[1])
    shifted = np.mean(examples.labels[0].numpy() == document[1:])
    right = np.mean((labels == document)[labels != IGNORE])
    losses = held_out_losses(document, len(tokenizer.regular_ids))
    yield equal("next-token labels", examples.n_targets, len(document) - 1)
    yield equal("share of next-token labels that are the next token", shifted, 1)
    yield equal("masked-token labels per draw", (labels != IGNORE).sum(), chosen)
    yield equal("share of masked-token labels that are the masked token", right, 1)
    yield at_most("loss of pairs on held-out text", losses["pairs"], losses["guess"])
    marked = "".join("·" if i == IGNORE else tokenizer.decode([i]) for i in masked[1][:SHOWN])
    rows = [
        ("next token", *(tokenizer.decode(document[i : i + SHOWN]) for i in (0, 1))),
        ("masked tokens", tokenizer.decode(masked[0][:SHOWN]), marked),
    ]
    yield table(["objective", "input", "labels"], rows)
    yield bar_chart({"": losses}, Line(y=losses["guess"]), y="loss per character, nats")


def next_tokens(document: list[int]) -> Batch:
    """Return the next-token labels of a document in one row."""
    whole = Documents([document], RowFormat(len(document) - 1, 0))
    return next(sequential_batches(whole, 1))


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
