"""Questions 1, 7, 15 and 16: texts, tokens and batches."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from regard.data import IGNORE
from regard.data.batch import RowFormat, lengths_of, pad_rows
from regard.data.causal import Documents
from regard.data.masked import mask_tokens
from regard.errors import UserError
from regard.models.head_config import ClassificationHeadConfig
from regard.runs.recipe import DataConfig, Recipe
from regard.runs.run import Run
from regard.studies.finding import Measurements, at_least, at_most, equal
from regard.studies.quiz.checked import BLOCK, DECODER, ENCODER, Draw
from regard.studies.tensors import largest
from regard.tasks.encoding import encode_texts
from regard.tasks.examples import Example
from regard.text.config import BytePairsConfig, CharactersConfig, WordsConfig
from regard.text.template import Template, TemplateConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer

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
    model = draw.model(ENCODER, ClassificationHeadConfig(labels=("good", "bad")))
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
