"""Path patching is a plain loop over layers in which one value is sent to one receiver."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_effects import METRIC, metric
from torch import Tensor

import regard
from regard import edits
from regard.edits import patching
from regard.edits.activations import text_inputs
from regard.edits.edit import Edits
from regard.edits.effects import effects
from regard.edits.paths import branch_of, paths
from regard.edits.sites import sites
from regard.errors import UnsupportedError, UserError
from regard.models.config import DecoderConfig
from regard.models.tensors import join_heads
from regard.models.transformer import Decoder
from regard.runs.run import Run
from tiny_edited import OTHER, TEXT, family_run, mechanism_run, tiny_run
from tiny_families import SIZES

ROUNDING = 1e-9
Changes = Mapping[str, Callable[[Tensor], Tensor]]


def plain(run: Run, text: str, changes: Changes) -> tuple[float, dict[str, Tensor]]:
    """The metric of a softmax decoder as a loop over its layers, and what it computes.

    A change is of the value that the rest is computed from; what is returned is before it.
    """
    body, found = run.language_model.body, dict[str, Tensor]()
    assert isinstance(body, Decoder)

    def met(name: str, x: Tensor) -> Tensor:
        found[name] = x
        return changes[name](x) if name in changes else x

    ids = text_inputs(run, text)[-1][0]
    x, ropes = body._embed(ids, torch.arange(ids.shape[1])[None])
    causal = torch.ones(ids.shape[1], ids.shape[1]).tril() > 0
    for i, (layer, rope) in enumerate(zip(body._layers(), ropes, strict=True)):
        own, before = layer.self_attention, x
        read = layer._before(layer.norm_attention, x)
        inputs = own._inputs(read, own.qkv_proj(read), rope, None)[:3]
        names = ("queries", "keys", "values")
        query, key, value = (met(f"{i}.{n}", y) for n, y in zip(names, inputs, strict=True))
        key, value = (y.repeat_interleave(own.n_heads // y.shape[1], 1) for y in (key, value))
        scores = query @ key.mT / own.d_head**0.5
        out = met(f"{i}.heads", scores.masked_fill(~causal, -torch.inf).softmax(-1) @ value)
        branch = met(f"{i}.attention", own.o_proj(join_heads(out)))
        x = layer._add(layer.norm_attention, x, layer.dropout_attention, branch)
        read = layer._before(layer.norm_feed_forward, before if layer.parallel else x)
        branch = met(f"{i}.feedforward", layer.feed_forward(read))
        x = layer._add(layer.norm_feed_forward, x, layer.dropout_feed_forward, branch)
    logits = run.language_model.head(body._finish(x))[0, -1]
    right, wrong = (run.tokenizer.encode(word)[0] for word in ("Rome", "Oslo"))
    return float(logits[right] - logits[wrong]), found


def setting(value: Tensor, head: int | None = None) -> Callable[[Tensor], Tensor]:
    """The change to a value, of one head if one is given."""

    def change(x: Tensor) -> Tensor:
        if head is None:
            return value
        return torch.cat([x[:, :head], value[:, head : head + 1], x[:, head + 1 :]], 1)

    return change


PLAIN: dict[str, Callable[[], Run]] = {
    "pre": lambda: family_run("decoder"),
    "post, grouped": lambda: family_run("decoder, post"),
    "parallel": lambda: tiny_run(DecoderConfig(**SIZES, parallel_residual=True)),
}


@pytest.mark.parametrize("made", PLAIN.values(), ids=PLAIN)
@torch.no_grad()
def test_paths_are_the_plain_loop(made: Callable[[], Run]) -> None:
    run = made()
    receivers = ["1.queries.1", "1.keys.0", "1.heads.1", "1.feedforward"]
    names = [f"decoder.{name}" for name in receivers]
    found = paths(run, TEXT, OTHER, metric=METRIC, receivers=names)
    (high, clean), (low, corrupt) = plain(run, TEXT, {}), plain(run, OTHER, {})
    branches = [f"{i}.{part}" for i in (0, 1) for part in ("attention", "feedforward")]
    for i, cell in enumerate(found.senders):
        layer, head = cell.site.name.split(".")[1], cell.site.head
        sent = {f"{layer}.heads": setting(clean[f"{layer}.heads"], head)}
        kept = {b: setting(corrupt[b]) for b in branches if b != f"{layer}.attention"}
        expected = [plain(run, OTHER, sent)[0]]
        direct, arrived = plain(run, OTHER, kept | sent)
        expected.append(direct)
        for name in receivers:
            place, _, its_head = name.rpartition(".") if name[-1].isdecimal() else (name, "", "")
            value = setting(arrived[place], int(its_head) if its_head else None)
            expected.append(plain(run, OTHER, {place: value})[0])
        through = [found.through[name][0, i] for name in names]
        measured = np.array([found.total[0, i], found.direct[0, i], *through])
        assert np.abs(measured * (high - low) + low - expected).max() <= ROUNDING, cell.name
    assert np.abs(found.through["decoder.1.keys.0"][0, :2]).min() > 1e-6, "a path matters"


@pytest.mark.parametrize(
    "family",
    [
        "decoder, hybrid",
        "decoder, sandwich",
        "decoder, canon",
        "encoder-decoder, post",
        "perceiver",
    ],
)
def test_direct_effects_are_patches_of_all_other_parts(family: str) -> None:
    """One by one, as edits: the sender from the clean text, all branches but its own as corrupt."""
    run, known = family_run(family), sites(family_run(family))
    found = paths(run, TEXT, OTHER, metric=METRIC)
    high, low = metric(run, TEXT), metric(run, OTHER)
    branches = [site.name for site in known if branch_of(site) == site.name]
    for i in range(0, len(found.senders), 3):
        site = found.senders[i].site
        edit = Edits((edits.patch(site.name, TEXT),))
        for name in branches:
            if name != branch_of(site):
                edit += edits.patch(name, OTHER)
        expected = (metric(run, OTHER, edit) - low) / (high - low)
        assert found.direct[0, i] == pytest.approx(expected, abs=1e-7), site.name


def test_pairs_rows_and_kinds_of_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of small batches are those of one; totals are those of patching."""
    run = mechanism_run("gated-softmax")
    texts = [TEXT, OTHER], [OTHER, "Ada lives in Rome and was born in Oslo"]
    given: dict[str, Any] = {"metric": METRIC, "receivers": ["decoder.1.residual"] * 2}
    found = paths(run, *texts, senders="layers", **given)
    patched = effects(run, *texts, metric=METRIC, sites="layers", by=("patching",))
    assert np.array_equal(found.total, patched.examples)
    monkeypatch.setattr(patching, "TOKENS_AT_ONCE", 30)
    again = paths(run, *texts, senders="layers", **given)
    for one, other in (
        (found.direct, again.direct),
        *zip(found.through.values(), again.through.values(), strict=True),
    ):
        assert np.abs(one - other).max() <= 1e-7
    # The last part reaches the head alone, and the stream has all that is before it.
    last = [i for i, cell in enumerate(found.senders) if cell.site.name == "decoder.1.feedforward"]
    first = [i for i, cell in enumerate(found.senders) if cell.site.name == "decoder.0.feedforward"]
    assert np.abs(found.difference[:, last]).max() <= ROUNDING
    stream = found.through["decoder.1.residual"]
    assert np.abs(stream - found.total)[:, first].max() <= ROUNDING
    assert np.abs(stream[:, last]).max() <= ROUNDING
    for interval, column in zip(found.intervals, found.difference.T, strict=True):
        assert interval.low <= column.mean() <= interval.high
    assert len(found.table().splitlines()) == 1 + len(found.senders)
    assert found.figure().axes
    assert found.lines()


