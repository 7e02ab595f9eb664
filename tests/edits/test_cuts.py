"""Cuts of every mechanism equal a masked dense reference."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import edits
from regard.attention import Mask
from regard.edits.activations import activations, text_inputs
from regard.edits.apply import edited
from regard.edits.edit import Cut, Edit, Edits, cut
from regard.edits.sites import sites
from regard.errors import UnsupportedError, UserError
from regard.explorer.intercept import AttentionRecord, capture_attention
from regard.explorer.look import look
from regard.runs.run import Run
from tiny_edited import MECHANISMS, OTHER, TEXT, family_run, mechanism_run, off

ROUNDING = 1e-9
QUERY, KEY = 6, 5
"""A query, and a key before it whose writes are cut."""
RECURRENT = MECHANISMS[MECHANISMS.index("gated-linear") :]
KERNELS = MECHANISMS[MECHANISMS.index("elu") : MECHANISMS.index("gated-linear")]
SCORED = MECHANISMS[: MECHANISMS.index("elu")]
UNMASKED = ["moba", "bigbird", "sliding-window"]
"""Mechanisms that take no dense mask."""


def record_of(run: Run) -> AttentionRecord:
    (inputs, *_), text = text_inputs(run, TEXT), run.model.body
    return capture_attention(text, *inputs)[0]


def outputs(run: Run, edit: Edit | Edits) -> Tensor:
    """What the heads of the first layer give under an edit, before their gates."""
    inputs, *_ = text_inputs(run, TEXT)
    known = {site.name: site for site in sites(run)}
    raw = "decoder.0.heads.0.raw" in known
    names = [f"decoder.0.heads.{h}{'.raw' if raw else ''}" for h in (0, 1)]
    with edited(run, edit):
        found = activations(run, inputs, [known[name] for name in names])
    return torch.stack([found[name] for name in names], 1)


@torch.no_grad()
def reference(record: AttentionRecord, mask: Mask, **gates: Tensor) -> Tensor:
    """The weights in float64, straight from the formula."""
    given: dict[str, Any] = {**record.gates, **gates}
    found: Tensor = record.mechanism.reference(  # type: ignore[operator]
        record.query, record.key, mask, None, **given
    )
    return found


def heaviest(record: AttentionRecord) -> tuple[int, Tensor]:
    """The key that the query reads most of, and a mask of this pair."""
    key = int(record.weights[0, 1, QUERY].abs().argmax())
    pair = torch.zeros(record.weights.shape, dtype=torch.bool)
    pair[:, 1, QUERY, key] = True
    return key, pair


@pytest.mark.parametrize("kind", [kind for kind in SCORED if kind not in UNMASKED])
def test_a_cut_before_normalization_hides_the_key(kind: str) -> None:
    run = mechanism_run(kind)
    record = record_of(run)
    key, pair = heaviest(record)
    expected = reference(record, Mask.causal() & Mask.dense(~pair)) @ record.value
    assert off(expected, record.out) > ROUNDING
    found = outputs(run, cut("decoder.0.heads.1", query=QUERY, key=key))
    assert off(found, expected) <= ROUNDING


@pytest.mark.parametrize("kind", [*UNMASKED, *KERNELS])
def test_a_cut_before_normalization_divides_by_the_other_weights(kind: str) -> None:
    run = mechanism_run(kind)
    record = record_of(run)
    key, pair = heaviest(record)
    weights = reference(record, Mask.causal()).masked_fill(pair, 0)
    expected = weights / weights.sum(-1, keepdim=True) @ record.value
    edit = cut("decoder.0.heads.1", query=QUERY, key=key, how="before-normalization")
    assert off(outputs(run, edit), expected) <= ROUNDING


@pytest.mark.parametrize("kind", MECHANISMS)
def test_an_edge_cut_subtracts_one_term(kind: str) -> None:
    """y_i − W_ij v_j, with W of the reference; other queries keep their output to rounding."""
    run = mechanism_run(kind)
    record = record_of(run)
    key, pair = heaviest(record)
    expected = reference(record, Mask.causal()).masked_fill(pair, 0) @ record.value
    assert off(expected, record.out) > ROUNDING
    how: Any = "edge" if kind in RECURRENT else "after-normalization"
    edit = cut("decoder.0.heads.1", query=QUERY, key=key, how=how)
    assert off(outputs(run, edit), expected) <= ROUNDING


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_write_cut_changes_all_later_outputs(kind: str) -> None:
    """The reference without the token's write and, under a delta rule, without what it erases."""
    run = mechanism_run(kind)
    record = record_of(run)
    unwritten = torch.zeros(record.value.shape[:3], dtype=torch.bool)
    unwritten[:, :, KEY] = True
    gates = {
        name: gate.masked_fill(unwritten.view(*unwritten.shape, *[1] * (gate.ndim - 3)), 0)
        for name, gate in record.gates.items()
        if name in ("beta", "erase", "write")
    }
    value = record.value.masked_fill(unwritten[..., None], 0)
    expected = reference(record, Mask.causal(), **gates) @ value
    found = outputs(run, cut("decoder.0.values.0", key=KEY, how="write"))
    assert off(found[:, :, :KEY], record.out[:, :, :KEY]) <= ROUNDING
    assert off(found, expected) <= ROUNDING
    assert off(found[:, :, KEY + 1 :], record.out[:, :, KEY + 1 :]) > ROUNDING


