"""Sites: every place of every model, with its shape; setting a place to itself changes nothing."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from regard import edits
from regard.edits.activations import Recorder, activations, of_site, text_inputs
from regard.edits.apply import edited
from regard.edits.edit import Edit, Edits
from regard.edits.places import intercept_places
from regard.edits.sites import Site, sites
from regard.edits.tokens import Hook
from regard.huggingface.convert.families import FAMILIES as IMPORTED
from regard.models.attention_layers import SharedValues
from regard.models.perceiver import PerceiverDecoder
from regard.runs.run import Run
from tiny_edited import (
    BODIES,
    MECHANISMS,
    TEXT,
    decoder_layer,
    family_run,
    imported_run,
    mechanism_run,
    off,
    require_refused,
    texts_of,
)

ROUNDING = 1e-9


def constant(value: Tensor) -> Hook:
    return lambda x, *_: value if x.shape == value.shape else x


def at_each_token(value: Tensor) -> Hook:
    return lambda _, tokens, *__: value[:, :, tokens.positions[0]]


def check_every_site(run: Run) -> None:
    """Shapes are as stated, and each tensor replaced by itself gives the same output."""
    every = sites(run)
    states = [site for site in every if site.part == "states"]
    check_sites(run, [site for site in every if site not in states])
    if states:  # there are no weights where states are met
        check_sites(run, states)


def check_sites(run: Run, found: Sequence[Site]) -> None:
    inputs, *_ = text_inputs(run, *texts_of(run))
    own = run.model.body(*inputs)
    recorder = Recorder(found)
    with torch.no_grad(), intercept_places(run.model, recorder.hooks):
        recorded = run.model.body(*inputs)
    assert off(recorded, own) <= ROUNDING
    source, target = inputs[0].shape[1], inputs[-1].shape[-1]
    heads = Counter(site.place for site in found if site.head is not None)
    for site in found:
        reads_target = len(inputs) == 3 and site.name.startswith("decoder")
        lengths = {"n": target if reads_target else source, "m": source}
        lengths["l"] = min(source, getattr(run.model.body, "n_latents", source))
        x = recorder.tensors[site.place]
        assert site.head is None or x.shape[1] == heads[site.place], site
        shape = [lengths.get(str(size), size) for size in site.shape]
        assert list(of_site(x, site).shape[1:]) == shape, site
    hooks = {
        place: at_each_token(x) if place.endswith(".states") else constant(x)
        for place, x in recorder.tensors.items()
        if not place.endswith((".hidden", ".cell"))
    }
    with intercept_places(run.model, hooks):
        assert off(run.model.body(*inputs), own) <= ROUNDING
    assert torch.equal(run.model.body(*inputs), own), "nothing stays"


@pytest.mark.parametrize("family", BODIES)
def test_every_site_of_every_family(family: str) -> None:
    check_every_site(family_run(family))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_every_site_of_every_mechanism(kind: str) -> None:
    check_every_site(mechanism_run(kind))


@pytest.mark.slow
@pytest.mark.parametrize("family", IMPORTED)
def test_every_site_of_every_imported_family(family: str) -> None:
    check_every_site(imported_run(family))


@pytest.mark.parametrize("family", ["decoder, hybrid", "encoder-decoder", "rnn, lstm", "perceiver"])
def test_every_site_matters(family: str) -> None:
    """Zero at any place but the last changes the output; softmax ignores equal scores alone."""
    run = family_run(family)
    inputs, *_ = text_inputs(run, *texts_of(run))
    own = run.model.body(*inputs)
    for site in sites(run):
        with edited(run, edits.zero(site.name)):
            assert off(run.model.body(*inputs), own) > 1e-6, site


def test_sandwiched_parts_are_what_the_residual_stream_gains() -> None:
    """`attention` is after the second norm; heads are before the output projection."""
    run = family_run("decoder, sandwich")
    (inputs, *_), layer = text_inputs(run, TEXT), decoder_layer(run, 1)
    at = {s.name: s for s in sites(run) if s.name.startswith("decoder.1.")}
    found = {name[10:]: x for name, x in activations(run, inputs, at.values()).items()}
    heads = torch.cat([found["heads.0"], found["heads.1"]], -1)
    norms = layer.norm_attention_out, layer.norm_feed_forward_out
    assert norms[0] is not None
    assert norms[1] is not None
    assert off(norms[0](layer.self_attention.o_proj(heads)), found["attention"]) <= ROUNDING
    read = layer.norm_feed_forward(found["residual.attention"])
    assert off(norms[1](layer.feed_forward(read)), found["feedforward"]) <= ROUNDING
    assert torch.equal(found["residual"] + found["attention"], found["residual.attention"])
    total = found["residual.attention"] + found["feedforward"]
    assert torch.equal(total, found["residual.feedforward"])


@pytest.mark.parametrize("family", ["decoder, embeddings", "decoder, shared values"])
def test_values_are_edited_after_their_mixture(family: str) -> None:
    """v_l is a site; the first layer's v_1 that later layers add is not."""
    run = family_run(family)
    inputs, *_ = text_inputs(run, TEXT)
    names = [s.name for s in sites(run) if s.part == "values"]
    mixed: list[Tensor] = []
    first: list[Tensor] = []

    def keep(_: nn.Module, given: tuple[Tensor, SharedValues], out: Tensor) -> None:
        mixed.append(out)
        first.append(given[1].first)

    for i in (0, 1):
        decoder_layer(run, i).self_attention.mixture.register_forward_hook(keep)
    known = {site.name: site for site in sites(run)}
    found = activations(run, inputs, [known[name] for name in names])
    for name, x in found.items():
        assert torch.equal(x, mixed[known[name].place == "decoder.1.values"][:, known[name].head])
    with edited(run, edits.zero("decoder.0.values.0")):
        run.model.body(*inputs)
    assert torch.equal(first[3], first[1]), "v_1 is not edited"
    assert off(mixed[3], mixed[1]) > ROUNDING, "the residual stream is"


