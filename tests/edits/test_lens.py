"""The lens reads each layer as the model reads the last; parts sum to what they are parts of."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard as package
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
from regard.models.layers import Layer
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.text.tokenizer import word_tokenizer
from tiny_edited import (
    BODIES,
    MECHANISMS,
    OTHER,
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
    assert "before the soft cap" in "\n".join(found.lines())


def test_parts_are_those_of_their_heads() -> None:
    """W_O of one head, divided by the deviation that the last norm meets in the whole sum."""
    run = mechanism_run("gated-softmax")
    inputs, layer = text_inputs(run, TEXT)[0], decoder_layer(run, 0)
    names = ("decoder.0.heads.1", "decoder.1.residual.feedforward")
    known = {site.name: site for site in sites(run)}
    head, last = activations(run, inputs, [known[name] for name in names]).values()
    added = head[0] @ layer.self_attention.o_proj.weight[:, head.shape[-1] :].T
    expected = _scaled(run.model.body.norm, last[0], added)
    found = parts_of(run.model, inputs)
    assert off(found.values[found.names.index(names[0])], expected) <= ROUNDING


def test_later_norms_scale_earlier_parts() -> None:
    """With norms after the sums, a part passes all later ones; in a sandwich, its branch's."""
    for family in ("decoder, post", "decoder, sandwich"):
        run = family_run(family)
        inputs, recorder = text_inputs(run, TEXT)[0], Recorder(sites(run))
        with torch.no_grad(), intercept_places(run.model, recorder.hooks):
            run.model.body(*inputs)
        at = {name: x[0] for name, x in recorder.tensors.items()}
        expected = _first_head(at, decoder_layer(run, 0))
        if family == "decoder, post":
            for i in (0, 1):
                layer = decoder_layer(run, i)
                stream = at[f"decoder.{i}.residual"] + at[f"decoder.{i}.attention"]
                expected = _scaled(layer.norm_attention, stream, expected)
                stream = at[f"decoder.{i}.residual.attention"] + at[f"decoder.{i}.feedforward"]
                expected = _scaled(layer.norm_feed_forward, stream, expected)
        else:
            heads = at["decoder.0.heads"].transpose(0, 1).flatten(1)
            layer = decoder_layer(run, 0)
            assert layer.norm_attention_out is not None
            expected = _scaled(
                layer.norm_attention_out, layer.self_attention.o_proj(heads), expected
            )
            expected = _scaled(run.model.body.norm, at["decoder.1.residual.feedforward"], expected)
        found = parts_of(run.model, inputs)
        assert off(found.values[found.names.index("decoder.0.heads.0")], expected) <= ROUNDING


def _first_head(at: dict[str, Tensor], layer: Layer) -> Tensor:
    """What the first head adds before any norm."""
    head = at["decoder.0.heads"][0]
    return head @ layer.self_attention.o_proj.weight[:, : head.shape[-1]].T


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
]


def test_what_has_no_lens_is_refused() -> None:
    for made, kind, message in REFUSED:
        with pytest.raises(kind, match=message) as caught:
            lens(made(), TEXT)
        assert "\n" not in str(caught.value)


def test_the_package_has_it() -> None:
    assert package.lens is lens


def test_the_command_writes_a_page_and_a_file(regard: Any, run: Path) -> None:
    done = regard("lens", run, "Ada was born in", "--json", "lens.json")
    assert done.code == 0, done.err
    page = (run.parent / "lens.html").read_text("utf-8")
    assert "decoder.0.residual.feedforward" in page
    assert '<th scope="col" class="number">probability</th>' in page
    assert "<p>Each cell: " in page
    found = json.loads((run.parent / "lens.json").read_text("utf-8"))
    assert {row["part"] for row in found["contributions"]} >= {"decoder.0.heads.0"}
    assert "Σ parts − hidden state" in done.out
    refused = regard("lens", run, OTHER, "--right", "Rome", "--out", "other.html")
    assert refused.code == 2
    assert "--right and --wrong belong together" in refused.err
    assert not refused.new
