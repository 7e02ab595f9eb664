"""Effects: patching is the plain loop, attribution its estimate, and planted circuits are found."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import edits
from regard.edits.activations import text_inputs
from regard.edits.apply import edited
from regard.edits.edit import Edit, Edits
from regard.edits.effects import effects
from regard.edits.metrics import probability
from regard.edits.sites import sites
from regard.errors import UserError
from regard.models.builders import LanguageModel, SequenceToSequence
from regard.runs.run import Run
from tiny_edited import BODIES, OTHER, TEXT, decoder_layer, family_run, mechanism_run

METRIC = edits.logit_difference("Rome", "Oslo")
ROUNDING = 1e-9
KINDS = ("layers", "heads", "residual", "tokens")
PREDICTORS = [
    name for name in BODIES if "both ways" not in name and name.partition(",")[0] != "encoder"
]
WHOLE = ("decoder", "decoder, hybrid", "encoder-decoder", "perceiver", "rnn, gru")
"""Families that are tried with every kind of site; each other one is tried with one."""
PATCHED = [
    (family, kind)
    for i, family in enumerate(PREDICTORS)
    for kind in (KINDS if family in WHOLE else (KINDS[i % len(KINDS)],))
]


def next_logits(run: Run, text: str, edit: Edit | Edits | None = None) -> Tensor:
    """The logits after a text."""
    assert isinstance(run.model, LanguageModel | SequenceToSequence)
    with torch.no_grad(), edited(run, edit):
        logits: Tensor = run.model.head(run.model.body(*text_inputs(run, text)[0]))
    return logits[0, -1]


def metric(run: Run, text: str, edit: Edit | Edits | None = None) -> float:
    """The difference of logits after a text."""
    right, wrong = (run.tokenizer.encode(word)[0] for word in ("Rome", "Oslo"))
    logits = next_logits(run, text, edit)
    return float(logits[right] - logits[wrong])


@pytest.mark.parametrize(("family", "kind"), PATCHED)
def test_patching_is_the_plain_loop(family: str, kind: str) -> None:
    """Each cell is one site set to its clean value; all are rows of one batch."""
    run = family_run(family)
    try:
        found = effects(run, TEXT, OTHER, metric=METRIC, sites=kind, by=("patching",))
    except UserError as error:
        assert "this model has none" in str(error)  # noqa: PT017
        assert kind == "heads"
        assert family.startswith(("rnn", "fixed-window"))
        return
    assert found.patching is not None
    high, low = metric(run, TEXT), metric(run, OTHER)
    chosen = range(0, len(found.cells), max(len(found.cells) // 4, 1))
    for i in chosen:
        cell = found.cells[i]
        patched = metric(run, OTHER, edits.patch(cell.site.name, TEXT, at=cell.position))
        expected = (patched - low) / (high - low)
        assert found.patching[0, i] == pytest.approx(expected, abs=1e-7), cell.name


def test_attribution_is_exact_where_the_rest_is_linear() -> None:
    run = family_run("rnn, identity")
    found = effects(run, TEXT, OTHER, metric=METRIC, sites="residual")
    assert found.error is not None
    assert found.error.largest_gap <= ROUNDING
    assert found.error.rank_correlation == pytest.approx(1)
    assert not found.error.saturated
    assert not found.error.wrong_signs
    assert "rank correlation 1.000" in "\n".join(found.lines())


def test_attribution_needs_no_trainable_parameters_and_no_gradient_mode() -> None:
    run = family_run("rnn, identity")
    expected = effects(run, TEXT, OTHER, metric=METRIC, sites="residual").attribution
    run.model.requires_grad_(requires_grad=False)
    with torch.inference_mode():
        found = effects(run, TEXT, OTHER, metric=METRIC, sites="residual").attribution
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("family", ["decoder, hybrid", "encoder-decoder", "perceiver"])
def test_integrated_steps_of_all_embeddings_sum_to_the_total(family: str) -> None:
    run = family_run(family)
    found = [
        effects(run, TEXT, OTHER, metric=METRIC, sites="tokens", by=["attribution"], steps=steps)
        for steps in (0, 64)
    ]
    at_corrupt, integrated = (abs(one.examples.sum() - 1) for one in found)
    assert integrated < 1e-3
    assert at_corrupt > 0.1
    assert "64 points" in " ".join(found[1].lines())


def test_a_saturated_head_is_flagged() -> None:
    """Scores so large that softmax has no slope: patched queries move it, gradients don't."""
    run = mechanism_run("softmax", n_layers=1)
    weight = decoder_layer(run, 0).self_attention.qkv_proj.weight
    with torch.no_grad():
        weight[:8] *= 300.0
    names = [site.name for site in sites(run) if site.part == "queries"]
    found = effects(run, TEXT, OTHER, metric=METRIC, sites=names)
    assert found.error is not None
    largest = found.cells[found.order[0]].name
    assert largest in found.error.saturated
    assert largest in str(found.error)


