"""Pretraining by masked tokens on pairs of sentences (Devlin et al., 2019, §3.1)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from regard.data.batch import WeightedDataset
from regard.data.masked import MaskedTokens, mask_tokens
from regard.runs.recipe import Recipe
from regard.runs.run import Run, describe_origin
from regard.text.corpus import Document
from regard.text.template import Affixes
from regard.text.tokenizer import train_tokenizer
from regard.training.plan import Plan, plan_run
from regard.training.sources.base import Datasets, hold_out

TextPair = tuple[str, str]
"""Two sentences; the second may be empty."""


def plan_pairs(pairs: Sequence[TextPair], out: Path, recipe: Recipe) -> Plan:
    """Plan pretraining of an encoder with two token types and a head for masked tokens."""
    tokenizer = train_tokenizer(recipe.tokenizer, [text for pair in pairs for text in pair if text])
    corpus = [Document("\t".join(pair), f"pair {i}") for i, pair in enumerate(pairs, 1)]
    run = Run.new(out, recipe, tokenizer, describe_origin("pretraining", corpus, ()))
    training, held_out = (_masked_pairs(run, part) for part in hold_out(pairs, recipe))
    datasets = [WeightedDataset(training)]
    return plan_run(run, Datasets(training=datasets, held_out=[held_out]), "pretraining")


def _masked_pairs(run: Run, pairs: Sequence[TextPair]) -> MaskedTokens:
    encode = run.tokenizer.encode
    encoded = [
        run.template.join(Affixes(), encode(first), encode(second) if second else None)
        for first, second in pairs
    ]
    corrupt = partial(
        mask_tokens,
        mask=run.tokenizer.special.require("mask"),
        share=run.recipe.objective.masking,
        regular_ids=run.tokenizer.regular_ids,
    )
    ids, types = ([row[i] for row in encoded] for i in range(2))
    return MaskedTokens(ids, run.row_format, corrupt, token_type_ids=types)
