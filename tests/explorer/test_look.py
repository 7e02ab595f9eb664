"""Runs of every family, looked at."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard import edits
from regard.decoding.generate import encode_prompts
from regard.errors import UserError
from regard.evaluation.tasks import label
from regard.explorer.adapters import RunAdapter
from regard.explorer.attention_maps import ANSWER
from regard.explorer.head_scores import entropy
from regard.explorer.intercept import capture_attention
from regard.explorer.look import look, untrained
from regard.explorer.page import page
from regard.files import inert
from regard.positions.config import RotaryConfig
from regard.runs.run import Run
from tiny_edited import TEXT as EDITED_TEXT
from tiny_edited import mechanism_run
from tiny_served import TEXT, new_run


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("decoder", ["self-attention"]),
        ("encoder", ["self-attention"]),
        ("encoder-decoder", ["encoder", "decoder", "decoder to source"]),
        ("recurrent", ["decoder to source"]),
    ],
)
def test_each_family_shows_its_attention(family: str, names: list[str], tmp_path: Path) -> None:
    pair = family in ("encoder-decoder", "recurrent")
    view = look(new_run(family), TEXT, "tan" if pair else None)
    (panel,) = view.panels
    assert (panel.prediction is None) == (family != "decoder")
    assert [one.name for one in panel.maps] == names
    for one in panel.maps:
        for layer in one.layers:
            shape = layer.record.weights.shape
            assert shape[-2:] == (len(one.queries), len(one.keys))
    source, target = tuple(TEXT), ("<sep>", *"tan")
    shown = {one.name: ("".join(one.queries), "".join(one.keys)) for one in panel.maps}
    if pair:
        assert shown["decoder to source"] == ("".join(target), "".join(source))
    assert view.save(tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert view.png(tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    if family == "decoder":
        assert view.png(tmp_path / "x.svg").read_text().startswith("<svg")
    assert view._repr_html_().startswith("<iframe srcdoc=")


def test_a_decoder_shows_its_most_probable_next_tokens() -> None:
    decoder = new_run("decoder")
    (panel,) = look(decoder, TEXT).panels
    with torch.no_grad():
        logits = decoder.model(torch.tensor([decoder.encode(TEXT)[0]]))[0, -1]
    best = logits.softmax(-1).topk(5)
    assert panel.prediction is not None
    assert panel.prediction.kind == "next token"
    names, probabilities = zip(*panel.prediction.candidates, strict=True)
    assert list(names) == [decoder.tokenizer.decode([i]) for i in best.indices.tolist()]
    assert list(probabilities) == pytest.approx(best.values.tolist(), rel=1e-5)
    (written,) = look(decoder, TEXT).data["panels"]
    assert written["prediction"]["candidates"][0][0] == names[0]


def test_a_question_is_read_as_ask_reads_it(trained: Path) -> None:
    """Read as a document, it was followed by <sep>, not by an answer."""
    answering = Run.load(trained)
    ids = encode_prompts(answering, ["Ida Holm?"]).starts[0]
    for model in (answering, untrained(answering)):
        (panel,) = look(model, "Ida Holm?").panels
        assert panel.maps[0].keys == tuple(answering.tokenizer.decode([i]) for i in ids)
        assert panel.prediction is not None
        assert panel.prediction.kind == ANSWER
    for model, text in ((answering, "Ida Holm."), (replace(answering, origin={}), "Ida Holm?")):
        (panel,) = look(model, text).panels
        assert panel.prediction is not None
        assert panel.prediction.kind == "next token"
        assert panel.maps[0].keys[-1] == text[-1]


def test_a_classifier_shows_its_labels() -> None:
    classifier = new_run("classifier")
    (panel,) = look(classifier, TEXT).panels
    (expected,) = label(classifier, [TEXT])
    assert panel.prediction is not None
    assert panel.prediction.kind == "label"
    name, probability = panel.prediction.candidates[0]
    assert name == expected.text
    assert probability == pytest.approx(expected.probability, rel=1e-5)
    assert sum(p for _, p in panel.prediction.candidates) == pytest.approx(1, rel=1e-5)


def test_an_encoder_decoder_writes_its_own_target() -> None:
    (panel,) = look(new_run("encoder-decoder"), TEXT).panels
    assert panel.maps[1].queries[0] == "<sep>"


def test_two_sentences_are_read_as_one() -> None:
    encoder = new_run("encoder")
    view = look(encoder, "the dog", "ran")
    assert view.title == "tiny: the dog / ran"
    (one,) = view.panels[0].maps
    assert "".join(one.queries) == "<sep>the dog<sep>ran"
    assert one.second == 1 + len("the dog")
    ids, _ = encoder.encode("the dog", "ran")
    alike = capture_attention(encoder.model.body, torch.tensor([ids]), torch.tensor([len(ids)]))
    for layer, other in zip(one.layers, alike, strict=True):
        apart = layer.record.weights, other.weights
        assert not torch.allclose(*apart), "segments tell them apart"


def test_an_untrained_model_looks_everywhere_alike() -> None:
    (one,) = look(untrained(new_run("decoder")), TEXT).panels[0].maps
    for layer in one.layers:
        assert (entropy(layer.record.weights[0], causal=True) >= 0.95).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("the dog ran" * 9, "context length of 32"), ("z", "has no 'z'")],
)
def test_texts_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    for family in ("decoder", "encoder-decoder"):
        with pytest.raises(UserError, match=message):
            look(new_run(family), text)


def test_models_without_attention_to_tokens_are_refused() -> None:
    with pytest.raises(UserError, match="this model has no attention"):
        look(new_run("rnn"), TEXT)
    for use in (look, lambda one, text: RunAdapter(one).gradients(text)):
        with pytest.raises(UserError, match=r"^tiny: model.kind=perceiver attends to latents"):
            use(new_run("perceiver"), TEXT)


def test_no_token_can_leave_its_place() -> None:
    hostile = {"title": "</title><script>", "text": "</script><img onerror=alert(1)> \u2028"}
    written = page(hostile)
    assert written.count("</script>") == 2, "the data's and the module's own"
    assert written.count("<script") == 2
    assert "<img" not in written
    assert "\u2028" not in inert(hostile)


def test_a_view_has_no_positions_that_an_edit_replaced() -> None:
    run = mechanism_run("softmax", positions=RotaryConfig())
    view = look(run, EDITED_TEXT, edit=edits.zero("decoder.0.positions"))
    assert view.panels[0].maps[0].position_info.rotation is None
