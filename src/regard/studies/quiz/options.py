"""The wrong options of the quiz, each refuted by a number."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.data.batch import pad_rows
from regard.models.config import (
    ClassificationHeadConfig,
    MaskedLMHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.studies.figure import chart, figure, heat_map, series
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    equal,
    refused,
    table,
)
from regard.studies.moods import best
from regard.studies.quiz.checked import (
    BLOCK,
    BOTH_WAYS,
    DECODER,
    ENCODER,
    PAIR,
    RNN,
    TOKENS,
    WIDTH,
    Draw,
    influence,
)
from regard.studies.quiz.probabilities import after_start, all_texts
from regard.studies.quiz.texts import TEXTS
from regard.studies.study import Seed, study
from regard.studies.tensors import central_differences, largest
from regard.text.config import WordsConfig
from regard.text.tokenizer import train_tokenizer

FRAMES, TRANSCRIPT = 20, 7
"""Length of a recording, in quantized frames, and of its transcript, in characters."""
CHOICES, STEP = 4, 3
"""Tokens of the vocabulary and time step of question 9."""
ERRORS = (AttributeError, IndexError, RuntimeError, TypeError, ValueError)
"""Errors that refuse wrong inputs."""
ENTRIES = 12
"""Weights whose gradient is compared with finite differences."""
OTHER_TEXTS = ("Dry stones", "and a sun that shines", *TEXTS)
"""Texts of another vocabulary, which has the words of `TEXTS` at other ids."""


@study()
def wrong_options(
    std: Annotated[float, Meta(ge=0, le=1)] = 0.15,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which number refutes each wrong option of the quiz?

    Each wrong option predicts a value that is not the measured one.

    $$ P(y_t \mid y_{<t}) \ne P(y_1, \dots, y_{t-1}), \quad \sum_{y_{<t}} \sum_{y_t} P(y_t \mid
    y_{<t}) = V^{t-1} \ne 1 $$

    A wrong option is a prediction, and small models without training are enough to test it. If
    weights alone were the model, the same weights in a causal and in a bidirectional architecture
    would give the same outputs. If an RNN estimated the probability of the prefix, its outputs over
    all prefixes would sum to 1. If the second direction made gradients more accurate, those of one
    direction would be further from finite differences.

    Some options name a thing that does something else. A tensor is a type and makes no lengths
    equal. Padding and truncation change the number of tokens and not their meaning. ReLU and
    sigmoid of a number beyond all bounds of training are finite, and so are their gradients.

    Figure. Left: what an untrained RNN predicts after each prefix of two tokens. Each row sums to
    1, so all rows together to their number. Right: gradients of recurrent weights by
    backpropagation and by finite differences. Dots lie on the diagonal for a one-way and for a
    two-way network alike.

    Args:
        std: standard deviation of weights
    """
    draw = Draw(seed, std)
    with torch.no_grad():
        refuted = [(option, tuple(option.refute(draw))) for option in WRONG_OPTIONS]
    for _, numbers in refuted:
        yield from numbers
    rows = [
        (option.question, option.text, "; ".join(map(_told, numbers)))
        for option, numbers in refuted
    ]
    yield table(["question", "wrong option", "measured"], rows)
    prefixes = ["".join("abcd"[i] for i in row) for row in all_texts(CHOICES, STEP - 1).tolist()]
    dots = [series(*both, name, "dots") for name, both in gradients(draw).items()]
    yield figure(
        heat_map(
            next_probabilities(draw),
            title=f"P(y_{STEP} | prefix)",
            x="next token",
            y="prefix",
            rows=prefixes,
            columns=list("abcd"),
            most=0.4,
        ),
        chart(*dots, title="gradients", x="by backpropagation", y="by finite differences"),
    )


def weights_alone(draw: Draw) -> Iterator[Measurement]:
    """Compare one set of weights in two architectures, and count them."""
    causal, ids = draw.model(DECODER), draw.ids(3, 8)
    both_ways = draw.model(ENCODER, MaskedLMHeadConfig())
    both_ways.body.load_state_dict(causal.body.state_dict())
    difference = largest(causal.body(ids) - both_ways.body(ids))
    counted = sum(parameter.numel() for parameter in causal.parameters())
    layers = DECODER.n_layers * (12 * WIDTH**2 + 13 * WIDTH)
    yield equal("2: parameters counted", counted, layers + 2 * WIDTH + 2 * TOKENS * WIDTH)
    yield at_least("2: difference by another architecture, same weights", difference, 1e-3)