@pytest.mark.parametrize("kind", [*KERNELS, *RECURRENT])
def test_a_state_at_zero_is_that_of_a_text_that_begins_anew(kind: str) -> None:
    """Later outputs are those of the reference for the later tokens alone; earlier ones stay."""
    run = mechanism_run(kind)
    record = record_of(run)
    later = range(KEY + 1, record.query.shape[2])
    expected = (
        reference(by_token(record, lambda _, x: x[:, :, later]), Mask.causal())
        @ record.value[:, :, later]
    )
    found = outputs(run, every_state(run, lambda site: edits.zero(site, at=KEY)))
    assert off(found[:, :, : KEY + 1], record.out[:, :, : KEY + 1]) <= ROUNDING
    assert off(found[:, :, later], expected) <= ROUNDING
    assert off(found[:, :, later], record.out[:, :, later]) > ROUNDING


@pytest.mark.parametrize("kind", [*KERNELS, *RECURRENT])
def test_a_patched_state_is_that_of_the_other_text_up_to_the_token(kind: str) -> None:
    """The reference reads the tokens of the source up to there, and then those of the text."""
    run = mechanism_run(kind)
    (other, *_), record = text_inputs(run, OTHER), record_of(run)
    source = capture_attention(run.model.body, *other)[0]
    spliced = by_token(
        record,
        lambda name, x: torch.cat([by_name(source, name)[:, :, : KEY + 1], x[:, :, KEY + 1 :]], 2),
    )
    expected = (reference(spliced, Mask.causal()) @ spliced.value)[:, :, KEY + 1 :]
    found = outputs(run, every_state(run, lambda site: edits.patch(site, OTHER, at=KEY)))
    assert off(found[:, :, KEY + 1 :], expected) <= ROUNDING


def test_weights_of_edited_states_are_refused() -> None:
    """They aren't those that the outputs come from: nothing is shown or edited on top."""
    run, zero = mechanism_run("gated-deltanet"), edits.zero("decoder.0.states.0", at=KEY)
    with pytest.raises(UnsupportedError, match=r"decoder\.0: its states are edited"):
        outputs(run, zero + edits.zero("decoder.0.weights.1"))
    with pytest.raises(UnsupportedError, match="its states are edited, so that there are no"):
        look(run, TEXT, edit=zero)


def by_name(record: AttentionRecord, name: str) -> Tensor:
    """One of the inputs of a call."""
    found: Tensor = record.gates[name] if name in record.gates else getattr(record, name)
    return found


def by_token(record: AttentionRecord, change: Callable[[str, Tensor], Tensor]) -> AttentionRecord:
    """A call of changed inputs."""
    names = ("query", "key", "value", *record.gates)
    query, key, value, *gates = (change(name, by_name(record, name)) for name in names)
    changed = dict(zip(record.gates, gates, strict=True))
    return replace(record, query=query, key=key, value=value, gates=changed)