@torch.no_grad()
def test_heads_of_a_perceiver_are_all_its_layers_add() -> None:
    """Zero at a head of each layer is the model without the head's columns of W_O."""
    run = family_run("perceiver")
    (inputs, *_), body = text_inputs(run, TEXT), run.model.body
    assert isinstance(body, PerceiverDecoder)
    names = ["decoder.0.cross", "decoder.1", "decoder.2.cross"]
    with edited(run, Edits(tuple(edits.zero(f"{name}.heads.1") for name in names))):
        found = run.model.body(*inputs)
    inner = body._layers()[0].self_attention
    for attention in (body.down.cross_attention, inner, body.up.cross_attention):
        attention.o_proj.weight[:, attention.d_head :] = 0
    assert off(found, run.model.body(*inputs)) <= ROUNDING


PERCEIVER_ERRORS: list[tuple[Edit, str]] = [
    (edits.zero("decoder.1.residual", at="Ada"), "latents have no word 'Ada'; name a latent by"),
    (edits.zero("decoder.0.cross.heads.0", at=8), "position 8 isn't in a text of 8 latents"),
    (edits.zero("decoder.0.cross.keys.0", at=8), "position 8 isn't in a text of 8 tokens"),
    (edits.patch("decoder.1.residual", "Ada was born"), "the source has 4 latents, and the text 8"),
    (edits.cut("decoder.2.cross.heads.0", query="Ada", key="Ada"), "latents have no word 'Ada'"),
    (edits.zero("decoder.0.heads.0"), "did you mean decoder.1.heads.0"),
]


def test_latents_are_named_by_number() -> None:
    for edit, message in PERCEIVER_ERRORS:
        require_refused(family_run("perceiver"), edit, message)


def test_the_last_latent_is_that_of_the_last_token_or_the_last_of_all() -> None:
    run, name = family_run("perceiver"), "decoder.1.residual.feedforward"
    site = next(site for site in sites(run) if site.name == name)
    for text, last in (("Ada was born", 3), (TEXT, 7)):
        inputs, *_ = text_inputs(run, text)
        with edited(run, edits.zero(name, at="last")):
            found = activations(run, inputs, [site])[name][0]
        assert [i for i, row in enumerate(found) if not row.any()] == [last]


HEADS = {
    "softmax": {"queries": 2, "keys": 1, "values": 1, "heads": 2},
    "gated-softmax": {"queries": 2, "keys": 1, "values": 1, "raw": 2, "heads": 2},
    "differential": {"queries": 4, "keys": 1, "values": 1, "raw": 2, "heads": 2},
    "synthesizer": {"queries": 2, "values": 1, "heads": 2},
    "synthesizer, random": {"values": 1, "heads": 2},
    "latent": {"queries": 2, "keys": 2, "values": 2, "heads": 2},
}
"""Numbers of heads in each part of a layer, whose two query heads share a key/value head.

A second query is a gate; a synthesizer has no keys, a random one no queries. Only heads that are
gated or normalized have a place before that, raw.
"""


@pytest.mark.parametrize("kind", HEADS)
def test_a_mechanism_has_sites_of_what_it_receives(kind: str) -> None:
    found = Counter(s.part for s in sites(mechanism_run(kind)) if s.layer == "decoder.0")
    parts = ("queries", "keys", "values", "raw", "heads")
    assert {part: found[part] for part in parts if part in found} == HEADS[kind]