def transcript(draw: Draw) -> Iterator[Measurement]:
    """Count the outputs for a recording."""
    frames, lengths = draw.ids(1, FRAMES), torch.tensor([FRAMES])
    gender = draw.model(RNN, ClassificationHeadConfig(labels=("a", "b")))
    labels = gender(frames, lengths)[..., 0].numel()
    characters = draw.model(PAIR)(frames, lengths, draw.ids(1, TRANSCRIPT))[..., 0].numel()
    yield equal("5: labels for 20 frames", labels, 1)
    yield equal("5: characters of a transcript, 20 frames", characters, TRANSCRIPT)


def model_first(draw: Draw) -> Iterator[Measurement]:
    """Give the model a text."""
    text = refused(lambda: draw.model(DECODER)(TEXTS[0]), *ERRORS)
    yield equal("7: text refused by the model", text, 1)


def model_last(draw: Draw) -> Iterator[Measurement]:
    """Look for text among the outputs."""
    outputs = draw.model(DECODER)(draw.ids(1, 8)).flatten().tolist()
    texts = sum(isinstance(value, str) for value in outputs)
    yield equal("7: outputs of the model that are text", texts, 0)


def fewer_dimensions(draw: Draw) -> Iterator[Measurement]:
    """Measure how much the output varies along each dimension."""
    hidden = draw.model(DECODER).body(draw.ids(2, 7))
    spread = min(float(hidden.std(dim).mean()) for dim in range(hidden.ndim))
    yield at_least("8: least spread along a dimension", spread, 1e-3)


def of_the_prefix(draw: Draw) -> Iterator[Measurement]:
    """Sum the outputs over all prefixes."""
    total, expected = next_probabilities(draw).sum(), CHOICES ** (STEP - 1)
    yield equal("9: total over all prefixes", total, expected, within=1e-9)


def of_the_first(draw: Draw) -> Iterator[Measurement]:
    """Change earlier tokens."""
    seen = influence(draw.model(RNN).body, draw.ids(STEP + 1))
    yield at_least("9: change by earlier tokens", seen[-1].min(), 1e-6)


def given_itself(draw: Draw) -> Iterator[Measurement]:
    """Change the token that is predicted, and later ones."""
    change = largest(influence(draw.model(RNN).body, draw.ids(STEP + 1)).triu(1))
    most = next_probabilities(draw).max()
    yield equal("9: change by the token itself and later ones", change, 0, 1e-12)
    yield at_most("9: largest probability of the token itself", most, 0.99)


@torch.inference_mode()
def next_probabilities(draw: Draw) -> Float[Tensor, "prefixes tokens"]:
    """Return what an RNN predicts at `STEP` after each prefix."""
    begun = after_start(all_texts(CHOICES, STEP - 1))
    found: Tensor = draw.model(RNN, tokens=CHOICES)(begun)[:, -1].softmax(-1)
    return found


@torch.enable_grad()
def large_number(name: str, function: Callable[[Tensor], Tensor]) -> Iterator[Measurement]:
    """Count NaN of an activation at 10³⁸, and of its gradient."""
    z = torch.tensor([1e38, -1e38], requires_grad=True)
    value = function(z)
    value.sum().backward()
    assert z.grad is not None
    count = int(value.isnan().sum()) + int(z.grad.isnan().sum())
    yield equal(f"10: NaN of {name} and its gradient", count, 0)


def better_gradients(draw: Draw) -> Iterator[Measurement]:
    """Compare the gradients of both networks with finite differences."""
    for name, (by_autograd, by_differences) in gradients(draw).items():
        error = largest(by_autograd - by_differences)
        yield at_most(f"11: gradient off finite differences, {name}", error, 1e-6)


@torch.enable_grad()
def gradients(draw: Draw) -> dict[str, tuple[Float[Tensor, " w"], Float[Tensor, " w"]]]:
    """Return gradients of some recurrent weights by autograd and by central differences."""
    head, days = TokenClassificationHeadConfig(labels=("good", "bad")), draw.ids(1, 10)
    lengths = torch.tensor([days.shape[1]])
    found = {}
    for name, config in {"one way": RNN, "both ways": BOTH_WAYS}.items():
        model = draw.model(config, head)
        weight = next(p for n, p in model.named_parameters() if "weight_hh" in n)

        def loss(model: Any = model) -> Tensor:
            scores: Tensor = model(days, lengths)
            return scores.square().sum()

        loss().backward()
        assert weight.grad is not None
        by_autograd = weight.grad.flatten()[:ENTRIES]
        entries = weight.data.view(-1)[:ENTRIES]
        found[name] = by_autograd, central_differences(loss, entries, 1e-5)
    return found


