"""Pretraining on pairs of sentences, as a BERT reads them (Devlin et al., 2019, §3.1)."""

from collections.abc import Sequence
from pathlib import Path

from regard.errors import UserError
from regard.models.config import EncoderConfig, MaskedLMHeadConfig
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.text.corpus import Document
from regard.text.tokenizer import Tokenizer, train_tokenizer
from regard.training import sources
from regard.training.sources import Source
from regard.training.stages import Plan, describe_origin, hold_out, plan

TextPair = tuple[str, str]
"""Two sentences; the second may be empty."""


def plan_pairs(pairs: Sequence[TextPair], out: Path, recipe: Recipe) -> Plan:
    """Pretraining by masked tokens, each token with the sentence that it belongs to.

    Raises:
        UserError: the recipe's model doesn't tell two sentences apart, or a pair can't be encoded
            or is too long.
    """
    model = recipe.model
    if not isinstance(model, EncoderConfig) or model.n_token_types < 2:
        raise UserError("pairs of sentences: set model.kind=encoder and model.n_token_types=2")
    if not isinstance(recipe.head, MaskedLMHeadConfig):
        raise UserError("pairs of sentences: set head.kind=masked-lm, to learn from masks")
    tokenizer = train_tokenizer(recipe.tokenizer, [text for pair in pairs for text in pair if text])
    corpus = [Document("\t".join(pair), f"pair {i}") for i, pair in enumerate(pairs, 1)]
    run = Run.new(out, recipe, tokenizer, describe_origin("pretraining", corpus, ()))
    training, held_out = hold_out(pairs, recipe)
    checks = [_source(held_out, tokenizer, recipe)] if held_out else []
    parts = [_source(training, tokenizer, recipe)]
    return plan(run, parts, checks, recipe.pretraining, "pretraining")


def _source(pairs: Sequence[TextPair], tokenizer: Tokenizer, recipe: Recipe) -> Source:
    encoded = [_encoded(tokenizer, *pair) for pair in pairs]
    for (first, second), (ids, _) in zip(pairs, encoded, strict=True):
        if len(ids) > recipe.max_prompt_tokens:
            raise UserError(
                f"the pair {first!r}, {second!r} takes {len(ids)} tokens, and the model has room "
                f"for {recipe.max_prompt_tokens}; raise model.context_length, or leave it out"
            )
    return sources.masked_pairs(encoded, tokenizer.size, recipe.objective.masking)


def _encoded(tokenizer: Tokenizer, first: str, second: str) -> tuple[list[int], list[int]]:
    """Ids, and the sentence of each; one sentence is read as any text is."""
    if second:
        return tokenizer.encode_pair(first, second)
    ids = tokenizer.encode(first)
    return ids, [0] * len(ids)
