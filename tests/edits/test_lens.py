"""The lens reads each layer as the model reads the last; parts sum to what they are parts of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import edits
from regard.edits.activations import Recorder, activations, text_inputs
from regard.edits.lens import lens
from regard.edits.page import page
from regard.edits.parts import parts_of
from regard.edits.places import intercept_places
from regard.edits.sites import sites
from regard.edits.table import text_table
from regard.errors import UnsupportedError, UserError
from regard.models.builders import LanguageModel, MaskedLanguageModel, SequenceToSequence
from regard.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from regard.models.head_config import MaskedLMHeadConfig
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.text.config import BytePairsConfig
from regard.text.tokenizer import train_tokenizer, word_tokenizer
from tiny_edited import (
    BODIES,
    MECHANISMS,
    TEXT,
    WORDS,
    decoder_layer,
    family_run,
    mechanism_run,
    off,
    texts_of,
    tiny_run,
)
from tiny_families import SIZES
from tiny_hugging_face import CASES, ours, tiny
from tiny_recurrent import sharp

ROUNDING = 1e-9
TRANSFORMERS = [name for name in BODIES if name.split(",")[0] in ("decoder", "encoder-decoder")]
IMPORTED = list(dict(CASES).items())
"""A configuration of each imported family."""
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def logits_of(run: Run, text: str, second: str | None = None) -> Tensor:
    """The logits of the model after each token, without interception."""
    assert isinstance(run.model, LanguageModel | SequenceToSequence | MaskedLanguageModel)
    with torch.no_grad():
        logits: Tensor = run.model.head(run.model.body(*text_inputs(run, text, second)[-1]))[0]
    return logits


def masked_run(**settings: Any) -> Run:
    """An encoder that predicts masked tokens."""
    recipe = Recipe(model=EncoderConfig(**SIZES, **settings), head=MaskedLMHeadConfig())
    run = Run.new(Path("tiny"), recipe, word_tokenizer([f" {word}" for word in WORDS]), {})
    sharp(run.model)
    return run


def check(run: Run) -> None:
    """Parts sum to layers, hidden states and logits; the last reading is the model's."""
    texts = texts_of(run)
    found, logits = lens(run, *texts), logits_of(run, *texts)
    assert found.parts.remainder_of_layers <= ROUNDING
    assert found.parts.remainder <= ROUNDING
    own = found.contributions
    assert own is not None
    assert own.remainder <= ROUNDING
    best = logits[-1].topk(2).values
    assert own.difference == pytest.approx(float(best[0] - best[1]), abs=ROUNDING)
    likely = logits.softmax(-1).max(-1)
    assert np.allclose(found.probabilities[-1], likely.values, atol=ROUNDING)
    assert found.predictions[-1] == tuple(
        run.tokenizer.decode([i]) for i in likely.indices.tolist()
    )
    assert np.array_equal(found.probabilities[-1], found.final_token_probabilities[-1])


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_parts_of_every_family_sum(family: str) -> None:
    check(family_run(family))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_parts_of_every_mechanism_sum(kind: str) -> None:
    check(mechanism_run(kind))


@pytest.mark.parametrize(("family", "variant"), IMPORTED)
def test_parts_of_imported_families_sum(family: str, variant: str) -> None:
    model, n = ours(tiny(family, variant)), torch.tensor([8])
    found = parts_of(model, [IDS, n, IDS] if isinstance(model, SequenceToSequence) else [IDS, n])
    assert found.remainder_of_layers <= ROUNDING
    assert found.remainder <= ROUNDING


def test_a_scaled_head_and_a_soft_cap() -> None:
    source, target = (BODIES["encoder-decoder"], {"tie_head": True, "scale_head": True})
    assert isinstance(source, EncoderDecoderConfig)
    check(tiny_run(EncoderDecoderConfig(encoder=source.encoder, decoder=source.decoder, **target)))
    cap = 1.5
    run = tiny_run(DecoderConfig(**SIZES, logit_softcap=cap))
    found = lens(run, TEXT, metric=edits.logit_difference("Rome", "Oslo"))
    own, logits = found.contributions, logits_of(run, TEXT)[-1]
    assert own is not None
    ids = [run.tokenizer.encode(word)[0] for word in ("Rome", "Oslo")]
    before = cap * (logits[ids] / cap).atanh()
    assert own.difference == pytest.approx(float(before[0] - before[1]))
    assert own.remainder <= ROUNDING
    notes = "\n".join(found.lines())
    assert "before the soft cap" in notes
    assert "Σ parts − hidden state" in notes


NORMS: dict[str, Callable[[], Run]] = {
    "pre": lambda: mechanism_run("gated-softmax"),
    "post": lambda: family_run("decoder, post"),
    "sandwich": lambda: family_run("decoder, sandwich"),
}


