"""Small untrained models, and checks of the answers to sixteen questions, by their numbers."""

import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import Meta
from msgspec.structs import replace
from torch import Tensor, nn

from regard.data import IGNORE
from regard.data.batch import RowFormat, lengths_of, pad_rows
from regard.data.causal import Documents
from regard.data.masked import mask_tokens
from regard.errors import UserError
from regard.models.builders import make_model
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    FixedWindowConfig,
    ModelConfig,
    RecurrentConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import (
    ClassificationHeadConfig,
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
    TokenClassificationHeadConfig,
)
from regard.models.recurrent import RecurrentDecoder
from regard.positions.config import RotaryConfig
from regard.runs.recipe import DataConfig, Recipe
from regard.runs.run import Run
from regard.studies.finding import Measurements, at_least, at_most, equal, refused
from regard.studies.tensors import largest, seeded
from regard.tasks.encoding import encode_texts
from regard.tasks.examples import Example
from regard.text.config import BytePairsConfig, CharactersConfig, WordsConfig
from regard.text.template import Template, TemplateConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer

Std = Annotated[float, Meta(ge=0, le=1, description="standard deviation of weights")]
"""Parameter shared by studies."""
WIDTH, BLOCK, TOKENS = 16, 64, 12
"""Width of the models, their context length, and the size of their vocabulary."""

_SIZES: dict[str, Any] = {"context_length": BLOCK, "d_model": WIDTH, "dropout": 0.0}
_STACK: dict[str, Any] = _SIZES | {"n_layers": 2, "n_heads": 2, "positions": RotaryConfig()}

ENCODER = EncoderConfig(**_STACK)
DECODER = DecoderConfig(**_STACK)
PAIR = EncoderDecoderConfig(encoder=TransformerConfig(**_STACK), decoder=TargetConfig(**_STACK))
RNN = RecurrentConfig(cell="vanilla", n_layers=1, **_SIZES)
BOTH_WAYS = RecurrentConfig(cell="vanilla", n_layers=1, bidirectional=True, **_SIZES)
WINDOW = FixedWindowConfig(size=4, d_hidden=WIDTH, **_SIZES)


@dataclass(frozen=True)
class Draw:
    """Random weights and tokens."""

    seed: int
    std: float
    """Standard deviation of all weights."""
    tokens: int = 4
    length: int = 3
    """Vocabulary size and length of the texts in questions 9 and 12."""

    def model(
        self,
        config: ModelConfig,
        head: HeadConfig = LMHeadConfig(),  # noqa: B008 (frozen)
        tokens: int = TOKENS,
    ) -> Any:
        """Return an untrained float64 model."""
        # The biases of an RNN are drawn by its constructor.
        model = seeded(lambda: make_model(config, head, tokens).double().eval(), self.seed)
        generator = torch.Generator().manual_seed(self.seed)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=self.std, generator=generator)
        return model

    @property
    def texts(self) -> Int[Tensor, "texts length"]:
        """All texts of questions 9 and 12."""
        return torch.tensor(list(product(range(self.tokens), repeat=self.length)))

    def ids(self, *shape: int) -> Int[Tensor, "*shape"]:
        """Draw regular tokens."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randint(2, TOKENS, shape, generator=generator)


@torch.inference_mode()
def influence(body: nn.Module, ids: Int[Tensor, " n"]) -> Float[Tensor, "n n"]:
    """Return the influence of each token on each hidden state: ‖Δh_i‖ if token j is replaced."""
    replaced = ids.repeat(len(ids), 1)
    replaced.fill_diagonal_(0)
    changes: Tensor = (body(replaced) - body(ids[None])).norm(dim=-1)
    return changes.T


FAR, NEAR = 48, 6
"""Distances at which the first token's influence is compared."""
MASKED_LM = MaskedLMHeadConfig()
OF_TEXTS = ClassificationHeadConfig(labels=("good", "bad"))
OF_TOKENS = TokenClassificationHeadConfig(labels=("good", "bad"))
HEADS: tuple[HeadConfig, ...] = (LMHeadConfig(), OF_TEXTS, OF_TOKENS, EmbeddingHeadConfig(width=8))
"""Heads for the same decoder."""


def architecture_and_weights(draw: Draw) -> Measurements:
    """One architecture with two draws of weights, before and after the weights are copied."""
    one, other = draw.model(DECODER), Draw(draw.seed + 1, 2 * draw.std).model(DECODER)
    ids = draw.ids(3, 8)
    before = largest(one(ids) - other(ids))
    other.load_state_dict(one.state_dict())
    after = largest(one(ids) - other(ids))
    yield at_least("2: difference of outputs, other weights", before, 1e-3)
    yield equal("2: difference of outputs, copied weights", after, 0)


