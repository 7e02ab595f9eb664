"""Beam search finds what Hugging Face's finds, with the same scores, under all its rules.

Hugging Face's search rounds the model's scores to float32. A processor of scores, which it allows,
gives it those of float64, and from there on it keeps them.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from regard.decoding import Beam, search_ids
from regard.decoding.beam_search import EarlyStopping
from regard.models.builders import LanguageModel
from tiny_models import VOCABULARY, tiny_config, tiny_model

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
peers = import_module("peers")

pytestmark = pytest.mark.filterwarnings("ignore")  # what a peer warns of isn't ours

PROMPT, NEW = 4, 8
CASES = 7
"""For each of Hugging Face's rules."""


class Found(NamedTuple):
    """A continuation, the stop token included, and its score."""

    ids: list[int]
    score: float


def found_by_peer(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    beams: int,
    stop: int | None,
    **rules: Any,
) -> list[list[Found]]:
    """All beams of each prompt, by GPT-2 with the same weights."""
    peer = peers.hugging_face(tiny_config(), VOCABULARY).double().eval()
    peers.load_ours(peer, model)

    def in_double(ids: Tensor, scores: Tensor) -> Tensor:
        assert scores.dtype == torch.float32, "it needs no help any more"
        log_probabilities: Tensor = peer(ids).logits[:, -1].log_softmax(-1)
        return log_probabilities

    ids = torch.tensor(prompts)
    out = peer.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=NEW,
        eos_token_id=stop,
        pad_token_id=VOCABULARY,
        logits_processor=[in_double],
        return_dict_in_generate=True,
        output_scores=True,
        **rules,
    )
    found = [
        Found([token for token in row if token != VOCABULARY], score)
        for row, score in zip(
            out.sequences[:, PROMPT:].tolist(), out.sequences_scores.tolist(), strict=True
        )
    ]
    return [found[start : start + beams] for start in range(0, len(found), beams)]


def as_found(beam: Beam, stop: int | None) -> Found:
    ids = [*beam.ids, stop] if beam.stopped and stop is not None else beam.ids
    return Found(ids, beam.score)


@pytest.mark.slow
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.6, 1.0, 2.0])
def test_it_finds_what_hugging_face_finds(
    length_penalty: float, early_stopping: EarlyStopping
) -> None:
    rules: dict[str, Any] = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    compared, endings = 0, set()
    for case in range(CASES):
        model, beams, stop = tiny_model(seed=case), 2 + case, None if case % 3 == 0 else case
        generator = torch.Generator().manual_seed(case)
        prompts = torch.randint(VOCABULARY, (3, PROMPT), generator=generator).tolist()
        theirs = found_by_peer(model, prompts, beams=beams, stop=stop, **rules)
        ours = search_ids(
            model,
            prompts,
            beams=beams,
            n_best=beams,
            max_new_tokens=NEW,
            stop_ids=() if stop is None else (stop,),
            **rules,
        )
        for mine, their in zip(ours, theirs, strict=True):
            if any(a.score - b.score < 1e-6 for a, b in pairwise(their)):
                continue
            compared += 1
            endings |= {beam.stopped for beam in mine}
            found = [as_found(beam, stop) for beam in mine]
            assert [row.ids for row in found] == [row.ids for row in their]
            scores = [row.score for row in their]
            assert [row.score for row in found] == pytest.approx(scores, rel=0, abs=1e-8)
    assert compared >= 2 * CASES
    assert endings == {True, False}
