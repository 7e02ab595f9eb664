"""Sites: every place of every model, with its shape; setting a place to itself changes nothing."""

import pytest
import torch
from torch import Tensor

from regard import edits
from regard.edits.activations import Recorder, activations, text_inputs
from regard.edits.apply import edited
from regard.edits.places import Hook, intercept_places
from regard.edits.sites import find_site, model_sites, sites
from regard.edits.tokens import Tokens
from regard.errors import UserError
from regard.runs.run import Run
from tiny_edited import MECHANISMS, TEXT, decoder_layer, family_run, mechanism_run, off, texts_of
from tiny_families import FAMILIES

ROUNDING = 1e-9


def constant(value: Tensor) -> Hook:
    return lambda x, *_: value if x.shape == value.shape else x


def check_every_site(run: Run) -> None:
    """Shapes are as stated, and each tensor replaced by itself gives the same output."""
    (inputs, *_), found = text_inputs(run, *texts_of(run)), sites(run)
    own = run.model.body(*inputs)
    recorder = Recorder(found)
    with torch.no_grad(), intercept_places(run.model, recorder.hooks):
        recorded = run.model.body(*inputs)
    assert off(recorded, own) <= ROUNDING
    source, target = inputs[0].shape[1], inputs[-1].shape[-1]
    for site in found:
        reads_target = len(inputs) == 3 and site.name.startswith("decoder")
        lengths = {"n": target if reads_target else source, "m": source}
        x = activations(run, inputs, [site])[site.name] if site.head == 0 else None
        shape = [lengths.get(str(size), size) for size in site.shape]
        assert x is None or list(x.shape[1:]) == shape, site
    hooks = {
        place: constant(x)
        for place, x in recorder.tensors.items()
        if not place.endswith((".hidden", ".cell"))
    }
    with intercept_places(run.model, hooks):
        assert off(run.model.body(*inputs), own) <= ROUNDING
    assert torch.equal(run.model.body(*inputs), own), "nothing stays"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_of_every_family(family: str) -> None:
    check_every_site(family_run(family))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_every_site_of_every_mechanism(kind: str) -> None:
    check_every_site(mechanism_run(kind))


@pytest.mark.parametrize("family", ["decoder, hybrid", "encoder-decoder", "rnn, lstm"])
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