def completing(draw: Draw) -> Measurements:
    """Influence of later tokens on states at earlier positions, which predict them."""
    ids = draw.ids(8)
    seen = influence(draw.model(DECODER).body, ids)
    both = influence(draw.model(ENCODER, MASKED_LM).body, ids)
    yield equal("3: decoder, influence of later tokens", largest(seen.triu(1)), 0, within=1e-12)
    yield at_least("3: encoder, influence of later tokens", largest(both.triu(1)), 1e-3)
    headed = refused(lambda: draw.model(ENCODER, LMHeadConfig()), UserError)
    yield equal("3: an encoder with a head for the next token is refused", headed, 1)


def classifying(draw: Draw) -> Measurements:
    """Share of pairs of tokens in which the first token's state depends on the second token."""
    n, ids = 8, draw.ids(8)
    encoder = influence(draw.model(ENCODER, MASKED_LM).body, ids) > 1e-9
    decoder = influence(draw.model(DECODER).body, ids) > 1e-9
    name = "share of pairs with influence"
    yield equal(f"4: encoder, {name}", encoder.double().mean(), 1)
    yield equal(f"4: decoder, {name}", decoder.double().mean(), (n + 1) / (2 * n), 1e-12)


def dimensions(draw: Draw) -> Measurements:
    """Dimensions of a decoder's output, and their sizes."""
    rows, n = 2, 7
    hidden = draw.model(DECODER).body(draw.ids(rows, n))
    expected = (rows, n, WIDTH)
    correct = sum(size == right for size, right in zip(hidden.shape, expected, strict=False))
    yield equal("8: dimensions", hidden.ndim, 3)
    yield equal("8: correct sizes of (batch, sequence, hidden)", correct, 3)


def heads(draw: Draw) -> Measurements:
    """One body with four heads."""
    ids, lengths = draw.ids(2, 7), torch.tensor([7, 7])
    language, *others = (draw.model(DECODER, head) for head in HEADS)
    shapes = {language(ids).shape, *(model(ids, lengths).shape for model in others)}
    bodies = {
        tuple((name, p.shape) for name, p in model.body.named_parameters())
        for model in (language, *others)
    }
    yield equal("14: different bodies", len(bodies), 1)
    yield equal("14: outputs of different shape", len(shapes), len(HEADS))


def many_to_one(draw: Draw) -> Measurements:
    """Numbers of outputs for one text with either head."""
    ids, lengths = draw.ids(1, 20), torch.tensor([20])
    one, many = (draw.model(RNN, head)(ids, lengths)[..., 0] for head in (OF_TEXTS, OF_TOKENS))
    yield equal("5: outputs, many to one", one.numel(), 1)
    yield equal("5: outputs, many to many", many.numel(), 20)


def not_a_number(draw: Draw) -> Measurements:
    """One training step of a linear RNN with W = wI over 64 tokens, in float32."""
    ids = draw.ids(1, 64)
    yield at_least("10: number of NaN weights, w = 8", nan_after_a_step(8.0, ids), 1)
    yield equal("10: number of NaN weights, w = ⅛", nan_after_a_step(0.125, ids), 0)


def the_crab(draw: Draw) -> Measurements:
    """Influence of each day's input on the states of all days."""
    days = draw.ids(10)
    one = influence(draw.model(RNN).body, days)
    both = influence(draw.model(BOTH_WAYS, OF_TOKENS).body, days)
    name = "11: one direction, influence of"
    yield equal(f"{name} later days", largest(one.triu(1)), 0, within=1e-12)
    yield at_least(f"{name} the day before", one.diagonal(-1).min(), 1e-6)
    yield at_least("11: both directions, influence of the next day", both.diagonal(1).min(), 1e-6)


def long_inputs(draw: Draw) -> Measurements:
    """Influence of the first token at a long distance, as a share of that at a short one."""
    shares = {
        name: float(curve[FAR] / curve[NEAR]) if curve[NEAR] > 0 else 0.0
        for name, curve in influence_curves(draw).items()
    }
    name = "share of the influence at a long distance"
    yield at_least(f"13: attention, {name}", shares["attention"], 0.01)
    yield at_most(f"13: RNN, {name}", shares["RNN"], 0.001)
    yield equal(f"13: window, {name}", shares["window"], 0)


