"""Pairs of sentences are masked, batched and learned with the sentence of each token."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import override
from regard.errors import UserError
from regard.explorer.intercept import capture_attention
from regard.explorer.look import look
from regard.runs.environment import ExecutionEnvironment
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.text.batches import MaskedPairBatch
from regard.text.objectives import IGNORE
from regard.text.vocabulary import MASK, PAD
from regard.training.collate import masked_pair_batch
from regard.training.loop import Settings
from regard.training.pair_stages import plan_pairs

PAIRS = [("I had a party.", "I bought a cake."), ("The dog ran.", ""), ("We saw it.", "It ran.")]
TINY = (
    *("tokenizer.kind=words", "model.n_layers=1", "model.n_heads=2", "model.d_model=16"),
    *(
        "model.context_length=24",
        "model.n_token_types=2",
        "data.validation=0",
        "pretraining.steps=2",
    ),
    *("pretraining.batch=3", "pretraining.shuffle=false"),
)
token = st.integers(MASK + 1, 50)
row = st.lists(st.tuples(token, token | st.just(IGNORE), st.integers(0, 1)), min_size=1)
prefixes = st.sampled_from([[], [MASK]])


def recipe(*changes: str) -> Recipe:
    return override(RECIPES["masked"], [*TINY, *changes])


def batch_of(
    rows: Sequence[Sequence[tuple[int, int, int]]], block: int, prefix: Sequence[int]
) -> MaskedPairBatch:
    columns = [[list(column) for column in zip(*one, strict=True)] for one in rows]
    return masked_pair_batch([((ids, labels), s) for ids, labels, s in columns], block, prefix)


@settings(max_examples=50)
@given(st.lists(row, min_size=1, max_size=4), st.integers(2, 14), prefixes)
def test_every_token_keeps_its_sentence(
    rows: list[list[tuple[int, int, int]]], block: int, prefix: list[int]
) -> None:
    batch = batch_of(rows, block, prefix)
    for number, one in enumerate(rows):
        whole = [*((i, IGNORE, 0) for i in prefix), *one][:block]
        filled = [*whole, *[(PAD, IGNORE, 0)] * (batch.ids.shape[1] - len(whole))]
        columns = (batch.ids[number], batch.labels[number], batch.segments[number])
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == filled


@settings(max_examples=50)
@given(st.lists(row, min_size=2, max_size=5), st.integers(2, 4))
def test_parts_of_a_batch_are_its_rows(rows: list[list[tuple[int, int, int]]], parts: int) -> None:
    batch = batch_of(rows, 14, [])
    found = [
        list(zip(*(c[:n].tolist() for c in columns), strict=True))
        for part in batch.split(parts)
        for *columns, n in zip(part.ids, part.labels, part.segments, part.lengths, strict=True)
    ]
    assert sorted(found) == sorted(one[:14] for one in rows)
    assert batch.positions == batch.ids.numel()


def test_what_is_learned_is_what_is_looked_at(tmp_path: Path) -> None:
    """A row of training and `look` give the model the same ids, lengths and segments."""
    plan = plan_pairs(PAIRS, tmp_path / "run", recipe())
    batch = plan.stream.batch(0)
    assert isinstance(batch, MaskedPairBatch)
    plan.run.model.eval()
    unmasked = batch.ids.where(batch.labels == IGNORE, batch.labels)
    for number, (first, second) in enumerate(PAIRS):
        n = int(batch.lengths[number])
        inputs = (unmasked[number, None, :n], batch.lengths[number, None])
        trained_on = capture_attention(plan.run.model, *inputs, batch.segments[number, None, :n])
        (one,) = look(plan.run, first, second or None).panels[0].maps
        assert one.second == (batch.segments[number].argmax() if second else None)
        for here, there in zip(one.layers, trained_on, strict=True):
            # Exact: the same operations on the same shapes.
            assert torch.equal(here.record.weights, there.weights)


def test_training_changes_the_vectors_of_both_sentences(tmp_path: Path) -> None:
    plan = plan_pairs(PAIRS, tmp_path / "run", recipe("data.validation=0.4"))
    before = plan.run.model.body.get_parameter("token_type_embedding.weight").clone()
    progress = plan.execute(Settings(environment=ExecutionEnvironment.choose("cpu"), quiet=True))
    after = plan.run.model.body.get_parameter("token_type_embedding.weight")
    assert (before != after).any(-1).all()
    assert progress.best_loss is not None, "a pair was held out"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.n_token_types=0"], "set model.kind=encoder and model.n_token_types=2"),
        (["model.n_token_types=1"], "set model.kind=encoder and model.n_token_types=2"),
        (["head.kind=classification"], "set head.kind=masked-lm"),
        (["model.context_length=8"], "takes 11 tokens, and the model has room for 7"),
    ],
)
def test_what_cannot_learn_pairs_is_refused(changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_pairs(PAIRS, Path("unused"), recipe(*changes))