Given = dict[str, Any]


@pytest.mark.parametrize(
    ("kind", "receiver"),
    [("softmax", "decoder.1.keys.0"), ("gated-deltanet", "decoder.1.states.0")],
)
def test_the_stream_before_a_layer_is_a_sender_to_its_parts(kind: str, receiver: str) -> None:
    run = mechanism_run(kind)
    given: Given = {"senders": ["decoder.1.residual"], "receivers": receiver}
    found = paths(run, TEXT, OTHER, metric=METRIC, **given)
    patched = effects(run, TEXT, OTHER, metric=METRIC, sites=[receiver], by=("patching",))
    assert found.through[receiver] == pytest.approx(patched.examples, abs=1e-7)


REFUSED: list[tuple[str, Given, type[Exception], str]] = [
    ("rnn, gru", {}, UnsupportedError, "no residual stream"),
    ("decoder", {"receivers": ["decoder.0.keys.0"]}, UserError, "no sender is before it"),
    (
        "decoder",
        {"receivers": "decoder.1.keys.0", "senders": ["decoder.1.queries.0"]},
        UserError,
        "no sender is before it",
    ),
    ("decoder", {"senders": []}, UserError, "sites empty: there are heads, layers"),
]


@pytest.mark.parametrize(("family", "given", "kind", "message"), REFUSED)
def test_wrong_input_is_refused(
    family: str, given: Given, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        paths(family_run(family), TEXT, OTHER, metric=METRIC, **given)
    assert "\n" not in str(caught.value)


def test_a_trace_is_of_each_layer_and_token() -> None:
    """Restored one by one; the whole stream at the last token before the end is the total."""
    run = family_run("decoder, sandwich")
    found = regard.trace(run, TEXT, OTHER, metric=METRIC)
    tokens = text_inputs(run, TEXT)[-1][0].shape[1]
    assert len(found.cells) == 2 * 3 * tokens
    assert {cell.site.part for cell in found.cells} == {"residual", "attention", "feedforward"}
    low, high = metric(run, OTHER), metric(run, TEXT)
    cell = found.cells[-tokens - 2]
    edit = Edits((edits.patch(cell.site.name, TEXT, at=cell.position),))
    expected = (metric(run, OTHER, edit) - low) / (high - low)
    assert found.examples[0, -tokens - 2] == pytest.approx(expected, abs=1e-7)
    assert len(found.figure().axes) == 4, "three heat maps and their scale"


def test_a_trace_of_a_perceiver_has_rows_of_tokens_and_of_latents() -> None:
    """Inner heads reach the logits by the last layer alone, so they have no direct effect."""
    run = family_run("perceiver")
    found = effects(run, TEXT, OTHER, metric=METRIC, sites="trace")
    tokens, latents, last = text_inputs(run, TEXT)[-1][0].shape[1], 8, 3
    assert len(found.cells) == last * tokens + (last + last) * latents
    assert found.cells[0].name == "decoder.0.residual at latent 0"
    assert "decoder: residual of latents" in [axes.get_title() for axes in found.figure().axes]
    direct = paths(run, TEXT, OTHER, metric=METRIC, senders=["decoder.1.heads.0"]).direct
    assert np.abs(direct).max() <= ROUNDING


def test_the_code_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "edits.md").read_text(encoding="utf-8")
    sections = re.findall(r"\n## (?:Effects|Trace|Paths|Lens).*?(?=\n## |\Z)", page, re.DOTALL)
    code = "\n".join(re.findall(r"```python\n(.*?)```", "".join(sections), re.DOTALL))
    names = {"regard": regard, "edits": edits, "run": mechanism_run("softmax")}
    exec(code, names | {"clean": TEXT, "corrupt": OTHER})
    assert len(sections) == 4
    assert code.count("found.figure()") == 4