def influence_curves(draw: Draw) -> dict[str, Tensor]:
    """Return the influence of the first token on all states, by architecture."""
    ids = draw.ids(FAR + 1)
    configs: dict[str, ModelConfig] = {"attention": DECODER, "RNN": RNN, "window": WINDOW}
    return {name: influence(draw.model(each).body, ids)[:, 0] for name, each in configs.items()}


@torch.enable_grad()
def nan_after_a_step(
    w: float, ids: Tensor, activation: Literal["identity", "tanh"] = "identity"
) -> int:
    """Return the number of NaN weights after one step of gradient descent with W = wI."""
    config = replace(RNN, activation=activation)
    body = seeded(lambda: RecurrentDecoder(config, int(ids.max()) + 1), seed=0)
    (recurrent,) = (p for name, p in body.named_parameters() if "weight_hh" in name)
    nn.init.eye_(recurrent).data.mul_(w)
    body(ids)[:, -1].square().mean().backward()
    torch.optim.SGD(body.parameters(), lr=0.1).step()
    return sum(int(parameter.isnan().sum()) for parameter in body.parameters())


COMMON = 0.8
"""Share of the more frequent answer in biased data."""


def sources_of_bias(_: Draw) -> Measurements:
    """Probability of the more frequent answer after training, and after five steps without bias."""
    # The model gives two answers the probabilities σ(z) and σ(−z), and learns z.
    parent = trained(0.0, COMMON, steps=2000)
    child = trained(parent, 0.5, steps=5)
    yield equal("6: bias from the data", sigmoid(parent), COMMON, within=1e-6)
    yield at_least("6: bias from the parent (unbiased: 0.5)", sigmoid(child), 0.55)
    yield equal("6: bias from the metric, accuracy", float(sigmoid(parent) > 0.5), 1)


def trained(z: float, share: float, steps: int, rate: float = 0.5) -> float:
    """Return z after gradient descent on the cross-entropy, for a share of the frequent answer."""
    for _ in range(steps):
        z += rate * (share - sigmoid(z))
    return z


def sigmoid(z: float) -> float:
    """Return the probability of the more frequent answer."""
    return 1 / (1 + math.exp(-z))


def next_tokens(draw: Draw) -> Measurements:
    """Π P(y_t | y_<t) of an RNN, summed over all texts of a length."""
    model, texts = draw.model(RNN, tokens=draw.tokens), draw.texts
    total = _chosen(model(after_start(texts[:, :-1])), texts).exp().sum()
    yield equal("9: sum of the products", total, 1, within=1e-12)


def conditional(draw: Draw) -> Measurements:
    """Sums of P(y | x) over y and over x, and of products of an encoder's masked predictions."""
    texts, mask = draw.texts, draw.tokens
    lengths = torch.full((len(texts),), draw.length)
    pair, given = draw.model(PAIR, tokens=draw.tokens), after_start(texts[:, :-1])
    logits = (pair(text.expand_as(texts), lengths, given) for text in texts)
    totals = torch.stack([_chosen(one, texts).exp().sum() for one in logits])
    encoder = draw.model(ENCODER, MASKED_LM, tokens=draw.tokens + 1)
    others = [texts.index_fill(1, torch.tensor(t), mask) for t in range(draw.length)]
    alone = torch.stack([encoder(rows)[:, t, :mask] for t, rows in enumerate(others)], 1)
    masked = _chosen(alone, texts).exp().sum()
    yield at_most("12: |Σ P(y | x) over y − 1|, largest over x", abs(totals - 1).max(), 1e-12)
    yield equal("12: Σ P(y | x) over all x and y", totals.sum(), len(texts), within=1e-9)
    yield at_least("12: |Σ Π P(x_t | the others) − 1| of an encoder", abs(masked - 1), 1e-9)


def after_start(rows: Int[Tensor, "texts n"]) -> Int[Tensor, "texts more"]:
    """Return the texts with the start token, 1, prepended."""
    return F.pad(rows, (1, 0), value=1)


def _chosen(logits: Float[Tensor, "b n v"], ids: Int[Tensor, "b n"]) -> Float[Tensor, " b"]:
    return logits.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1).sum(-1)


TEXTS = (
    "The crab is in a good mood when it rains.",
    "On dry days it hides under a stone.",
    "Yesterday it rained, and today the sun shines.",
)


