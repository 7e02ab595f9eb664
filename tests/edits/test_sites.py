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
from regard.edits.lens import lens
from regard.edits.places import intercept_places
from regard.edits.sites import Site, find_site, model_sites, sites
from regard.edits.tokens import Hook, Tokens
from regard.errors import UnsupportedError, UserError
from regard.explorer.look import look
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


def test_shared_keys_are_sites_of_their_own() -> None:
    names = [site.name for site in sites(mechanism_run("softmax"))]
    assert "decoder.0.queries.1" in names
    assert "decoder.0.keys.0" in names
    assert "decoder.0.keys.1" not in names


def test_only_gated_heads_have_a_place_before_the_gate() -> None:
    gated = {site.name for site in sites(mechanism_run("gated-softmax"))}
    plain = {site.name for site in sites(mechanism_run("softmax"))}
    assert gated - plain == {f"decoder.{i}.heads.{h}.raw" for i in (0, 1) for h in (0, 1)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("decoder.0.heads.7", "has 2 heads, numbered from 0"),
        ("decoder.0.head.1", "did you mean decoder.0.heads.1"),
        ("encoder.0.residual", "did you mean decoder.0.residual"),
        ("", "is not in this model"),
    ],
)
def test_an_unknown_site_names_what_is_near(name: str, message: str) -> None:
    known = {site.name: site for site in model_sites(mechanism_run("softmax").model)}
    with pytest.raises(UserError, match=message):
        find_site(known, name)


def test_heads_are_all_the_layer_adds() -> None:
    """Σ_h W_O head_h + bias is the output of attention; parts sum to the residual."""
    run = mechanism_run("gated-softmax")
    (inputs, *_), layer = text_inputs(run, TEXT), decoder_layer(run, 0)
    names = ["heads.0", "heads.1", "attention", "residual", "residual.attention"]
    names += ["feedforward", "residual.feedforward"]
    found = activations(run, inputs, [s for s in sites(run) if s.name[10:] in names])
    at = {name: found[f"decoder.0.{name}"] for name in names}
    parts = zip(
        [at["heads.0"], at["heads.1"]], layer.self_attention.o_proj.weight.chunk(2, 1), strict=True
    )
    summed = sum(head @ weight.T for head, weight in parts)
    bias = layer.self_attention.o_proj.bias
    assert off(summed + (0 if bias is None else bias), at["attention"]) <= ROUNDING
    assert torch.equal(at["residual"] + at["attention"], at["residual.attention"])
    assert torch.equal(at["residual.attention"] + at["feedforward"], at["residual.feedforward"])


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


def test_layers_of_a_perceiver_cannot_be_looked_at_or_read_by_the_lens() -> None:
    run = family_run("perceiver")
    with pytest.raises(UnsupportedError, match="a perceiver are no sums of its layers"):
        lens(run, TEXT)
    with pytest.raises(UserError, match="attends to latents"):
        look(run, TEXT, edit=edits.zero("decoder.1.residual"))


def test_a_mechanism_has_sites_of_what_it_receives() -> None:
    """A second query is a gate; a synthesizer has no keys, a random one no queries."""

    def parts(kind: str) -> Counter[str]:
        found = Counter(s.part for s in sites(mechanism_run(kind)) if s.name[:10] == "decoder.0.")
        return Counter({part: found[part] for part in ("queries", "keys", "values", "heads")})

    assert parts("differential") == {"queries": 2, "keys": 1, "values": 1, "heads": 2}
    assert parts("synthesizer") == {"queries": 2, "keys": 0, "values": 1, "heads": 2}
    assert parts("synthesizer, random") == {"queries": 0, "keys": 0, "values": 1, "heads": 2}
    assert parts("latent") == {"queries": 2, "keys": 2, "values": 2, "heads": 2}


def test_hooks_meet_the_tokens_that_they_are_for() -> None:
    run, seen = mechanism_run("softmax"), list[Tokens]()

    def hook(x: Tensor, tokens: Tokens, _: Tokens) -> Tensor:
        seen.append(tokens)
        return x

    model, ids = run.language_model, torch.tensor([[1, 3, 5, 6], [1, 4, 5, 0]])
    real = torch.tensor([[True] * 4, [True] * 3 + [False]])
    with intercept_places(model, {"decoder.1.residual": hook}):
        _, states = model.extend(ids, model.init_state(2, 6), real)
        model.extend(torch.tensor([[7], [8]]), states)
    assert seen[0].prompt.lengths.tolist() == [4, 3]
    assert seen[1].positions.tolist() == [[4], [3]]
    assert seen[1].prompt is seen[0].prompt