def every_state(run: Run, edit: Callable[[str], Edit]) -> Edits:
    """An edit of each state of the first layer."""
    names = [site.name for site in sites(run) if site.place == "decoder.0.states"]
    return Edits(tuple(map(edit, names)))


def test_a_cut_from_a_source_names_its_words() -> None:
    run = family_run("encoder-decoder, post")
    inputs, *_ = text_inputs(run, TEXT, OTHER)
    names = [f"decoder.0.cross.{part}.1" for part in ("weights", "values", "heads")]
    places = [site for name in names for site in sites(run) if site.name == name]
    weights, value = (activations(run, inputs, places)[name][0] for name in names[:2])
    with edited(run, cut("decoder.0.cross.heads.1", query="Rome", key="Ada")):
        found = activations(run, inputs, places[2:])[names[2]][0]
    query, key = 1 + OTHER.split().index("Rome"), TEXT.split().index("Ada")
    weights[query, key] = 0
    weights[query] /= weights[query].sum()
    assert off(found, weights @ value) <= ROUNDING


@pytest.mark.parametrize(("layer", "query", "key"), [(0, 4, "Ada"), (2, "Rome", 4)])
def test_a_cut_between_tokens_and_latents(layer: int, query: str | int, key: str | int) -> None:
    """A word names a token, and a number a latent."""
    run, place = family_run("perceiver"), f"decoder.{layer}.cross"
    inputs, *_ = text_inputs(run, TEXT)
    names = [f"{place}.{part}" for part in ("weights.1", "values.0", "heads.1")]
    known = {site.name: site for site in sites(run)}
    found = activations(run, inputs, [known[name] for name in names[:2]])
    weights, value = (found[name][0] for name in names[:2])
    with edited(run, cut(f"{place}.heads.1", query=query, key=key)):
        heads = activations(run, inputs, [known[names[2]]])[names[2]][0]
    i, j = (1 + TEXT.split().index(x) if isinstance(x, str) else x for x in (query, key))
    assert weights[i, j] > 0
    weights[i, j] = 0
    weights[i] /= weights[i].sum()
    assert off(heads, weights @ value) <= ROUNDING


HEAD, VALUES = "decoder.0.heads.0", "decoder.0.values.0"
ERRORS: list[tuple[str, Cut, type[UserError], str]] = [
    ("mamba2", cut(HEAD, key=1), UserError, "set how to edge or write"),
    ("elu", cut(HEAD, key=1), UserError, "before-normalization or after"),
    ("softmax", cut(HEAD, key=1, how="write"), UnsupportedError, "attention has no write cut"),
    ("mamba2", cut(HEAD, key=1, how="write"), UserError, "a write cut is of values"),
    ("mamba2", cut(VALUES, key=1, query=2, how="write"), UserError, "leave query out"),
    ("softmax", cut("decoder.0.queries.0", key=1), UserError, "is of heads"),
]


def test_impossible_cuts_are_refused() -> None:
    for kind, edit, error, message in ERRORS:
        run = mechanism_run(kind)
        inputs, *_ = text_inputs(run, TEXT)
        with pytest.raises(error, match=message), edited(run, edit):
            run.model.body(*inputs)


@pytest.mark.parametrize("kind", ["softmax", "moba", "elu", "differential"])
def test_cuts_of_one_layer_combine(kind: str) -> None:
    def barred(head: int, key: Any) -> Cut:
        return cut(f"decoder.0.heads.{head}", query=6, key=key, how="before-normalization")

    run = mechanism_run(kind)
    one, more, both, other = barred(1, 5), barred(1, 4), barred(1, (4, 5)), barred(0, 5)
    assert torch.equal(outputs(run, one + more), outputs(run, both))
    assert torch.equal(outputs(run, both + other)[:, 0], outputs(run, other)[:, 0])


def test_cuts_of_writes_combine() -> None:
    run = mechanism_run("gated-deltanet")
    first, second, both = (
        cut("decoder.0.values.0", key=key, how="write") for key in (1, 3, (1, 3))
    )
    assert torch.equal(outputs(run, first + second), outputs(run, both))