def test_pairs_have_intervals_controls_and_a_held_out_half() -> None:
    run = mechanism_run("gated-softmax")
    clean = [TEXT, "Ada was born in Rome", "Ada lives in Rome and Oslo"]
    corrupt = [OTHER, "Bob was born in Oslo", "Bob lives in Oslo and Rome"]
    found = effects(run, clean, corrupt, metric=METRIC, controls=7)
    assert found.examples.shape == (3, 4)
    assert found.control.shape == (3, 7)
    for one, column in zip(found.intervals, found.examples.T, strict=True):
        assert one.low <= column.mean() <= one.high
    single = [effects(run, *pair, metric=METRIC, controls=0) for pair in zip(clean, corrupt)]  # noqa: B905
    assert np.allclose(np.concatenate([one.examples for one in single]), found.examples)
    assert "held_out" in found.table().splitlines()[0]
    assert len(found.table().splitlines()) == 5
    again = effects(run, clean, corrupt, metric=METRIC, controls=7)
    assert np.array_equal(again.control, found.control)
    assert found.figure().axes


def test_the_average_indirect_effect_is_the_mean_change_of_the_metric() -> None:
    run = mechanism_run("softmax")
    clean, corrupt = [TEXT, "Ada was born in Rome"], [OTHER, "Bob was born in Oslo"]
    probability = edits.probability("Rome")
    found = effects(run, clean, corrupt, metric=probability, by=("patching",), controls=0)
    (rome,) = run.tokenizer.encode("Rome")

    def of(text: str, edit: Edit | None = None) -> float:
        return float(next_logits(run, text, edit).softmax(-1)[rome])

    assert found.clean == pytest.approx([of(text) for text in clean])
    for cell, one in zip(found.cells, found.aie, strict=True):
        pairs = zip(clean, corrupt, strict=True)
        changes = [of(bad, edits.patch(cell.site.name, good)) - of(bad) for good, bad in pairs]
        assert one.value == pytest.approx(np.mean(changes), abs=ROUNDING)
        assert one.low == pytest.approx(min(changes), abs=ROUNDING)
    assert "probability" in found.lines()[0]
    assert found.rows()[0]["aie"] == found.aie[found.order[0]].value


def test_attribution_of_a_state_is_by_token() -> None:
    with pytest.raises(UserError, match="a state is one token's; choose sites = residual"):
        effects(family_run("rnn, gru"), TEXT, OTHER, metric=METRIC, sites="layers")


Given = dict[str, Any]
ERRORS: list[tuple[Given, str]] = [
    ({"clean": "Ada was born"}, "the texts have 4 and 10 tokens"),
    ({"clean": OTHER}, "the metric is the same for both texts"),
    ({"clean": [TEXT, TEXT]}, "2 clean texts and 1 corrupt"),
    ({"sites": "head"}, "there are heads, layers, residual, tokens, trace"),
    ({"sites": ["decoder.0.head.0"]}, "did you mean decoder.0.heads.0"),
    ({"sites": ["decoder.0.weights.0"]}, "effects are of vectors"),
    ({"sites": ["decoder.positions"]}, "texts of equal length have the same positions"),
    ({"by": ("path",)}, "there are patching and attribution"),
    ({"by": ()}, "no method"),
    ({"by": ("patching",), "steps": 3}, "steps = 3: only attribution takes steps"),
    ({"steps": -1}, "steps = -1"),
    ({"sites": "layers", "controls": 3}, "for sites = heads"),
    ({"metric": edits.logit_difference("Rome", "Rome and")}, "begin with the same token"),
    ({"metric": edits.logit_difference("", "Rome")}, "is empty"),
    ({"metric": edits.logit_difference(["Rome"] * 2, "Oslo")}, "2 right words for 1 pairs"),
    ({"metric": edits.probability([])}, "0 right words for 1 pairs"),
    ({"metric": edits.probability("")}, "is empty"),
    ({"metric": edits.probability("Eve")}, "has no 'Eve'"),
]


def test_wrong_input_is_refused() -> None:
    for given, message in ERRORS:
        run = mechanism_run("softmax")
        settings: Given = {"clean": TEXT, "corrupt": OTHER, "metric": METRIC} | given
        with pytest.raises(UserError, match=message) as caught:
            effects(run, settings.pop("clean"), settings.pop("corrupt"), **settings)
        assert "\n" not in str(caught.value)


def test_controls_are_the_same_channels_for_each_pair() -> None:
    found = effects(mechanism_run("softmax"), [TEXT] * 2, [OTHER] * 2, metric=METRIC, controls=5)
    assert found.control is not None
    assert np.allclose(found.control[0], found.control[1])


def test_the_hidden_layer_of_a_fixed_window_has_attributions() -> None:
    texts = "was born in Rome", "was born in Oslo"
    found = effects(family_run("fixed-window"), *texts, metric=METRIC, sites="layers", steps=50)
    assert found.attribution == pytest.approx(found.patching, rel=1e-2)


def test_probabilities_are_in_float32() -> None:
    (measure,) = probability("Rome").measures(1, mechanism_run("softmax").tokenizer)
    found = float(measure(torch.zeros(1, 15, dtype=torch.bfloat16)))
    assert found == pytest.approx(1 / 15, rel=1e-6)