@pytest.mark.parametrize("norm", NORMS)
def test_later_norms_scale_earlier_parts(norm: str) -> None:
    """With norms after the sums, a part passes all later ones; else its branch's and the last."""
    run = NORMS[norm]()
    inputs, recorder = text_inputs(run, TEXT)[0], Recorder(sites(run))
    with torch.no_grad(), intercept_places(run.model, recorder.hooks):
        run.model.body(*inputs)
    at = {name: x[0] for name, x in recorder.tensors.items()}
    first, heads = decoder_layer(run, 0), at["decoder.0.heads"]
    project = first.self_attention.o_proj
    expected = heads[0] @ project.weight[:, : heads.shape[-1]].T
    if norm == "post":
        for i in (0, 1):
            layer = decoder_layer(run, i)
            stream = at[f"decoder.{i}.residual"] + at[f"decoder.{i}.attention"]
            expected = _scaled(layer.norm_attention, stream, expected)
            stream = at[f"decoder.{i}.residual.attention"] + at[f"decoder.{i}.feedforward"]
            expected = _scaled(layer.norm_feed_forward, stream, expected)
    else:
        if norm == "sandwich":
            branch = project(heads.transpose(0, 1).flatten(1))
            expected = _scaled(first.norm_attention_out, branch, expected)
        expected = _scaled(run.model.body.norm, at["decoder.1.residual.feedforward"], expected)
    found = parts_of(run.model, inputs)
    assert off(found.values[found.names.index("decoder.0.heads.0")], expected) <= ROUNDING


def _scaled(norm: Any, x: Tensor, part: Tensor) -> Tensor:
    """A part after a layer norm, divided by the deviation of the whole."""
    spread = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    scaled: Tensor = (part - part.mean(-1, keepdim=True)) / spread * norm.weight
    return scaled


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_is_read_by_its_whole_head(norm: str) -> None:
    run = masked_run(norm=norm)
    found, logits = lens(run, TEXT), logits_of(run, TEXT)
    assert found.contributions is None
    assert "isn't linear" in found.lines()[-1]
    assert np.allclose(found.probabilities[-1], logits.softmax(-1).max(-1).values)
    assert found.parts.remainder <= ROUNDING
    with pytest.raises(UnsupportedError, match="isn't linear"):
        lens(run, TEXT, metric=edits.logit_difference("Rome", "Oslo"))


def test_the_first_reading_is_of_the_embedding() -> None:
    run = mechanism_run("softmax")
    found, model = lens(run, TEXT), run.language_model
    site = next(site for site in sites(run) if site.name == "decoder.embedding")
    x = activations(run, text_inputs(run, TEXT)[-1], [site])[site.name]
    with torch.no_grad():
        expected = model.head(run.model.body.norm(x))[0].softmax(-1)  # type: ignore[operator]
    assert np.allclose(found.probabilities[0], expected.max(-1).values)
    assert [row["site"] for row in found.rows()] == list(found.sites)
    assert found.figure().axes


def test_any_token_can_be_drawn() -> None:
    """A dollar begins no formula, and a line break no line of a table."""
    found = lens(mechanism_run("softmax"), TEXT)
    tokens = ("$\\frac$\n",) * len(found.tokens)
    found = replace(found, tokens=tokens, predictions=(tokens,) * len(found.sites))
    assert "frac" in page(found)
    assert len(text_table(found.rows()).splitlines()) == 1 + len(found.sites)


Made = Callable[[], Run]
REFUSED: list[tuple[Made, type[Exception], str]] = [
    (lambda: family_run("rnn, gru"), UnsupportedError, "no residual stream"),
    (lambda: family_run("fixed-window"), UnsupportedError, "no residual stream"),
    (lambda: family_run("encoder"), UserError, "needs a model that predicts tokens"),
    (lambda: family_run("perceiver"), UnsupportedError, "a perceiver are no sums of its layers"),
]


def test_what_has_no_lens_is_refused() -> None:
    for made, kind, message in REFUSED:
        with pytest.raises(kind, match=message) as caught:
            lens(made(), TEXT)
        assert "\n" not in str(caught.value)


def test_a_second_text_is_read_by_a_run_that_answers_questions() -> None:
    run = family_run("decoder")
    run.origin["questions"] = ["q"]
    assert len(lens(run, "Ada was", "born in").tokens) == len(run.encode("Ada was", "born in")[0])


def test_parts_of_characters_are_named_as_in_the_vocabulary() -> None:
    tokenizer = train_tokenizer(BytePairsConfig(size=300), ["the cat sat"])
    run = Run.new(Path("tiny"), Recipe(model=DecoderConfig(**SIZES)), tokenizer, {})
    assert "\ufffd" not in lens(run, "the 東").tokens
