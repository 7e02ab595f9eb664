"""Pairs of sentences are learned with the sentence of each token."""

from pathlib import Path

import torch
from exercise_files import pairs

from regard.config import override
from regard.data import IGNORE
from regard.environment import ExecutionEnvironment
from regard.explorer.intercept import capture_attention
from regard.explorer.look import look
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.training.loop import ExecutionOptions

PAIRS = [("I had a party.", "I bought a cake."), ("The dog ran.", ""), ("We saw it.", "It ran.")]
TINY = (
    *("tokenizer.kind=words", "model.n_layers=1", "model.n_heads=2", "model.d_model=16"),
    *(
        "model.context_length=24",
        "model.n_token_types=2",
        "data.validation=0",
        "training.steps=2",
    ),
    *("training.batch=3", "training.shuffle=false"),
)


def recipe(*changes: str) -> Recipe:
    return override(RECIPES["masked"], [*TINY, *changes])


def test_what_is_learned_is_what_is_looked_at(tmp_path: Path) -> None:
    """A row of training and `look` give the model the same ids, lengths and token types."""
    plan = pairs.plan_pairs(PAIRS, tmp_path / "run", recipe())
    batch = plan.sampler.batch(0)
    lengths, types = batch.inputs["input_ids"].lengths, batch.inputs["token_type_ids"].ids
    plan.run.model.eval()
    unmasked = batch.input_ids.where(batch.labels == IGNORE, batch.labels)
    for number, (first, second) in enumerate(PAIRS):
        n = int(lengths[number])
        inputs = (unmasked[number, None, :n], lengths[number, None])
        trained_on = capture_attention(plan.run.model, *inputs, types[number, None, :n])
        (one,) = look(plan.run, first, second or None).panels[0].maps
        assert one.second == (types[number].argmax() if second else None)
        for here, there in zip(one.layers, trained_on, strict=True):
            # Exact: the same operations on the same shapes.
            assert torch.equal(here.record.weights, there.weights)


def test_training_changes_the_vectors_of_both_sentences(tmp_path: Path) -> None:
    plan = pairs.plan_pairs(PAIRS, tmp_path / "run", recipe("data.validation=0.4"))
    before = plan.run.model.body.get_parameter("token_type_embedding.weight").clone()
    progress = plan.execute(
        ExecutionOptions(environment=ExecutionEnvironment.choose("cpu"), quiet=True)
    )
    after = plan.run.model.body.get_parameter("token_type_embedding.weight")
    assert (before != after).any(-1).all()
    assert progress.best_loss is not None, "a pair was held out"
