"""Losses by their formulas, whole and in parts, and gradients for all that a model has."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data import IGNORE
from regard.data.batch import Batch, PaddedIds, RowFormat
from regard.data.causal import CausalDataset, predict_all
from regard.dropout import dropouts, make_row_keys, set_row_keys
from regard.models.builders import Embedder, LanguageModel, Model, SequenceToSequence, make_model
from regard.models.config import DecoderConfig, EncoderConfig
from regard.models.head_config import EmbeddingHeadConfig
from tiny_families import COVERING, HEAD_CONFIGS, MODELS, SIZES, tiny, tiny_batch
from tiny_recurrent import close

TIED = [name for name in MODELS if "tied" in name and name.endswith("lm")]
EVERY_MODEL = pytest.mark.parametrize("name", dict.fromkeys([*COVERING, *TIED]))
"""Each family and each head, and those whose head is the embedding."""
PARTS = (1, 2, 3, 9)


def arguments(model: Model, batch: Batch) -> list[Tensor]:
    """What the model is called with."""
    if isinstance(model, LanguageModel):
        return [batch.input_ids]
    if isinstance(model, SequenceToSequence):
        source = batch.inputs["source"]
        return [source.ids, source.lengths, batch.input_ids]
    first, *rest = batch.inputs.values()
    return [first.ids, first.lengths, *(field.ids for field in rest)]


def logits_of(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """A row for each prediction, and what is right."""
    logits = model(*arguments(model, batch))
    return logits.reshape(-1, logits.shape[-1]), batch.labels.flatten()


def similarities_of(model: Embedder, batch: Batch) -> tuple[Tensor, Tensor]:
    """Each question with each document, and which document is right."""
    questions, documents = (model(field.ids, field.lengths) for field in batch.inputs.values())
    scores = torch.einsum("id,jd->ij", questions, documents) / model.head.temperature
    return scores, torch.arange(len(scores))


def by_definition(model: Model, batch: Batch) -> Tensor:
    """-log of each right answer's share, one by one."""
    if isinstance(model, Embedder):
        scores, labels = similarities_of(model, batch)
    else:
        scores, labels = logits_of(model, batch)
    losses = [
        scores[i].exp().sum().log() - scores[i, label]
        for i, label in enumerate(labels.tolist())
        if label != IGNORE
    ]
    assert len(losses) == batch.n_targets
    return torch.stack(losses).sum()


def gradients_of(model: Model, loss: Tensor) -> Tensor:
    """Of all parameters, in one row."""
    return in_one_row(torch.autograd.grad(loss, list(model.parameters())))


