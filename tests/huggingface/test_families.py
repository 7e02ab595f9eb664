"""Models of all families compute here what they do in transformers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from regard.decoding import generate_ids, search_ids
from regard.edits.places import intercept_places
from regard.explorer.intercept import capture_attention
from regard.huggingface.convert.families import FAMILIES
from regard.models.builders import LanguageModel, Model, SequenceToSequence
from tiny_hugging_face import (
    BLOCK,
    CASES,
    VARIANTS,
    VOCABULARY,
    ours,
    tensors_of,
    tiny,
    without_upcasts,
)

GENERATING = [family for family in VARIANTS if FAMILIES[family].head.__struct_config__.tag == "lm"]
LENGTHS = torch.tensor([BLOCK, 1, 7, 12])
REAL = torch.arange(BLOCK) < LENGTHS[:, None]
SPECIAL = 5
"""Ids below are special in some family."""


def ids(rows: int, n: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SPECIAL, VOCABULARY, (rows, n), generator=generator)


@torch.no_grad()
def our_logits(model: Model, text: Tensor, target: Tensor) -> Tensor:
    inputs = (text, LENGTHS, target) if isinstance(model, SequenceToSequence) else (text, LENGTHS)
    logits: Tensor = model(*inputs[:1]) if isinstance(model, LanguageModel) else model(*inputs)
    return logits


@torch.no_grad()
def their_logits(model: PreTrainedModel, text: Tensor, target: Tensor) -> Tensor:
    padding = getattr(model.config, "pad_token_id", None) or 0
    inputs: dict[str, Any] = {"input_ids": text.masked_fill(~REAL, padding)}
    inputs["attention_mask"] = REAL.long()
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = target
    logits: Tensor = model(**inputs).logits
    return logits


def difference(model: PreTrainedModel, found: Tensor, expected: Tensor) -> float:
    """The largest difference of logits at real tokens, relative to the largest logit."""
    if not model.config.is_encoder_decoder:
        found, expected = found[REAL], expected[REAL]
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("family", VARIANTS)
def test_logits_are_those_of_transformers(family: str) -> None:
    """In float32 on right-padded rows; all variants are compared in float64 with gradients."""
    theirs = tiny(family, next(iter(VARIANTS[family])), dtype=torch.float32)
    text, target = ids(len(LENGTHS), BLOCK), ids(len(LENGTHS), 9, seed=1)
    found = our_logits(ours(theirs), text, target)
    assert difference(theirs, found, their_logits(theirs, text, target)) <= 1e-4


@pytest.mark.parametrize(("family", "variant"), CASES)
def test_logits_and_gradients_are_those_of_transformers(family: str, variant: str) -> None:
    """In float64, without the upcasts of transformers; with token types, if there are several."""
    theirs = without_upcasts(tiny(family, variant))
    model, text, target = ours(theirs), ids(len(LENGTHS), BLOCK), ids(len(LENGTHS), 9, seed=1)
    given: dict[str, Any] = {"input_ids": text, "attention_mask": REAL.long()}
    inputs = [text] if isinstance(model, LanguageModel) else [text, LENGTHS]
    if isinstance(model, SequenceToSequence):
        inputs.append(target)
        given["decoder_input_ids"] = target
    if getattr(theirs.config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = ids(len(LENGTHS), BLOCK, seed=2) % theirs.config.type_vocab_size
        inputs.append(given["token_type_ids"])
    found, expected = model(*inputs), theirs(**given).logits
    assert difference(theirs, found.detach(), expected.detach()) <= 1e-9
    real = slice(None) if theirs.config.is_encoder_decoder else REAL
    expected.retain_grad()
    for logits in (found, expected):
        logits[real].logsumexp(-1).sum().backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    if family == "bart":  # a buffer, which has no gradient
        gradients["final_logits_bias"] = expected.grad.sum((0, 1))[None]
    own = FAMILIES[family]
    config = own.read_config(own.amend(theirs.config.to_dict(), tensors_of(theirs)))
    converted, _ = own.load_weights(gradients, config)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        largest = max(1.0, float(converted[name].abs().max()))
        assert float((parameter.grad - converted[name]).abs().max()) <= 1e-9 * largest, name


_LLAMA = ("decoder.1.heads", "model.layers.1.self_attn.o_proj")
PROJECTIONS = {
    "gpt2": ("decoder.1.heads", "transformer.h.1.attn.c_proj"),
    "gpt_neox": ("decoder.1.heads", "gpt_neox.layers.1.attention.dense"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"), _LLAMA),
    "gemma3_text": ("decoder.5.heads", "model.layers.5.self_attn.o_proj"),
    "qwen3_next": ("decoder.1.heads", "model.layers.1.linear_attn.out_proj"),
    "bert": ("encoder.1.heads", "bert.encoder.layer.1.attention.output.dense"),
    "roberta": ("encoder.1.heads", "roberta.encoder.layer.1.attention.output.dense"),
    "distilbert": ("encoder.1.heads", "distilbert.transformer.layer.1.attention.out_lin"),
    "t5": ("decoder.1.cross.heads", "decoder.block.1.layer.1.EncDecAttention.o"),
    "bart": ("decoder.1.cross.heads", "model.decoder.layers.1.encoder_attn.out_proj"),
}
"""A site of each family, and the projection of its heads in transformers."""


@pytest.mark.parametrize("family", VARIANTS)
def test_heads_are_edited_as_in_transformers(family: str) -> None:
    """The third of four heads, at zero before the output projection."""
    theirs = without_upcasts(tiny(family, next(iter(VARIANTS[family]))))
    place, projection = PROJECTIONS[family]
    text, target = ids(len(LENGTHS), BLOCK), ids(len(LENGTHS), 9, seed=1)
    before = their_logits(theirs, text, target)

    def without(heads: Tensor) -> Tensor:
        return heads.index_fill(-2, torch.tensor([2]), 0)

    def hook(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        return (without(given[0].unflatten(-1, (4, -1))).flatten(-2),)

    module = theirs.get_submodule(projection)
    with_hook = module.register_forward_pre_hook(hook)
    expected = their_logits(theirs, text, target)
    with_hook.remove()
    model = ours(theirs)
    hooks = {place: lambda x, *_: without(x.transpose(1, 2)).transpose(1, 2)}
    with intercept_places(model, hooks):
        found = our_logits(model, text, target)
    assert difference(theirs, found, expected) <= 1e-9
    assert difference(theirs, before, expected) > 1e-4


@pytest.mark.parametrize("family", ["qwen3_next", "gemma", "gemma2", "gemma3_text"])
def test_the_explorer_shows_the_weights_of_each_layer(family: str) -> None:
    """Which are checked against the outputs of the kernels."""
    theirs = tiny(family, next(iter(VARIANTS[family])))
    records = capture_attention(ours(theirs), ids(1, BLOCK))
    assert len(records) == theirs.config.num_hidden_layers
    for record in records:
        torch.testing.assert_close(record.output_from(record.weights), record.out)


@pytest.mark.parametrize(("place", "family"), list(enumerate(GENERATING)))
def test_greedy_choice_and_beam_search_write_what_transformers_writes(
    place: int, family: str
) -> None:
    """In one variant of each family; logits are equal in all."""
    variant = list(VARIANTS[family])[place % 3]
    eos = 6
    marks: dict[str, Any] = {"eos_token_id": eos, "pad_token_id": 1, "bos_token_id": 0}
    theirs: Any = without_upcasts(tiny(family, variant, **marks))
    model, prompts = ours(theirs), ids(10, 5)
    prompts = torch.where(prompts == eos, eos + 1, prompts)
    options: dict[str, Any] = {"max_new_tokens": 7, "do_sample": False, "eos_token_id": eos}
    if theirs.config.is_encoder_decoder:
        options["decoder_start_token_id"] = 2
        options["use_cache"] = family != "t5"  # whose cache has only as many layers as the encoder
        assert isinstance(model, SequenceToSequence)
        starts, lengths = [[2]] * len(prompts), torch.full((len(prompts),), prompts.shape[1])
        generator: Any = model.condition(prompts, lengths)
    else:
        starts, generator = prompts.tolist(), model
    mask = torch.ones_like(prompts)
    beams = {"num_beams": 4, "early_stopping": "never", "length_penalty": 1.0}
    greedy = theirs.generate(prompts, attention_mask=mask, **options)
    best = theirs.generate(prompts, attention_mask=mask, **options, **beams)
    found = generate_ids(generator, starts, max_new_tokens=7, stop_ids=[eos])
    searched = search_ids(generator, starts, beams=4, max_new_tokens=7, stop_ids=[eos])
    skipped = len(starts[0])
    for row in range(len(prompts)):
        assert found[row].ids == until(greedy[row, skipped:].tolist(), eos)
        assert searched[row][0].ids == until(best[row, skipped:].tolist(), eos)


def until(row: list[int], eos: int) -> list[int]:
    return row[: row.index(eos)] if eos in row else row