def no_labels(draw: Draw) -> Measurements:
    """Targets, next or masked tokens, compared with the raw text."""
    tokenizer = train_tokenizer(CharactersConfig(), TEXTS)
    special = tokenizer.special
    format, end = RowFormat(BLOCK, special.padding), [special.require("eos")]
    own: list[bool] = []
    for text in TEXTS:
        ids = tokenizer.encode(text)
        rng = np.random.default_rng(draw.seed)
        example = Documents([ids], format, end=end).example(0, rng)
        own += [a == b for a, b in zip(example.ids[:-1], ids, strict=True)]
        mask = special.require("mask")
        _, labels = mask_tokens(ids, rng, mask=mask, regular_ids=tokenizer.regular_ids)
        own += [label == i for label, i in zip(labels, ids, strict=True) if label != IGNORE]
    yield equal("1: share of targets that are tokens of the text", np.mean(own), 1)


def pipeline(draw: Draw) -> Measurements:
    """Texts to ids and back, and a model's predictions to text, by three tokenizers."""
    same, known = [], []
    for config in (CharactersConfig(), WordsConfig(), BytePairsConfig(size=300)):
        tokenizer = train_tokenizer(config, TEXTS)
        model = draw.model(DECODER, tokens=tokenizer.size)
        for text in TEXTS:
            ids = tokenizer.encode(text)
            same.append(tokenizer.decode(ids) == text)
            answers = model(torch.tensor([ids])).argmax(-1)[0].tolist()
            known += [isinstance(tokenizer.decode([i]), str) for i in answers]
    yield equal("7: share of texts restored from ids", np.mean(same), 1)
    yield equal("7: share of predictions decoded to text", np.mean(known), 1)


def followed(draw: Draw) -> str:
    """Return a text, its ids, the shape of the logits, the predicted ids, and the last as text."""
    tokenizer = train_tokenizer(WordsConfig(), TEXTS)
    ids = tokenizer.encode(TEXTS[0])
    logits = draw.model(DECODER, tokens=tokenizer.size)(torch.tensor([ids]))
    predicted = logits.argmax(-1)[0].tolist()
    steps = [
        f'"{TEXTS[0]}"',
        " ".join(map(str, ids)),
        f"logits of shape {tuple(logits.shape)}",
        " ".join(map(str, predicted)),
        f'"{tokenizer.decode(predicted[-1:])}"',
    ]
    return " → ".join(steps)


def batching(draw: Draw) -> Measurements:
    """Outputs for three texts alone and in a batch, with and without the mask."""
    model = draw.model(ENCODER, OF_TEXTS)
    rows = [draw.ids(9)[:n].tolist() for n in (3, 5, 9)]
    padded, lengths = pad_rows(rows, 0), lengths_of(rows)
    alone = torch.cat([model(torch.tensor([row]), torch.tensor([len(row)])) for row in rows])
    masked = model(padded, lengths)
    unmasked = model(padded, torch.full_like(lengths, padded.shape[1]))
    tokenizer = train_tokenizer(CharactersConfig(), TEXTS)
    template = Template(TemplateConfig(), tokenizer)
    long = encode_texts(template, template.prompt, [Example(text="".join(TEXTS))], BLOCK)
    yield at_most("15: difference of outputs, with the mask", largest(alone - masked), 1e-12)
    yield at_least("15: difference of outputs, without the mask", largest(alone - unmasked), 1e-3)
    yield equal("15: tokens of a truncated text", len(long.rows[0]), BLOCK)


def foreign_ids(draw: Draw) -> Measurements:
    """A model with ids of another vocabulary, and a run with another saved tokenizer."""
    own = train_tokenizer(CharactersConfig(), TEXTS)
    other = train_tokenizer(CharactersConfig(), [text.swapcase() for text in TEXTS])
    model = draw.model(DECODER, tokens=max(own.size, other.size))
    ids = other.encode(TEXTS[0].swapcase())
    finite = model(torch.tensor([ids])).isfinite().double().mean()
    shared = range(2, min(own.size, other.size))
    alike = sum(own.decode([i]) == other.decode([i]) for i in shared) / len(shared)
    yield equal("16: share of finite outputs", finite, 1)
    yield at_most("16: share of ids with the same meaning", alike, 0.9)
    yield equal("16: runs refused by the fingerprint", _refused(own, other), 1)


def _refused(own: Tokenizer, other: Tokenizer) -> bool:
    """Return whether a run with a replaced tokenizer raises an error that names both tokenizers."""
    with TemporaryDirectory() as folder:
        recipe = Recipe(model=DECODER, data=DataConfig(validation=0.0))
        run = Run.new(Path(folder), recipe, own, {})
        run.save_description()
        run.save_weights()
        other.save(Path(folder))
        try:
            Run.load(Path(folder))
        except UserError as refusal:
            return own.fingerprint in str(refusal) and other.fingerprint in str(refusal)
    return False
