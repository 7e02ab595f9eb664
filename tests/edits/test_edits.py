"""Edits: data that prints and stores, refusals, and a model that is left as it was."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard import edits
from regard.decoding.generate import generate
from regard.decoding.package import compile, with_package
from regard.decoding.prepare import prepare
from regard.edits.activations import activations, text_inputs
from regard.edits.apply import edited
from regard.edits.edit import Edit, Edits, zero
from regard.edits.sites import PAIRS, sites
from regard.edits.tokens import word_positions
from regard.errors import UserError
from regard.explorer.look import look
from regard.runs.run import Run
from regard.text.config import BytePairsConfig
from regard.text.tokenizer import train_tokenizer
from tiny import BIOGRAPHIES, refused
from tiny_edited import OTHER, TEXT, decoder_layer, family_run, mechanism_run, off, require_refused
from tiny_recurrent import padded

SITE = "decoder.1.residual"
perceiver = partial(family_run, "perceiver")
places = st.none() | st.integers(0, 9) | st.sampled_from(["last", "each-new", "Ada", "a 'b' \"c\""])
AT = places | st.lists(st.integers(0, 9), min_size=1).map(tuple)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ONE = st.one_of(
    st.builds(edits.zero, st.just(SITE), at=AT),
    st.builds(edits.mean, st.just(SITE), st.lists(st.text(), min_size=1), at=AT),
    st.builds(edits.cut, st.just("decoder.0.heads.1"), query=AT, key=AT),
    st.builds(edits.patch, st.just(SITE), st.text(), at=AT),
    st.builds(edits.steer, st.just(SITE), st.lists(NUMBERS), scale=NUMBERS, at=AT),
)


@given(st.lists(ONE, max_size=4))
def test_edits_are_stored_as_toml(
    tmp_path_factory: pytest.TempPathFactory, some: list[Edit]
) -> None:
    whole = Edits(tuple(some))
    file = tmp_path_factory.getbasetemp() / "edit.toml"
    file.write_bytes(whole.to_toml().encode())
    read = edits.load_edit(file)
    assert read == whole
    assert read.fingerprint == whole.fingerprint
    assert len(str(read).splitlines()) >= len(some)


def test_edits_add_in_order_and_have_fingerprints() -> None:
    first, second = edits.zero(SITE), edits.steer(SITE, [1.0] * 8)
    assert (first + second).edits == (first, second)
    assert (first + (second + first)).edits == (first, second, first)
    assert (first + second).fingerprint != (second + first).fingerprint
    assert str(first + edits.patch(SITE, TEXT, at="Ada")) == (
        f"zero {SITE}\npatch {SITE} (source='{TEXT}', at='Ada')"
    )


def test_an_invalid_file_names_the_field(tmp_path: Path) -> None:
    for content, message in [
        ('[[edit]]\nkind = "zeroe"\nsite = "x"', "allowed: .*; did you mean zero"),
        ('[[edit]]\nkind = "zero"', "site"),
        ('[[edit]]\nkind = "zero"\nsite = "x"\nscale = 3', "scale"),
        ('[[edit]]\nkind = "cut"\nsite = "x"\nhow = "some"', "how"),
        ("edit = 3", "edit"),
        ("[[edit", "isn't TOML"),
    ]:
        (tmp_path / "edit.toml").write_text(content)
        with pytest.raises(UserError, match=message):
            edits.load_edit(tmp_path / "edit.toml")


# Values


def test_each_edit_sets_what_it_says() -> None:
    run = mechanism_run("softmax")
    inputs, *_ = text_inputs(run, TEXT)
    site, after = (
        next(s for s in sites(run) if s.name == n) for n in (SITE, "decoder.1.queries.0")
    )
    own = activations(run, inputs, [site])[SITE][0]
    other = activations(run, text_inputs(run, OTHER)[0], [site])[SITE][0]
    layer = decoder_layer(run, 1)
    d = layer.self_attention.d_head
    vector = [0.1 * i for i in range(8)]
    born = 1 + TEXT.split().index("born")
    expected = {
        edits.zero(SITE, at="born"): torch.zeros(8),
        edits.steer(SITE, vector, scale=-2, at="born"): own[born] - 2 * torch.tensor(vector),
        edits.patch(SITE, OTHER, at="born"): other[born],
        edits.mean(SITE, [TEXT, OTHER], at="born"): torch.cat([own, other]).mean(0),
    }
    for edit, value in expected.items():
        stream = own.clone()
        stream[born] = value
        projected = layer.self_attention.qkv_proj(layer.norm_attention(stream))[:, :d]
        with edited(run, edit):
            found = activations(run, inputs, [after])[after.name][0]
        assert off(found, projected) <= 1e-7, edit


@pytest.mark.parametrize(
    "family", ["decoder", "rnn, gru", "fixed-window", "encoder-decoder", "rnn-encoder-decoder"]
)
def test_the_last_token_of_a_padded_row_is_a_real_one(family: str) -> None:
    run = family_run(family)
    edit, rows = edits.zero("decoder.embedding", at="last"), padded([[1, 3, 5, 6, 7], [1, 4]])
    source = padded([[1, 3, 5], [1, 4, 6]]) if "encoder" in family else ()
    with torch.no_grad(), edited(run, edit):
        _, together = run.model.body(*source, *rows)
        alone = run.model.body(*(x[1:] for x in source), rows[0][1:, :2])
    assert off(together[:2], alone) <= 1e-12
    first = edits.zero(edit.site, at=0)
    with torch.no_grad(), edited(run, first + edit):
        both = run.model.body(*source, *rows)
    with torch.no_grad(), edited(run, first), edited(run, edit):
        assert off(run.model.body(*source, *rows), both) <= 1e-12


@pytest.mark.parametrize("made", [partial(mechanism_run, "gated-deltanet"), perceiver])
def test_a_patch_of_everything_is_the_other_text(made: Callable[[], Run]) -> None:
    run = made()
    inputs, *_ = text_inputs(run, TEXT)
    with edited(run, edits.patch("decoder.embedding", OTHER)):
        found = run.model.body(*inputs)
    assert off(found, run.model.body(*text_inputs(run, OTHER)[0])) <= 1e-12


@pytest.mark.parametrize(
    "family", ["decoder, hybrid", "rnn, gru", "encoder-decoder, post", "perceiver"]
)
def test_a_patch_of_a_run_with_itself_changes_no_bit(family: str) -> None:
    """Outside of scores and weights, where the composed kernel takes the place of the fused one.

    States are computed token by token, too.
    """
    run = family_run(family)
    second = OTHER if family.startswith("encoder-decoder") else None
    inputs, *_ = text_inputs(run, TEXT, second)
    own = run.model.body(*inputs)
    chosen = [s for s in sites(run) if s.part not in (*PAIRS, "hidden", "states")]
    itself = Edits(tuple(edits.patch(site.name, TEXT, second=second) for site in chosen))
    with torch.no_grad(), edited(run, itself):
        assert torch.equal(run.model.body(*inputs), own)


def test_gradients_flow_through_edited_values() -> None:
    run = mechanism_run("softmax")
    inputs, *_ = text_inputs(run, TEXT)
    weight = decoder_layer(run, 0).feed_forward.up_proj.weight
    with edited(run, edits.steer(SITE, [1.0] * 8) + edits.cut("decoder.0.heads.0", key=1)):
        run.model.body(*inputs).square().sum().backward()
        assert weight.grad is not None
        with torch.no_grad():
            step = 1e-6 * weight.grad / weight.grad.square().sum()
            before = run.model.body(*inputs).square().sum()
            weight += step
            after = run.model.body(*inputs).square().sum()
    assert float(after - before) == pytest.approx(1e-6, rel=1e-3)


# Nothing stays, and nothing is silent


def attributes(model: nn.Module) -> list[set[str]]:
    return [set(vars(module)) for module in model.modules()]


def _fail_inside(run: Run, edit: Edits, error: type[BaseException]) -> None:
    with edited(run, edit):
        run.model.body(*text_inputs(run, TEXT)[0])
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_stays_after_an_exception(error: type[BaseException]) -> None:
    run = family_run("decoder, hybrid")
    inputs, *_ = text_inputs(run, TEXT)
    own, before, random = run.model.body(*inputs), attributes(run.model), torch.get_rng_state()
    for states in (False, True):
        chosen = [site for site in sites(run) if (site.part == "states") == states]
        with pytest.raises(error):
            _fail_inside(run, Edits(tuple(edits.zero(site.name) for site in chosen)), error)
    assert attributes(run.model) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(run.model.body(*inputs), own)


def test_an_empty_edit_changes_no_bit_and_no_module() -> None:
    run = mechanism_run("softmax")
    inputs, *_ = text_inputs(run, TEXT)
    own, before = run.model.body(*inputs), attributes(run.model)
    with edited(run, Edits()):
        assert attributes(run.model) == before
        assert torch.equal(run.model.body(*inputs), own)


ERRORS: list[tuple[Edit, str]] = [
    (edits.zero("decoder.7.residual"), "did you mean decoder.1.residual"),
    (edits.zero("decoder.0.heads.2"), "has 2 heads"),
    (edits.zero("decoder.0.head.1"), "did you mean decoder.0.heads.1"),
    (edits.zero(""), "is not in this model"),
    (edits.zero(SITE, at="Adam"), "has no word 'Adam'; did you mean Ada"),
    (edits.zero(SITE, at=" "), "at is empty"),
    (edits.zero(SITE, at=10), "position 10 isn't in a text of 10 tokens"),
    (edits.zero(SITE, at=-1), "position -1 isn't in a text of 10 tokens"),
    (edits.zero(SITE, at="each-new"), "changed nothing"),
    (edits.patch(SITE, "Ada was born"), "the source has 4 tokens, and the text 10"),
    (edits.patch(SITE, "Eve"), "the vocabulary has no 'Eve'"),
    (edits.patch(SITE, ""), "a text is empty"),
    (edits.patch(SITE, "and " * 40 + "in"), "a text has 42 tokens, and the model reads 16"),
    (edits.patch(SITE, TEXT, at="each-new"), "has no tokens after the prompt"),
    (edits.mean(SITE, [""]), "a text is empty"),
    (edits.Mean(SITE, texts=()), "texts is empty"),
    (edits.steer(SITE, [float("nan")] * 8), "must be finite"),
    (edits.steer(SITE, [1e300] * 8, scale=1e300), "must be finite"),
    (edits.zero(SITE, at=[]), "changed nothing"),
    (edits.steer(SITE, [1.0]), "the vector has 1 numbers, and the site 8 channels"),
    (edits.mean("decoder.0.weights.0", [TEXT]), "no vector"),
]


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [
        *(("ab 北京 😀 c", word, word) for word in ("ab", "北京", "😀", "c")),  # split into bytes
        ("من مؤمن", "من", "من"),
        ("나 나무", "나", "나"),
        ("私は東京で生まれた", "東京", "東京"),  # scripts without spaces
        ("コーヒーを飲む", "コーヒー", "コーヒー"),
        ("人々は人", "人々", "人々"),
        ("人々は人", "人", "人人"),
    ],
)
def test_words_end_where_the_script_has_spaces(text: str, word: str, found: str) -> None:
    tokenizer = train_tokenizer(BytePairsConfig(size=300), ["abc"])
    ids = tokenizer.encode(text)
    places = word_positions(tokenizer, ids, word, "site")
    assert tokenizer.decode([ids[place] for place in places]).strip() == found


def test_an_edit_that_does_nothing_is_refused() -> None:
    for edit, message in ERRORS:
        require_refused(mechanism_run("softmax"), edit, message)


def test_an_edit_without_a_call_is_refused() -> None:
    run = mechanism_run("softmax")
    with pytest.raises(UserError, match="changed nothing"), edited(run, edits.zero(SITE)):
        pass


# Uses


@pytest.mark.parametrize("made", [partial(mechanism_run, "softmax"), perceiver])
def test_generation_is_edited_and_the_fast_path_steps_aside(made: Callable[[], Run]) -> None:
    run = made()
    last = sites(run)[-1].name
    assert last.endswith("residual.feedforward")
    edit = edits.steer(last, [30.0, -30.0] * 4)
    own = generate(run, [TEXT, "Ada"], max_new_tokens=3)
    found = generate(run, [TEXT, "Ada"], max_new_tokens=3, edit=edit)
    assert found != own
    assert [
        generate(run, [text], max_new_tokens=3, edit=edit)[0] for text in (TEXT, "Ada")
    ] == found
    with edited(run, edits.zero(SITE)):
        stack = run.language_model.body
        assert prepare(run.language_model).body is stack
        assert with_package(run) is run.model
        with pytest.raises(UserError, match="a package holds no edits"):
            compile(run)
        run.language_model(torch.tensor([[1, 2]]))


def test_look_shows_the_edited_weights() -> None:
    run = mechanism_run("softmax")
    view = look(run, TEXT, edit=edits.cut("decoder.1.heads.0", query=6, key=2))
    weights = view.panels[0].maps[0].layers[1].record.weights
    assert weights[0, 0, 6, 2] == 0
    assert weights[0, 1, 6, 2] > 0
    assert "edited" in view.panels[0].name
    after = look(run, TEXT, edit=edits.zero("decoder.0.weights.0", at="last"))
    assert not after.panels[0].maps[0].layers[0].record.weights[0, 0, -1].any()


def test_the_commands_read_edits(regard: Any, run: Path) -> None:
    text, file = BIOGRAPHIES[0], run.parent / "edit.toml"
    file.write_text(Edits((edits.zero("decoder.0.residual", at="born"),)).to_toml())
    done = regard("look", run, text, "--edit", file, "--compare-edit")
    assert done.code == 0, done.err
    page = (run.parent / "look.html").read_text()
    assert "run, edited" in page
    done = regard("generate", run, text, "--max-new-tokens", 2, "--raw", "--edit", file)
    assert done.code == 0, done.err
    assert done.out.startswith(text)
    file.write_text('[[edit]]\nkind = "zero"\nsite = "decoder.9.residual"\n')
    for command in ("look", "generate"):
        done = regard(command, run, text, "--edit", file, *(["--raw"] if command != "look" else []))
        assert done.code == 2
        assert "decoder.9.residual: is not in this model" in done.err
        assert not done.new
    assert regard("look", run, text, "--compare-edit").code == 2
    assert regard("generate", run, text, "--compile", "--edit", file).code == 2


def test_evaluate_reads_edits_and_writes_no_report(regard: Any, run: Path) -> None:
    edit = edits.zero("decoder.0.residual") + edits.zero("decoder.0.residual.feedforward")
    file = run.parent / "edit.toml"
    file.write_text(edit.to_toml())
    own = regard("evaluate", run, "pairs.tsv", "--report", "own.html")
    found = regard("evaluate", run, "pairs.tsv", "--edit", file)
    assert found.code == own.code == 0, found.err
    assert found.out.splitlines()[0] != own.out.splitlines()[0]
    assert f"Edit: {file} ({edit.fingerprint})" in found.out
    assert not found.new
    refused(regard("evaluate", run, "pairs.tsv", "--edit", file, "--report", "a.html"), "--edit")
    refused(regard("evaluate", run, "pairs.tsv", "--edit", file, "--baseline", "a"), "--edit")
    asked = regard("evaluate", run, "pairs.tsv", "--edit", file, "--paraphrase", "{} was born?")
    refused(asked, "--paraphrase: isn't available for edits")


def test_a_position_may_be_an_integer_of_a_library() -> None:
    assert zero("s", at=np.int64(3)) == zero("s", at=torch.tensor(3)) == zero("s", at=3)
    assert zero("s", at=np.array([1, 2])) == zero("s", at=(1, 2))
    with pytest.raises(TypeError):
        zero("s", at=[1.7])


def test_cross_weights_are_patched_from_a_source_of_equal_length() -> None:
    run = family_run("encoder-decoder")
    inputs = text_inputs(run, TEXT, "Rome and")[0]
    patch = edits.patch("decoder.0.cross.weights.0", "Ada was born", second="Oslo and")
    says = "the source has 3 tokens, and the text 9"
    with edited(run, patch), pytest.raises(UserError, match=says):
        run.model.body(*inputs)


def test_rows_of_two_lengths_have_no_common_source() -> None:
    run = mechanism_run("softmax")
    run.origin["questions"] = True
    patch = edits.patch("decoder.0.residual", "Ada was born in")
    with pytest.raises(UserError, match="the source has 6 tokens, and the text 5"):
        generate(run, ["Bob lives in Rome", "Bob lives in"], edit=patch, max_new_tokens=3)