def only_today() -> Iterator[Measurement]:
    """Predict moods that depend on three days from one of them."""
    yield equal("11: moods told by today's weather alone", best(2), 0.75, within=1e-12)


def redirection(draw: Draw) -> Iterator[Measurement]:
    """Exchange the head of an encoder."""
    ids = draw.ids(2, 7)
    heads = (MaskedLMHeadConfig(), ClassificationHeadConfig(labels=("good", "bad")))
    one, other = (draw.model(ENCODER, head).body(ids) for head in heads)
    yield equal("14: change of the states by another head", largest(one - other), 0)


def attending_head(draw: Draw) -> Iterator[Measurement]:
    """Change the other positions that a head reads."""
    model = draw.model(DECODER)
    hidden = torch.zeros(1, 7, WIDTH, dtype=torch.float64)
    others = hidden.clone()
    others[:, 1:] = 1
    change = largest((model.head(hidden) - model.head(others))[:, 0])
    yield equal("14: change of a head's output by other positions", change, 0)


def unpadded(draw: Draw) -> Iterator[Measurement]:
    """Make a tensor of rows of different lengths."""
    rows = [draw.ids(9)[:n] for n in (3, 5, 9)]
    ragged = refused(lambda: torch.tensor([row.tolist() for row in rows]), *ERRORS)
    yield equal("15: rows of different lengths refused as a tensor", ragged, 1)
    stacked = refused(lambda: torch.stack(rows), *ERRORS)
    yield equal("15: tensors of different lengths refused as a batch", stacked, 1)


def not_truncated(draw: Draw) -> Iterator[Measurement]:
    """Give the model a text beyond its context."""
    long = refused(lambda: draw.model(DECODER)(draw.ids(1, BLOCK + 1)), *ERRORS)
    yield equal("15: a text beyond the context is refused", long, 1)


def padded_ids() -> Iterator[Measurement]:
    """Read the ids of one vocabulary by another, as they are and padded."""
    own = train_tokenizer(WordsConfig(), TEXTS)
    other = train_tokenizer(WordsConfig(), OTHER_TEXTS)
    ids = other.encode(TEXTS[0])
    padded = pad_rows([ids[:BLOCK], [0] * BLOCK], 0)[0].tolist()

    def changed(row: list[int]) -> float:
        tokens = [i for i in row if i != 0]
        return sum(own.decode([i]) != other.decode([i]) for i in tokens) / len(tokens)

    yield at_least("16: tokens that change their meaning", changed(ids), 0.5)
    yield equal("16: the same, padded and truncated", changed(padded), changed(ids))


class WrongOption(NamedTuple):
    """A wrong option and what is measured to refute it."""

    question: int
    text: str
    refute: Callable[[Draw], Iterator[Measurement]]


WRONG_OPTIONS = (
    WrongOption(2, "Model and weights are the same.", weights_alone),
    WrongOption(5, "Speech recognition is many-to-one.", transcript),
    WrongOption(7, "First the model, which handles text.", model_first),
    WrongOption(7, "The model outputs text.", model_last),
    WrongOption(
        8, "2 dimensions: without the batch, or without the hidden size.", fewer_dimensions
    ),
    WrongOption(9, "P(y_1, …, y_t−1)", of_the_prefix),
    WrongOption(9, "P(y_1)", of_the_first),
    WrongOption(9, "P(y_t | y_1, …, y_t)", given_itself),
    WrongOption(
        10, "ReLU of a number that is too large", lambda _: large_number("ReLU", torch.relu)
    ),
    WrongOption(
        10,
        "The sigmoid of a number that is too large",
        lambda _: large_number("the sigmoid", torch.sigmoid),
    ),
    WrongOption(11, "Two-way, because its gradients are more accurate", better_gradients),
    WrongOption(
        11, "One-way, because the mood depends on today's weather alone", lambda _: only_today()
    ),
    WrongOption(14, "It redirects tensors to their layers.", redirection),
    WrongOption(14, "It is self-attention.", attending_head),
    WrongOption(15, "Returning tensors", unpadded),
    WrongOption(15, "No truncation", not_truncated),
    WrongOption(16, "One should pad and truncate.", lambda _: padded_ids()),
)


def _told(number: Measurement) -> str:
    return f"{number.name.partition(': ')[2]}: {number.measured:.4g}"
