"""Decoding with a cache under an edit equals reading the whole text again; nothing stays."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from regard import edits
from regard.decoding.beam_search import search_ids
from regard.decoding.generate import generate_answers
from regard.edits.apply import edited
from regard.edits.edit import EACH_NEW, Edits
from regard.edits.sites import sites
from regard.explorer.attention_maps import AttentionMap
from regard.explorer.look import look
from regard.explorer.page import View
from regard.huggingface.convert.families import FAMILIES as IMPORTED
from regard.models.builders import SequenceToSequence
from regard.models.head_config import LMHeadConfig
from regard.models.perceiver import PerceiverDecoder
from regard.runs.run import Run
from tiny_edited import (
    BODIES,
    MECHANISMS,
    TEXT,
    family_run,
    imported_run,
    mechanism_run,
    off,
    tiny_run,
)
from tiny_families import FAMILIES
from tiny_recurrent import padded

ROUNDING = 1e-9
ROWS = [[1, 3, 5, 6, 7, 8], [1, 4, 5, 6]]
NEW = [[10, 11, 7], [11, 3, 9]]
WRITERS = [
    name
    for name in BODIES
    if not name.startswith("encoder,") and name != "encoder" and "both ways" not in name
]

IMPORTED_WRITERS = [name for name, one in IMPORTED.items() if isinstance(one.head, LMHeadConfig)]


def all_edits(run: Run) -> Edits:
    """Every kind of edit, at each kind of position."""
    known = {site.name: site for site in sites(run)}
    found = Edits()
    for site in known.values():
        grows = site.name.startswith("decoder") and "cross" not in site.name
        if site.head == 1 and site.part in ("heads", "raw"):
            found += edits.zero(site.name, at=0)
        elif grows and site.head == 0 and site.part in ("queries", "keys", "values"):
            found += edits.steer(site.name, [0.5] * (site.width or 0), at="each-new")
        elif site.head is None and site.part in ("residual", "feedforward", "hidden"):
            found += edits.steer(site.name, [0.25] * (site.width or 0), scale=2, at="last")
        elif site.part in ("embedding", "positions"):
            found += edits.steer(site.name, [0.5] * (site.width or 0))
            if grows:
                found += edits.zero(site.name, at="each-new")
        elif site.head is None:
            found += edits.steer(site.name, [0.5] * (site.width or 0), at=(0,))
        elif site.head == 0 and site.part == "scores":
            found += edits.cut(f"{site.layer}.heads.0", key=0)
        elif site.head == 0 and site.part == "weights" and f"{site.layer}.scores.0" not in known:
            found += edits.zero(site.name, at=0)
    return found


def logits_by_steps(model: Any, rows: Sequence[list[int]]) -> Tensor:
    """Logits after the prompts and after each new token but the last, read with a state."""
    ids, lengths = padded(rows)
    real = torch.arange(ids.shape[1]) < lengths[:, None]
    state = model.init_state(len(rows), ids.shape[1] + len(NEW[0]))
    logits, state = model.extend(ids, state, real)
    found = [logits]
    for new in torch.tensor(NEW).T:
        logits, state = model.extend(new[:, None], state)
        found.append(logits)
    return torch.stack(found, 1)


def check_decoding(run: Run, edit: Edits) -> None:
    """Logits with a state are those of whole rows, each read alone in one or two calls."""
    source, lengths = torch.tensor([[3, 5, 6, 7, 8, 10, 11]] * 2), torch.tensor([7, 7])

    def model_of(rows: slice) -> Any:
        if isinstance(run.model, SequenceToSequence):
            return run.model.condition(source[rows], lengths[rows])
        return run.language_model

    with torch.no_grad(), edited(run, edit):
        stepped = logits_by_steps(model_of(slice(None)), ROWS)
        for i, row in enumerate(ROWS):
            model = model_of(slice(i, i + 1))
            _, state = model.extend(torch.tensor([row]), model.init_state(1, 12))
            last, _ = model.extend(torch.tensor([NEW[i]]), state)
            assert off(stepped[i, -1], last[0]) <= ROUNDING
    for i, row in enumerate(ROWS):
        ids = torch.tensor([[*row, *NEW[i]]])
        given = (source[:1], lengths[:1], ids) if is_pair(run) else (ids,)
        with torch.no_grad(), edited(run, edit, prompt_tokens=len(row)):
            assert off(stepped[i, -1], run.model(*given)[0, -1]) <= ROUNDING
    prompt_only = Edits(tuple(one for one in edit if getattr(one, "at", None) != EACH_NEW))
    with torch.no_grad(), edited(run, prompt_only):
        stepped = logits_by_steps(model_of(slice(None)), ROWS)[:, 0]
        for i, row in enumerate(ROWS):
            ids = torch.tensor([row])
            given = (source[:1], lengths[:1], ids) if is_pair(run) else (ids,)
            assert off(stepped[i], run.model(*given)[0, -1]) <= ROUNDING


def is_pair(run: Run) -> bool:
    return isinstance(run.model, SequenceToSequence)


@pytest.mark.parametrize("family", WRITERS)
def test_families_decode_under_edits(family: str) -> None:
    run = family_run(family)
    check_decoding(run, all_edits(run))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_mechanisms_decode_under_edits(kind: str) -> None:
    run = mechanism_run(kind)
    check_decoding(run, all_edits(run))


@pytest.mark.parametrize("kind", ["elu", "favor-positive", "gated-deltanet", "rwkv7"])
def test_states_decode_under_edits(kind: str) -> None:
    run, edit = mechanism_run(kind), Edits()
    for site in sites(run):
        if site.part == "states":
            edit += edits.zero(site.name, at=0)
            edit += edits.steer(site.name, [0.5] * (site.width or 0), at="each-new")
    check_decoding(run, edit)


def test_a_prompt_that_is_longer_than_the_latents_decodes_under_edits() -> None:
    run = tiny_run(FAMILIES["perceiver"])
    assert isinstance(run.model.body, PerceiverDecoder)
    assert len(ROWS[1]) < run.model.body.n_latents < len(ROWS[0])
    of_prompts = (one for one in all_edits(run) if getattr(one, "at", None) != EACH_NEW)
    check_decoding(run, Edits(tuple(of_prompts)))


@pytest.mark.slow
@pytest.mark.parametrize("family", IMPORTED_WRITERS)
def test_imported_families_decode_under_edits(family: str) -> None:
    run = imported_run(family)
    check_decoding(run, all_edits(run))


@pytest.mark.parametrize("kind", ["softmax", "gated-deltanet", "elu", "forgetting"])
def test_beams_are_scored_as_whole_texts(kind: str) -> None:
    """Score: the sum of log-probabilities of a beam's tokens, which are read again as a whole."""
    run = mechanism_run(kind)
    edit = edits.steer("decoder.0.residual", [0.5] * 8, at=2) + edits.zero("decoder.1.heads.0")
    if kind == "softmax":
        edit += edits.cut("decoder.0.heads.1", key=1)
    settings: dict[str, Any] = {"beams": 3, "max_new_tokens": 5, "n_best": 3, "length_penalty": 0.0}
    prompts = [[1, 3, 5, 6], [1, 4, 5, 7]]
    with torch.inference_mode(), edited(run, edit):
        found = search_ids(run.language_model, prompts, **settings)
    with torch.inference_mode(), edited(run, edit, prompt_tokens=4):
        for prompt, beams in zip(prompts, found, strict=True):
            assert len({tuple(beam.ids) for beam in beams}) == 3
            for beam in beams:
                ids = torch.tensor([*prompt, *beam.ids])
                shares = run.language_model(ids[None])[0, 3:-1].log_softmax(-1)
                score = shares.gather(1, ids[4:, None]).sum()
                assert beam.score == pytest.approx(float(score))


def test_answers_that_fill_the_context_keep_the_positions_of_their_prompt() -> None:
    """Beside a longer row, a row isn't continued as a new prompt, whose last token is another."""
    run = mechanism_run("softmax")
    edit = edits.steer("decoder.1.residual.feedforward", [30.0, -30.0] * 4, at="last")
    with edited(run, edit):
        alone = [generate_answers(run, [row])[0].ids for row in ROWS]
        assert [one.ids for one in generate_answers(run, ROWS)] == alone


def test_edits_of_a_generated_target_are_shown() -> None:
    run = family_run("encoder-decoder, post")
    with torch.no_grad():  # it doesn't stop at once
        head = cast("torch.nn.Linear", run.model.get_submodule("head"))
        head.weight[list(run.tokenizer.special.stop_ids)] *= -1

    def target(view: View) -> AttentionMap:
        return next(one for one in view.panels[0].maps if one.name == "decoder")

    edit = edits.zero("decoder.0.residual", at="each-new")
    shown = target(look(run, TEXT, edit=edit))
    plain = target(look(run, TEXT, " ".join(shown.queries[1:])))
    assert off(shown.layers[0].record.weights, plain.layers[0].record.weights) > ROUNDING