def in_one_row(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


@EVERY_MODEL
def test_a_loss_and_its_gradients_are_those_of_the_formula(name: str) -> None:
    """And every parameter has a gradient."""
    model = tiny(*MODELS[name])
    batch = tiny_batch(model)
    loss, expected = model.loss(batch), by_definition(model, batch)
    assert close(loss.detach(), expected.detach())
    found = torch.autograd.grad(loss, list(model.parameters()))
    assert close(in_one_row(found), gradients_of(model, expected))
    for (parameter, _), gradient in zip(model.named_parameters(), found, strict=True):
        assert bool(gradient.any()), parameter
        assert bool(gradient.isfinite().all()), parameter


@EVERY_MODEL
def test_padding_changes_neither_loss_nor_gradients(name: str) -> None:
    model = tiny(*MODELS[name])
    batch = tiny_batch(model)
    rows = next(iter(batch.inputs.values())).lengths.argsort()[:2]
    wide = Batch(
        {
            name: PaddedIds(field.ids[rows], field.lengths[rows], field.pad)
            for name, field in batch.inputs.items()
        },
        torch.arange(2) if batch.in_batch_negatives else batch.labels[rows],
    )
    narrow = batch.take(rows)
    assert narrow.positions < wide.positions
    losses = model.loss(narrow), model.loss(wide)
    assert close(losses[0].detach(), losses[1].detach())
    assert close(*(gradients_of(model, loss) for loss in losses))


def test_a_model_meets_few_shapes() -> None:
    draw = np.random.default_rng(0)
    model = tiny(DecoderConfig(**SIZES | {"context_length": 40}), HEAD_CONFIGS["lm"])
    seen: dict[str, set[torch.Size]] = {"body": set(), "head": set()}
    model.body.register_forward_pre_hook(lambda _, args: seen["body"].add(args[0].shape))
    model.head.register_forward_pre_hook(lambda _, args: seen["head"].add(args[0].shape))
    counts = set()
    for _ in range(100):
        lengths = draw.integers(20, draw.integers(21, 42), 32)
        texts = [predict_all(draw.integers(2, 11, n).tolist()) for n in lengths]
        batch = CausalDataset([], RowFormat(40, 0)).collate(texts)
        with torch.no_grad():
            model.loss(batch)
        counts.add(batch.n_targets)
    assert len(counts) > 80
    assert len(seen["body"]) <= 6
    assert len(seen["head"]) <= 12


@torch.no_grad()
def test_losses_of_parts_add_up() -> None:
    for name in COVERING:
        model = tiny(*MODELS[name])
        batch = tiny_batch(model)
        whole = model.loss(batch)
        for parts in PARTS:
            split = batch.split(parts)
            assert len(split) == (1 if batch.in_batch_negatives else min(parts, 5))
            assert sum(part.n_targets for part in split) == batch.n_targets
            assert sum(part.positions for part in split) <= batch.positions
            assert close(torch.stack([model.loss(part) for part in split]).sum(), whole), name


@torch.no_grad()
def test_a_document_that_answers_two_questions_is_no_wrong_answer() -> None:
    model = tiny(DecoderConfig(**SIZES), HEAD_CONFIGS["embedding"])
    batch = tiny_batch(model)
    assert isinstance(model, Embedder)
    documents = batch.inputs["documents"]
    documents.ids[3], documents.lengths[3] = documents.ids[1], documents.lengths[1]
    scores, _ = similarities_of(model, batch)
    scores[1, 3] = scores[3, 1] = float("-inf")
    expected = (scores.logsumexp(1) - scores.diagonal()).sum()
    assert close(model.loss(batch), expected)


def paired(batch: Batch) -> Batch:
    """The same texts, of which the second half is another text."""
    texts = batch.inputs["input_ids"]
    types = (torch.arange(texts.ids.shape[1]) >= texts.lengths[:, None] // 2).long()
    inputs = {"input_ids": texts, "token_type_ids": PaddedIds(types, texts.lengths, 0)}
    return Batch(inputs, batch.labels)


@torch.no_grad()
def test_token_types_reach_the_body_whole_and_in_parts() -> None:
    for parts in PARTS:
        model = tiny(*MODELS["encoder: classification"])
        batch = tiny_batch(model)
        pair = paired(batch)
        whole = model.loss(pair)
        assert close(whole, by_definition(model, pair))
        assert not close(whole, model.loss(batch))
        split = pair.split(parts)
        assert sum(part.positions for part in split) <= pair.positions == batch.positions
        assert close(torch.stack([model.loss(part) for part in split]).sum(), whole)


@torch.no_grad()
def test_positions_that_carry_no_loss_do_not_count() -> None:
    for name in (n for n in MODELS if n.endswith(("lm", "token-classification"))):
        model = tiny(*MODELS[name])
        batch = tiny_batch(model)
        whole = model.loss(batch)
        kept = batch.labels.clone()
        batch.labels[:, ::2] = IGNORE
        odd = model.loss(batch)
        batch.labels.copy_(kept)
        batch.labels[:, 1::2] = IGNORE
        assert close(odd + model.loss(batch), whole), name
        assert 0 < float(odd) < float(whole), name


def test_a_question_and_its_document_have_different_dropout() -> None:
    config = EncoderConfig(context_length=16, n_layers=1, n_heads=2, d_model=16, dropout=0.5)
    model = make_model(config, EmbeddingHeadConfig(), 20).train()
    assert isinstance(model, Embedder)
    text = PaddedIds(torch.randint(3, 20, (3, 5)), torch.full((3,), 5), 0)
    batch = Batch({"questions": text, "documents": text}, torch.arange(3), in_batch_negatives=True)
    modules = dropouts(model)
    set_row_keys(modules, make_row_keys(len(modules), 0, 0, batch.row_numbers))
    assert not torch.equal(*model.vectors(batch))


def test_similarities_keep_single_precision_under_autocast() -> None:
    """Documents whose cosines are equal in bfloat16 remain different."""
    config = EncoderConfig(context_length=16, n_layers=1, n_heads=2, d_model=16)
    model = make_model(config, EmbeddingHeadConfig(), 20)
    assert isinstance(model, Embedder)
    questions = F.normalize(torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0]]), dim=-1)
    documents = F.normalize(torch.tensor([[1.0, 0.0, 0.05], [1.0, 0.0, 0.0]]), dim=-1)
    call = questions, documents, torch.tensor([[0], [1]]), torch.arange(2)
    expected = model.contrast(*call)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.contrast(*call)
    torch.testing.assert_close(found, expected)
